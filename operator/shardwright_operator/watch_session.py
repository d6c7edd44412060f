"""The HTTP session of the watches: cluster and credentials of our own requests, and LISTs that bring nothing.

Each watch begins, and after an error begins again, with a LIST, from whose version it goes on. What was
deleted before that LIST comes as no event at all, and an empty LIST makes none: in a cluster with a single
resource whose pods had just gone, its group waited for their end until the next full resync. So a LIST of our
own must follow in any case, and the watch's is only asked for its version: kopf would keep all its objects at
once, whole, each with a queue and a task (with 200 resources that was half of the memory at a start).
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
from aiohttp.connector import AddrInfoType

from shardwright_operator.cluster import Kind
from shardwright_operator.cluster.connection import connect
from shardwright_operator.cluster.managed_fields import without_managed_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Whom the session tells what it hears from the API server."""

    listed: Callable[[str], None]
    """Told of the kind of each LIST that a watch makes, when it has been answered."""
    unserved: Callable[[Kind], None]
    """Told of a kind that is not served any more, and can be defined anew. What asked for it stays without an
    answer until it is cancelled: kopf would print all of its calls, twice, and end in a state of its own."""


CLOSING_S = 4.0
"""How long the end of a session waits for its connections; a server that hangs must not hold up ours."""

_OK = 200
_NOT_FOUND = 404
_CLOSED = -1
_TURN_S = 0.01
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_NOTHING = "metadata.name=_"
"""A field selector that matches no object, since no object can have that name."""


async def open_session(
    kinds: Sequence[Kind], kubeconfig: str | None, heard: Heard | None
) -> tuple[str, aiohttp.ClientSession]:
    """The server's URL and a session that is logged in there; a rotated token is read from its file again."""
    connection = await connect(kubeconfig)
    authorization = await connection.authorization()
    context = connection.ssl_context()
    session = aiohttp.ClientSession(
        connector=_Connector(limit=0, ssl=True if context is None else context),
        headers={"Authorization": authorization} if authorization else None,
        proxy=connection.configuration.proxy,
        middlewares=() if heard is None else [_lessened(kinds, heard)],
    )
    return connection.server, session


class _Connector(aiohttp.TCPConnector):
    """Is closed when its sockets are.

    A response that is closed before its end, as every watch is, says good-bye over TLS and waits for the
    answer; aiohttp has forgotten the connection by then, and does not wait for it. With a busy server the
    event loop ended first, and the sockets were left to the garbage collector.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(socket_factory=self._open, **options)
        self._sockets: list[socket.socket] = []

    async def close(self, *, abort_ssl: bool = False) -> None:
        """End all connections, and wait for it a moment."""
        await super().close(abort_ssl=abort_ssl)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLOSING_S
        # A socket tells nobody that it has been closed.
        while any(_is_open(each) for each in self._sockets) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_TURN_S)

    def _open(self, address: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
        self._sockets = [opened, *filter(_is_open, self._sockets)]
        return opened


def _is_open(each: socket.socket) -> bool:
    return each.fileno() != _CLOSED


def _lessened(kinds: Sequence[Kind], heard: Heard) -> aiohttp.ClientMiddlewareType:
    """Turn each LIST into one that no object matches, and report it; let watches bring what is of use."""

    async def pass_on(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        kind = _kind_of(request.url.path, kinds)
        if kind is None:
            return await send(request)
        if "watch" in request.url.query:
            if kind.metadata_only:
                request.headers["Accept"] = _METADATA
            response = await answered(kind, await send(request))
            if kind.managed_fields_last and response.status == _OK:
                response.content = cast("aiohttp.StreamReader", _WithoutManagedFields(response.content))
            return response
        request.url = request.url.update_query(fieldSelector=_NOTHING)
        response = await answered(kind, await send(request))
        if response.status == _OK:
            heard.listed(kind.kind)
        return response

    async def answered(kind: Kind, response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
        if response.status == _NOT_FOUND and kind.is_defined:
            response.release()
            heard.unserved(kind)
            await asyncio.Event().wait()
        return response

    return pass_on


class _WithoutManagedFields:
    """A watch's stream of lines, as kopf reads it."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> object:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                yield b"".join(without_managed_fields(line) + b"\n" for line in lines)
        if rest:
            yield rest


def _kind_of(path: str, kinds: Sequence[Kind]) -> Kind | None:
    """By group and plural: there are PodGroups of two groups. A proxy may put a path of its own in front."""
    return next((k for k in kinds if path.endswith(f"/{k.plural}") and f"/{k.api_version}/" in path), None)
