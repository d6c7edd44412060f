"""Watches the pods that are not ours and hold GPUs, at the price of those pods alone.

The API cannot select pods by what they ask for, so the server sends every bound pod of the cluster. kopf
would parse each and keep a task for it, and a cluster of a thousand nodes has some ten thousand pods that
never saw a GPU. Here a line of the stream in which the resource's name does not occur is dropped as bytes,
unparsed, and of the others four fields stay.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import aiohttp

from shardwright_operator.api.constants import GPU_RESOURCE, MANAGED_BY_VALUE, Label
from shardwright_operator.observe.projection import project_claim
from shardwright_operator.watch_session import open_session

PAGE = 250
WATCH_S = 300
RETRY_S = 5.0
SYNC_RETRY_S = 1.0

_PATH = "/api/v1/pods"
_SELECTION = {
    "labelSelector": f"{Label.MANAGED_BY}!={MANAGED_BY_VALUE}",
    "fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
}
_MARK = f'"{GPU_RESOURCE}"'.encode()
_NOTICES = (b'{"type":"BOOKMARK"', b'{"type":"ERROR"')
_FORBIDDEN = 403
_GONE = 410

Body = Mapping[str, Any]
Take = Callable[[Body, bool], None]
"""Takes a pod, and whether it is gone."""
TakeAll = Callable[[Iterable[Body], int], None]
"""Takes all pods with GPUs, and the resource version at which they were listed."""

log = logging.getLogger(__name__)


class StrangerWatch:
    """The stream of strangers' pods. Without the right to see them, free GPUs stay unknown."""

    def __init__(self, kubeconfig: str | None, take: Take, take_all: TakeAll) -> None:
        self._kubeconfig = kubeconfig
        self._take = take
        self._take_all = take_all
        self._version = ""

    async def sync(self) -> None:
        """List once, so that usage is known before anything is decided.

        Only without the right to see pods is that left to ``run``. While usage is unknown every group is made
        at once: a server that was busy for the moment of a start must not let out all that wait for GPUs.
        """
        while True:
            try:
                async with _opened(self._kubeconfig) as (server, session):
                    await self._list(server, session)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                log.warning("pods with GPUs could not be listed", extra={"why": str(error)})
                if _is_forbidden(error):
                    return
                await asyncio.sleep(SYNC_RETRY_S)
            else:
                return

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            try:
                began = asyncio.get_running_loop().time()
                async with _opened(self._kubeconfig) as (server, session):
                    if not self._version:
                        await self._list(server, session)
                    await self._watch(server, session)
                # A server that closes at once must not be asked without end.
                await asyncio.sleep(max(0.0, began + RETRY_S - asyncio.get_running_loop().time()))
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                log.warning("the watch of pods with GPUs broke", extra={"why": str(error)})
                await asyncio.sleep(RETRY_S * (12 if _is_forbidden(error) else 1))

    async def _list(self, server: str, session: aiohttp.ClientSession) -> None:
        pods: list[Body] = []
        query = {**_SELECTION, "limit": str(PAGE)}
        while True:
            async with session.get(f"{server}{_PATH}", params=query) as answer:
                answer.raise_for_status()
                page = json.loads(await answer.read())
            pods += [_slim(item) for item in page.get("items") or () if project_claim(item) is not None]
            metadata = page["metadata"]
            if not metadata.get("continue"):
                break
            query["continue"] = metadata["continue"]
        self._version = metadata["resourceVersion"]
        self._take_all(pods, int(self._version))

    async def _watch(self, server: str, session: aiohttp.ClientSession) -> None:
        query = {
            **_SELECTION,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_S),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_S + 30)
        async with session.get(f"{server}{_PATH}", params=query, timeout=timeout) as answer:
            if answer.status == _GONE:
                self._version = ""
                return
            answer.raise_for_status()
            async for line in _lines(answer.content):
                if _MARK not in line and not line.startswith(_NOTICES):
                    continue
                event = json.loads(line)
                if event["type"] == "ERROR":
                    # Most likely too old a version: what has happened since is found by a LIST.
                    self._version = ""
                    return
                self._version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._take(event["object"], event["type"] == "DELETED")


def _is_forbidden(error: Exception) -> bool:
    return isinstance(error, aiohttp.ClientResponseError) and error.status == _FORBIDDEN


@contextlib.asynccontextmanager
async def _opened(kubeconfig: str | None) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """The server's URL and a session for it; a rotated token is read anew each time."""
    server, session = await open_session((), kubeconfig, None)
    async with session:
        yield server, session


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: a pod's managed fields alone may exceed the reader's own limit."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


def _slim(pod: Body) -> Body:
    """What the store reads of a pod, so that a long LIST holds no more than that."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    kept = ("containers", "initContainers")
    return {
        "metadata": {name: metadata.get(name) for name in ("uid", "resourceVersion")},
        "spec": {
            "nodeName": spec.get("nodeName", ""),
            **{k: [{"resources": c.get("resources")} for c in spec.get(k) or ()] for k in kept},
        },
        "status": {"phase": (pod.get("status") or {}).get("phase", "")},
    }
