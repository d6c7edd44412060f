"""Requests to the API server: authorization, timeouts, the fence before writes, figures, typed errors."""

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from shardwright_operator.cluster.connection import Connection
from shardwright_operator.cluster.errors import UnavailableError, error_from_answer

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0

JSON = "application/json"

Meter = Callable[[str, str, int, float], None]
"""Told of every request: verb as RBAC calls it, kind, HTTP code (0: no answer), seconds."""

WriteTime = Callable[[], float]
"""Seconds for which this process may change anything from this moment; 0 when it may not."""


def whole(text: bytes) -> bytes:
    """An answer of which nothing is cut out before it is read."""
    return text


def _unmetered(_verb: str, _kind: str, _code: int, _seconds: float) -> None:
    """Count nothing."""


class Transport:
    """Plain requests with a timeout each and no retries: when to try again is the work queue's to say."""

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        meter: Meter = _unmetered,
        write_time_s: WriteTime = lambda: math.inf,
    ) -> None:
        """``write_time_s`` is asked before each write, which is given up when that time is over.

        Those of the Lease itself are free.
        """
        self._connection = connection
        self._rest = RESTClientObject(connection.configuration)
        # Of its own: behind writes that held every connection the Lease was lost, and the operator ended.
        self._lease_rest = RESTClientObject(connection.configuration)
        self._user_agent = user_agent
        self._meter = meter
        self._write_time_s = write_time_s
        self._timeout = _timeout(REQUEST_TIMEOUT_S)

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.close()
        await self._lease_rest.close()

    async def request(
        self,
        verb: str,
        kind: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
        cut: Callable[[bytes], bytes] = whole,
    ) -> dict[str, Any]:
        """The answer's JSON object; ``cut`` may take out of its text what would cost much to read.

        ``verb`` and ``kind`` are those that the figures name.

        Raises:
            ClusterError: for every other answer, and for none.
        """
        url = f"{self._connection.server}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "User-Agent": self._user_agent, "Content-Type": content_type}
        authorization = await self._connection.authorization()
        if authorization:
            headers["Authorization"] = authorization
        timeout = self._timeout
        if method != "GET" and kind != "Lease":
            timeout = self._write_timeout(f"{method} {path}")
        rest = self._lease_rest if kind == "Lease" else self._rest
        began = time.monotonic()
        status = 0
        try:
            response = await rest.request(  # type: ignore[no-untyped-call]
                method, url, headers=headers, body=body, _request_timeout=timeout
            )
            status = int(response.status)
            data = await response.read()
            retry_after = cast("str | None", response.getheader("Retry-After"))
        except (aiohttp.ClientError, OSError) as error:
            why = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise UnavailableError(f"{method} {path}: {why}") from error
        finally:
            self._meter(verb, kind, status, time.monotonic() - began)
        answer = _parsed(cut(data))
        if 200 <= status < 300:
            return answer
        if status == 401:
            await self._connection.renew()
        raise error_from_answer(status, answer, retry_after)

    def _write_timeout(self, what: str) -> aiohttp.ClientTimeout:
        """How long a write may take: one that waits for a connection must not be sent after that time."""
        left_s = self._write_time_s()
        if left_s <= 0:
            raise UnavailableError(f"{what}: not sent, as another operator may lead by now")
        return _timeout(min(left_s, REQUEST_TIMEOUT_S))


def _timeout(total_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_TIMEOUT_S)


def _parsed(data: bytes) -> dict[str, Any]:
    """The answer's JSON object; a proxy's or webhook's plain text becomes its message."""
    try:
        answer = json.loads(data)
    except ValueError:
        return {"message": data.decode(errors="replace").strip()}
    return answer if isinstance(answer, dict) else {}
