"""What happens to a group, event by event, as the API server's watches tell it.

A fault's story is over when the deployment serves again; the record tells afterwards when the operator had
noticed, when the last old pod was gone, and whether an old rank ever ran beside a new one.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from control_plane.client import Json
from live_engine.deployment import LiveDeployment
from live_engine.watch import watched
from shardwright_operator.api.constants import GroupPhase

BROKEN = frozenset({GroupPhase.DEGRADED, GroupPhase.RESTARTING, GroupPhase.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The state after one event."""

    at_s: float
    """Seconds since the record began."""
    ready: bool
    phase: str
    reason: str
    pods: dict[str, tuple[str, str]]
    """Uid and, when its engine runs, its container's id, by name of the pod."""


@dataclass(slots=True)
class Record:
    """Samples in order of time; times are infinite for what did not happen."""

    old: frozenset[str] = frozenset()
    """Uids of the pods that the fault hits or that have to follow."""
    samples: list[Sample] = field(default_factory=list)

    def noticed_s(self) -> float:
        """When the status first told that the group is broken."""
        return self._first(lambda sample: sample.phase in BROKEN)

    def replaced_s(self) -> float:
        """When the last of the old pods was gone."""
        return self._first(lambda sample: self.old.isdisjoint(uid for uid, _ in sample.pods.values()))

    def gone_s(self, uid: str) -> float:
        """When one pod was gone."""
        return self._first(lambda sample: uid not in {other for other, _ in sample.pods.values()})

    def serves_s(self) -> float:
        """When the status first told that new pods serve."""
        replaced_s = self.replaced_s()
        return self._first(lambda sample: sample.at_s >= replaced_s and sample.ready and bool(sample.pods))

    def cause(self) -> str:
        """Why the operator takes the group down, in its first word for it."""
        down = (s.reason for s in self.samples if s.at_s >= 0 and s.phase == GroupPhase.RESTARTING)
        return next(down, "")

    def reasons(self) -> list[str]:
        """Phases with their reasons, each named once in a row, with the times of the change."""
        found: list[str] = []
        last = ""
        for sample in self.samples:
            words = f"{sample.phase}/{sample.reason}"
            if sample.at_s >= 0 and words != last:
                found.append(f"{sample.at_s:.1f} s {words}")
                last = words
        return found

    def mixed(self) -> list[Sample]:
        """Moments at which a container of an old pod ran beside one of a new pod."""
        return [
            sample
            for sample in self.samples
            if {uid in self.old for uid, container in sample.pods.values() if container} == {True, False}
        ]

    def _first(self, holds: Callable[[Sample], bool]) -> float:
        return next((s.at_s for s in self.samples if s.at_s >= 0 and holds(s)), math.inf)


class _Story:
    """Makes samples of the events of two watches."""

    def __init__(self) -> None:
        self.record = Record()
        self._lock = threading.Lock()
        self._began = math.inf
        self._pods: dict[str, Json] = {}
        self._resource: Json = {}

    def begin(self) -> None:
        """What has been there until now is what the fault hits."""
        with self._lock:
            self._began = time.monotonic()
            self.record.old = frozenset(pod["metadata"]["uid"] for pod in self._pods.values())

    def pods_listed(self, pods: Sequence[Json]) -> None:
        with self._lock:
            self._pods = {pod["metadata"]["name"]: pod for pod in pods}
            self._sample()

    def pod_changed(self, change: str, pod: Json) -> None:
        with self._lock:
            name = pod["metadata"]["name"]
            if change == "DELETED":
                self._pods.pop(name, None)
            else:
                self._pods[name] = pod
            self._sample()

    def resources_listed(self, resources: Sequence[Json]) -> None:
        for resource in resources:
            self.resource_changed("LISTED", resource)

    def resource_changed(self, _: str, resource: Json) -> None:
        with self._lock:
            self._resource = resource
            self._sample()

    def _sample(self) -> None:
        status = self._resource.get("status") or {}
        group = (status.get("groups") or [{}])[0]
        conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
        sample = Sample(
            at_s=time.monotonic() - self._began,
            ready=conditions.get("Ready") == "True",
            phase=str(group.get("phase", "")),
            reason=str(group.get("reason", "")),
            pods={name: (pod["metadata"]["uid"], _running(pod)) for name, pod in self._pods.items()},
        )
        self.record.samples.append(sample)


@contextlib.contextmanager
def recorded(deployment: LiveDeployment) -> Iterator[Record]:
    """Record while the block runs; the record stays readable afterwards."""
    namespace = f"namespaces/{deployment.namespace}"
    resources = f"/apis/shardwright.dev/v1alpha1/{namespace}/modeldeployments"
    story = _Story()
    with (
        watched(deployment.api, f"/api/v1/{namespace}/pods", story.pods_listed, story.pod_changed),
        watched(deployment.api, resources, story.resources_listed, story.resource_changed),
    ):
        story.begin()
        yield story.record


def _running(pod: Json) -> str:
    for status in pod["status"].get("containerStatuses") or ():
        if "running" in status["state"]:
            return str(status["containerID"])
    return ""
