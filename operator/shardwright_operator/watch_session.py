"""The HTTP session of the watches: cluster and credentials of our own requests, and LISTs that bring nothing.

Each watch begins, and after an error begins again, with a LIST, from whose version it goes on. What was
deleted before that LIST comes as no event at all, and an empty LIST makes none: in a cluster with a single
resource whose pods had just gone, its group waited for their end until the next full resync. So a LIST of our
own must follow in any case, and the watch's is only asked for its version: kopf would keep all its objects at
once, whole, each with a queue and a task (with 200 resources that was half of the memory at a start).
"""

from collections.abc import Callable, Sequence

import aiohttp

from shardwright_operator.cluster import Kind
from shardwright_operator.cluster.connection import connect

Listed = Callable[[str], None]
"""Told of the kind of each LIST that a watch makes, when it has been answered."""

_OK = 200
_NOTHING = "metadata.name=_"
"""A field selector that matches no object, since no object can have that name."""


async def open_session(
    kinds: Sequence[Kind], kubeconfig: str | None, listed: Listed
) -> tuple[str, aiohttp.ClientSession]:
    """The server's URL and a session that is logged in there; a rotated token is read from its file again."""
    connection = await connect(kubeconfig)
    authorization = await connection.authorization()
    context = connection.ssl_context()
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=True if context is None else context),
        headers={"Authorization": authorization} if authorization else None,
        proxy=connection.configuration.proxy,
        middlewares=[_emptied(kinds, listed)],
    )
    return connection.server, session


def _emptied(kinds: Sequence[Kind], listed: Listed) -> aiohttp.ClientMiddlewareType:
    """Turn each LIST into one that no object matches, and report it."""

    async def pass_on(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        kind = None if "watch" in request.url.query else _kind_of(request.url.path, kinds)
        if kind is None:
            return await send(request)
        request.url = request.url.update_query(fieldSelector=_NOTHING)
        response = await send(request)
        if response.status == _OK:
            listed(kind)
        return response

    return pass_on


def _kind_of(path: str, kinds: Sequence[Kind]) -> str | None:
    """By group and plural: there are PodGroups of two groups. A proxy may put a path of its own in front."""
    return next(
        (k.kind for k in kinds if path.endswith(f"/{k.plural}") and f"/{k.api_version}/" in path), None
    )
