"""What happens to a group, second by second, seen by the API server and by the processes of this machine.

A fault's story is over when the deployment serves again; the record tells afterwards when the operator had
noticed, when the last old pod was gone, and whether an old rank ever ran beside a new one.
"""

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from control_plane.client import ApiError, Json
from live_engine.deployment import LiveDeployment
from shardwright_operator.api.constants import GroupPhase

PERIOD_S = 0.4
RUNNING = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The state at one moment."""

    at_s: float
    """Seconds since the record began."""
    ready: bool
    phase: str
    reason: str
    pods: dict[str, tuple[str, str]]
    """Uid and, when its engine runs, its container's id, by name of the pod."""
    nodes: dict[str, str]


@dataclass(slots=True)
class Record:
    """Samples in order of time, and what was there before the first of them."""

    old: frozenset[str]
    """Uids of the pods that the fault hits or that have to follow."""
    samples: list[Sample] = field(default_factory=list)

    def noticed_s(self) -> float:
        """When the group was first shown as anything but serving; infinite when it never was."""
        broken = (s.at_s for s in self.samples if not s.ready or s.phase != GroupPhase.READY)
        return next(broken, math.inf)

    def replaced_s(self) -> float:
        """When the last of the old pods was gone; infinite when one stayed."""
        gone = (s.at_s for s in self.samples if self.old.isdisjoint(uid for uid, _ in s.pods.values()))
        return next(gone, math.inf)

    def reasons(self) -> list[str]:
        """Phases with their reasons, each named once in a row."""
        found: list[str] = []
        for sample in self.samples:
            words = f"{sample.phase}/{sample.reason}"
            if not found or found[-1] != words:
                found.append(words)
        return found

    def mixed(self) -> list[Sample]:
        """Moments at which a container of an old pod ran beside one of a new pod."""
        return [
            sample
            for sample in self.samples
            if {uid in self.old for uid, container in sample.pods.values() if container} == {True, False}
        ]


@contextlib.contextmanager
def recorded(deployment: LiveDeployment) -> Iterator[Record]:
    """Record in a thread while the block runs; the record stays readable afterwards."""
    record = Record(old=frozenset(pod["metadata"]["uid"] for pod in deployment.pods()))
    done = threading.Event()
    began = time.monotonic()

    def sample() -> None:
        while not done.is_set():
            with contextlib.suppress(ApiError, OSError):
                record.samples.append(_sample(deployment, time.monotonic() - began))
            done.wait(PERIOD_S)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield record
    finally:
        done.set()
        thread.join()


def _sample(deployment: LiveDeployment, at_s: float) -> Sample:
    pods = deployment.pods()
    status = deployment.status
    group = (status.get("groups") or [{}])[0]
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    return Sample(
        at_s=at_s,
        ready=conditions.get("Ready") == "True",
        phase=str(group.get("phase", "")),
        reason=str(group.get("reason", "")),
        pods={pod["metadata"]["name"]: (pod["metadata"]["uid"], _running(pod)) for pod in pods},
        nodes={pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods},
    )


def _running(pod: Json) -> str:
    for status in pod["status"].get("containerStatuses") or ():
        if RUNNING in status["state"]:
            return str(status["containerID"])
    return ""
