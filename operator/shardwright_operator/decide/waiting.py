"""Why a group that is up does not serve yet, from its pods' own words."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwright_operator.api.constants import GroupPhase, Reason
from shardwright_operator.observe.views import PodView

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingState:
    """Phase, reason and message of a group that does not serve."""

    phase: GroupPhase
    reason: Reason
    message: str


def waiting_state(pods: Sequence[PodView], members: int, *, was_ready: bool, missing: str) -> WaitingState:
    """The most telling of what keeps the group from serving; ``missing`` names a set that lacks pods."""
    for pod in pods:
        if pod.unschedulable:
            return WaitingState(
                phase=GroupPhase.PENDING,
                reason=Reason.WAITING_FOR_CAPACITY,
                message=f"rank {pod.node_rank} ({pod.name}) fits no node: {pod.unschedulable}",
            )
    for pod in pods:
        if pod.waiting is not None:
            return WaitingState(
                phase=GroupPhase.PENDING,
                reason=_waiting_reason(pod),
                message=f"rank {pod.node_rank} ({pod.name}): {pod.waiting.reason}: {pod.waiting.message}",
            )
    if len(pods) < members:
        # A quota or an admission policy speaks to the set's controller, which tells it in Events only.
        text = f"{len(pods)} of {members} pods exist; kubectl describe statefulset {missing} tells why"
        return WaitingState(phase=GroupPhase.STARTING, reason=Reason.STARTING, message=text)
    starting = [str(pod.node_rank) for pod in pods if not pod.ready]
    if was_ready:
        text = f"rank {', '.join(starting) or '0'} is not ready any more"
        return WaitingState(phase=GroupPhase.DEGRADED, reason=Reason.GROUP_DEGRADED, message=text)
    text = f"waiting for rank {', '.join(starting)} to be ready"
    return WaitingState(phase=GroupPhase.STARTING, reason=Reason.STARTING, message=text)


def _waiting_reason(pod: PodView) -> Reason:
    assert pod.waiting is not None  # noqa: S101 - the caller has looked
    if pod.waiting.reason in _IMAGE:
        return Reason.IMAGE_PULL
    if pod.waiting.reason in _CONFIG:
        return Reason.SECRET_MISSING if "secret" in pod.waiting.message else Reason.CONFIG_REJECTED
    return Reason.CONTAINER_RESTARTED if pod.restarts else Reason.STARTING
