"""A loopback proxy between the operator and the API server, with the faults of a real way.

It takes plain HTTP and speaks TLS to the server, so that it can cut a watch, hold it silent, make answers
late, refuse with 429, and lose the answer to a write that has taken place: the one case in which a program
cannot know what it has done.
"""

import asyncio
import contextlib
import functools
import json
import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from yarl import URL

from control_plane.credentials import Credentials

START_S = 30.0
RETRY_AFTER_S = 1
GARBAGE = b"\x1f\x8b is no event\n"
_PASSED_ON = ("Authorization", "Content-Type", "Accept", "User-Agent")
_OF_ONE_HOP = frozenset({"Connection", "Transfer-Encoding", "Content-Length", "Content-Encoding"})


class LoopbackProxy:
    """Context manager; ``url`` is the server's address for the operator."""

    def __init__(self, upstream: Credentials, *, seed: int) -> None:
        self._upstream = upstream
        self._rng = random.Random(seed)  # noqa: S311 - faults are no secret
        self._thread = threading.Thread(target=self._main, name="proxy", daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._until: dict[str, float] = {}
        self._watches: set[asyncio.Transport] = set()
        self._garbles = False
        self._port = 0
        self.requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(START_S), "the proxy did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(START_S)

    def cut_watches(self) -> None:
        """Break all watches that are open now."""
        self._soon(self._cut)

    def garble_a_watch(self) -> None:
        """Put a line that is no event into the next watch that has something to tell."""
        self._garbles = True

    def hold_watches(self, for_s: float) -> None:
        """Let nothing through on watches for a time; what has come meanwhile follows then."""
        self._set("held", for_s)

    def slow(self, for_s: float) -> None:
        """Make each request wait for up to two seconds."""
        self._set("slow", for_s)

    def lose_answers(self, for_s: float) -> None:
        """Break the connection in place of every third answer, when the request has taken effect."""
        self._set("lost", for_s)

    def refuse(self, for_s: float) -> None:
        """Answer two of three requests with 429 and Retry-After."""
        self._set("refused", for_s)

    def sever(self, for_s: float) -> None:
        """Let nothing through."""
        self._soon(self._cut)
        self._set("severed", for_s)

    def clear(self) -> None:
        """Fair weather from now on."""
        self._garbles = False
        self._soon(self._until.clear)

    def _set(self, fault: str, for_s: float) -> None:
        def begin() -> None:
            assert self._loop is not None
            self._until[fault] = self._loop.time() + for_s

        self._soon(begin)

    def _soon(self, call: Callable[[], object]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(call)

    def _cut(self) -> None:
        for transport in tuple(self._watches):
            transport.abort()

    def _blows(self, fault: str) -> bool:
        assert self._loop is not None
        return self._until.get(fault, 0.0) > self._loop.time()

    def _main(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        connector = aiohttp.TCPConnector(limit=0, ssl=self._upstream.ssl_context())
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as session:
            handler = functools.partial(self._handle, session)
            runner = web.ServerRunner(web.Server(handler, access_log=None), shutdown_timeout=0.5)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self._port = runner.addresses[0][1]
            self._started.set()
            await self._end.wait()
            self._cut()
            await runner.cleanup()

    async def _handle(self, session: aiohttp.ClientSession, request: web.BaseRequest) -> web.StreamResponse:
        self.requests += 1
        body = await request.read()
        if self._blows("slow"):
            await asyncio.sleep(self._rng.uniform(0.0, 2.0))
        if self._blows("severed"):
            return _broken(request)
        if self._blows("refused") and self._rng.random() < 2 / 3:
            return _too_many()
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        # The API server packs long answers, and a packed stream of events would have to be unpacked here.
        headers["Accept-Encoding"] = "identity"
        url = URL(f"{self._upstream.server}{request.raw_path}", encoded=True)
        try:
            async with session.request(request.method, url, headers=headers, data=body or None) as answer:
                if "watch" in request.query:
                    return await self._stream(request, answer)
                content = await answer.read()
        except (aiohttp.ClientError, OSError):
            return _broken(request)
        if self._blows("lost") and self._rng.random() < 1 / 3:
            return _broken(request)
        kept = {name: value for name, value in answer.headers.items() if name.title() not in _OF_ONE_HOP}
        return web.Response(status=answer.status, headers=kept, body=content)

    async def _stream(self, request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status)
        response.content_type = "application/json"
        transport = request.transport
        if transport is None:
            # The watcher has gone while its request was under way.
            return response
        self._watches.add(transport)
        try:
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                assert self._loop is not None
                await asyncio.sleep(max(0.0, self._until.get("held", 0.0) - self._loop.time()))
                if self._garbles:
                    self._garbles = False
                    await response.write(GARBAGE)
                await response.write(chunk)
        except (aiohttp.ClientError, OSError):
            transport.abort()
        finally:
            self._watches.discard(transport)
        with contextlib.suppress(OSError):
            await response.write_eof()
        return response


def _broken(request: web.BaseRequest) -> web.Response:
    """No answer at all: the connection breaks."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=503)


def _too_many() -> web.Response:
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": "TooManyRequests",
        "message": "the storm says so",
        "code": 429,
        "details": {"retryAfterSeconds": RETRY_AFTER_S},
    }
    return web.Response(
        status=429,
        headers={"Retry-After": str(RETRY_AFTER_S)},
        content_type="application/json",
        body=json.dumps(status).encode(),
    )
