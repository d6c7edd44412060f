"""What a pod's containers ask for, by its spec, and how they are, in their kubelet's words."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shardwright_operator.api.constants import GPU_RESOURCE
from shardwright_operator.observe.excerpt import head_and_tail
from shardwright_operator.observe.values import LONG_AGO, integer, moment

TERMINATION_MESSAGE_CHARACTERS = 2048
"""Kept of a termination message, and of other words of a kubelet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerExit:
    """How a container ended. Exit code 0 is no success: a vLLM whose worker died ends with 0."""

    container: str
    exit_code: int
    reason: str
    message: str
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why a container does not run yet, in the kubelet's words."""

    reason: str
    message: str


def gpus_of(pod_spec: Mapping[str, Any]) -> int:
    """GPUs that a pod asks for: its containers together, or its hungriest init container."""
    together = sum(map(_container_gpus, pod_spec.get("containers") or ()))
    return max(together, max(map(_container_gpus, pod_spec.get("initContainers") or ()), default=0))


def _container_gpus(container: Mapping[str, Any]) -> int:
    resources = container.get("resources") or {}
    for name in ("limits", "requests"):
        if found := integer((resources.get(name) or {}).get(GPU_RESOURCE)):
            return found
    return 0


def port_named(pod_spec: Mapping[str, Any], name: str) -> int:
    """Number of the port that a container declares under a name; 0 when none does."""
    ports = (port for container in pod_spec.get("containers") or () for port in container.get("ports") or ())
    return next((port.get("containerPort", 0) for port in ports if port.get("name") == name), 0)


def running_since(containers: Any) -> datetime | None:
    """Start of the first container that runs."""
    running = (((c.get("state") or {}).get("running") or {}).get("startedAt") for c in containers)
    return next((moment(started) for started in running if started), None)


def last_exit(containers: Any) -> ContainerExit | None:
    """The latest end of any of the containers, of those that were started again too."""
    exits = [
        ContainerExit(
            container=container.get("name", ""),
            exit_code=ended.get("exitCode", 0),
            reason=ended.get("reason", ""),
            message=words(ended.get("message", "")),
            started_at=moment(ended.get("startedAt")),
            finished_at=moment(ended.get("finishedAt")),
        )
        for container in containers
        for state in (container.get("state") or {}, container.get("lastState") or {})
        if (ended := state.get("terminated"))
    ]
    return max(exits, key=lambda e: e.finished_at or LONG_AGO, default=None)


def waiting_for(containers: Any) -> Waiting | None:
    """Why a container does not run; None when it does, or is only being made."""
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in {None, "", "ContainerCreating", "PodInitializing"}:
            return Waiting(reason=waiting["reason"], message=words(waiting.get("message", "")))
    return None


def words(text: str) -> str:
    """As much of a kubelet's words as is kept."""
    return head_and_tail(text, TERMINATION_MESSAGE_CHARACTERS)
