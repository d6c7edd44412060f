"""kopf as the watcher, and as nothing else: every event goes to one function, and nothing is ever written.

Only ``on.event`` is used. kopf's other handlers, timers and daemons keep their state in annotations and
finalizers of the user's resource, which fights GitOps and makes deletions hang when the operator is gone.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import kopf

from shardwright_operator.cluster import Kind
from shardwright_operator.statelessness import NoDiffBase, NoProgress
from shardwright_operator.watch_session import Heard, open_session

LOGIN_ATTEMPTS = 3

Deliver = Callable[[Mapping[str, Any], bool], None]
"""Takes an object, and whether it is gone."""


def make_registry(
    kinds: Sequence[Kind],
    kubeconfig: str | None,
    deliver: Deliver,
    heard: Heard,
    *,
    give_up: Callable[[], None],
    ending: Callable[[], None],
) -> kopf.OperatorRegistry:
    """Handlers for the kinds, in a registry of their own; ``give_up`` must end kopf.

    ``ending`` is called when kopf has begun to end, for whatever cause.
    """
    registry = kopf.OperatorRegistry()

    async def login(retry: int, **_: Any) -> kopf.AiohttpSession:
        # Called anew after a 401.
        try:
            server, session = await open_session(kinds, kubeconfig, heard)
        except Exception:
            # After the last attempt kopf neither ends nor tries again: it would stay blind for ever.
            if retry + 1 >= LOGIN_ATTEMPTS:
                give_up()
            raise
        return kopf.AiohttpSession(server=server, aiohttp_session=session)

    def on_event_of(kind: Kind) -> Callable[..., Coroutine[Any, Any, None]]:
        async def on_event(event: kopf.RawEvent, **_: Any) -> None:
            # Returns nothing: kopf would write a returned value into the object's status.
            body: Mapping[str, Any] = event["object"]
            if kind.metadata_only:
                # It says that it were a PartialObjectMetadata.
                body = {**body, "kind": kind.plain_kind, "apiVersion": kind.api_version}
            deliver(body, event["type"] == "DELETED")

        return on_event

    async def cleanup(**_: Any) -> None:
        ending()

    kopf.on.cleanup(registry=registry)(cleanup)
    kopf.on.login(registry=registry, retries=LOGIN_ATTEMPTS, backoff=2)(login)
    for kind in kinds:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(on_event_of(kind))
    return registry


def make_settings(kinds: Sequence[Kind]) -> kopf.OperatorSettings:
    """kopf's settings: watch with server-side selectors, post nothing, look for nothing else."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    # kopf would kill its whole process when its end takes longer: a test run, for one, that embeds an
    # operator. The thread that kopf has here dies with the process, whose end is not kopf's matter.
    settings.process.ultimate_exiting_timeout = None
    # kopf keeps a task and a queue per object for this long after its last event. Its own 5 s would keep
    # those of thousands of pods and sets alive at once when many resources start together.
    settings.queueing.idle_timeout = 0.5
    for kind in kinds:
        if kind.selector:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.selector
    settings.persistence.progress_storage = NoProgress()
    settings.persistence.diffbase_storage = NoDiffBase()
    return settings
