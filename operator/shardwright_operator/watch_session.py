"""The HTTP session of the watches: cluster and credentials of our own requests, and ears for its LISTs.

Each watch begins, and after an error begins again, with a LIST, whose objects come as events. What was
deleted before that LIST comes as nothing at all, and an empty LIST makes no event: in a cluster with a single
resource whose pods had just gone, its group waited for their end until the next full resync. So every LIST
is reported.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import aiohttp

from shardwright_operator.cluster import Kind
from shardwright_operator.cluster.connection import connect

Listed = Callable[[str], None]
"""Told of the kind of each LIST that a watch makes, when it has been answered."""

_OK = 200


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
        trace_configs=[_trace(kinds, listed)],
    )
    return connection.server, session


def _trace(kinds: Sequence[Kind], listed: Listed) -> aiohttp.TraceConfig:
    """Hooks that report LISTs."""

    async def ended(
        _session: aiohttp.ClientSession, _context: SimpleNamespace, request: aiohttp.TraceRequestEndParams
    ) -> None:
        # By group and plural: there are PodGroups of two groups. A proxy may put a path of its own in front.
        path = request.url.path
        listed_here = (
            k.kind for k in kinds if path.endswith(f"/{k.plural}") and f"/{k.api_version}/" in path
        )
        kind = next(listed_here, None)
        if kind is not None and "watch" not in request.url.query and request.response.status == _OK:
            listed(kind)

    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(ended)
    return trace
