"""Events on the ModelDeployment. Transitions are rare; this makes sure that they stay rare.

An event is only created, never counted up: that needs one right less. What repeats within ten minutes is
dropped, unless something else was told since: a group that serves again after a loss says so again. That may
happen ten times in those minutes, so that a resource which turns to and fro tells no endless story. Losing an
event must never fail a pass, since the status says the same.
"""

import hashlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from shardwright_operator.api.constants import API_VERSION, FIELD_MANAGER, GROUP, KIND
from shardwright_operator.cluster import AlreadyExistsError, Cluster, ClusterError
from shardwright_operator.decide.decision import Event
from shardwright_operator.observe.views import ResourceView
from shardwright_operator.status.conditions import rfc3339

REPEAT_S = 600.0
REPEATS = 10
KEPT = 4096
MESSAGE_CHARACTERS = 1024

log = logging.getLogger(__name__)

Value = TypeVar("Value")


class EventRecorder:
    """Posts events through core/v1, which ``kubectl describe`` shows on every supported version."""

    def __init__(self, cluster: Cluster, clock: Callable[[], datetime], *, instance: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._instance = instance
        self._last: OrderedDict[str, datetime] = OrderedDict()
        """When each text was posted last."""
        self._told: OrderedDict[str, str] = OrderedDict()
        """The newest text of each resource, by UID."""
        self._repeated: OrderedDict[str, deque[datetime]] = OrderedDict()
        """When each resource repeated itself, by UID."""

    async def post(self, resource: ResourceView, event: Event) -> None:
        """Post one event, unless it only repeats what was posted within the last ten minutes."""
        now = self._clock()
        said = "\0".join((resource.uid, event.type, event.reason, event.message))
        digest = hashlib.sha256(said.encode()).hexdigest()[:10]
        if not self._is_news(resource.uid, digest, now):
            return
        _keep(self._last, digest, now)
        _keep(self._told, resource.uid, digest)
        key = resource.key
        stamp = rfc3339(now)
        manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            # The time comes first in the name: kubectl lists by name, and so in the order of the story.
            "metadata": {
                "namespace": key.namespace,
                "name": f"{key.name}.{int(now.timestamp() * 1e6):x}.{digest}",
            },
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": key.namespace,
                "name": key.name,
                "uid": resource.uid,
                "resourceVersion": str(resource.resource_version),
            },
            "type": str(event.type),
            "reason": event.reason,
            "message": event.message[:MESSAGE_CHARACTERS],
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": f"{GROUP}/operator",
            "reportingInstance": self._instance[:128],
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        try:
            await self._cluster.create(manifest)
        except AlreadyExistsError:
            return
        except ClusterError as error:
            log.warning("an event was lost", extra={"key": str(key), "why": error.message})

    def _is_news(self, uid: str, digest: str, now: datetime) -> bool:
        last = self._last.get(digest)
        since = now - timedelta(seconds=REPEAT_S)
        if last is None or last <= since:
            return True
        repeated = self._repeated.get(uid, deque(maxlen=REPEATS))
        if self._told.get(uid) == digest or (len(repeated) == REPEATS and repeated[0] > since):
            return False
        repeated.append(now)
        _keep(self._repeated, uid, repeated)
        return True


def _keep(book: "OrderedDict[str, Value]", key: str, value: Value) -> None:
    """Put into a book of which the oldest entries are forgotten."""
    book[key] = value
    book.move_to_end(key)
    while len(book) > KEPT:
        book.popitem(last=False)
