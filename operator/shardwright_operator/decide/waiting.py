"""Why a group that is up does not serve yet, from its pods' own words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shardwright_operator.api.constants import GroupPhase, Reason
from shardwright_operator.decide.cause import cause_of, waiting_reason
from shardwright_operator.decide.claim import names_volume
from shardwright_operator.observe.views import PodView

_DIGEST = "@sha256:"
_PREEMPTION = re.compile(r"\.? (?:no new claims to deallocate, )?preemption: ")
"""Before the scheduler's account of whom it could have preempted, as long as all the rest."""
_GATED = "scheduling gates"
"""In the scheduler's words about a pod that a queue, such as Kueue, has not let in yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingState:
    """Phase, reason and message of a group that does not serve."""

    phase: GroupPhase
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A group that is up, as much of it as tells why it does not serve."""

    pods: Sequence[PodView]
    members: int
    has_served: bool
    """Whether rank 0 has come up once since its pod was made."""
    incomplete_set: str
    """Name of the set that has not made all its pods, should some be missing."""
    is_late: bool
    """Whether all pods should have been made by now."""
    shortfall: str = ""
    """Which GPUs are missing, if that is known."""
    claim: str = ""
    """Which claim the pods mount, and what to do about it when its volume is what they wait for."""


def waiting_state(sight: Sight) -> WaitingState:
    """The most telling of what keeps the group from serving: what stops it first, comes first."""
    return _pending(sight) or _starting(sight) or _forming(sight)


def _pending(sight: Sight) -> WaitingState | None:
    """A pod that cannot start until something outside of it changes."""
    for pod in sight.pods:
        if pod.unschedulable:
            volume = names_volume(pod.unschedulable)
            lacking = f"needs {sight.shortfall}; " if sight.shortfall and not volume else ""
            what = "is held back" if _GATED in pod.unschedulable else "fits no node"
            words = _PREEMPTION.split(pod.unschedulable, maxsplit=1)[0]
            told = f"; {sight.claim}" if sight.claim and volume else ""
            return WaitingState(
                phase=GroupPhase.PENDING,
                reason=Reason.WAITING_FOR_VOLUME if volume else Reason.WAITING_FOR_CAPACITY,
                message=f"{lacking}{_named(pod)} {what}: {words.rstrip('. ') if told else words}{told}",
            )
    for pod in sight.pods:
        if pod.waiting is not None:
            return WaitingState(
                phase=GroupPhase.RESTARTING if pod.restarts else GroupPhase.PENDING,
                reason=waiting_reason(pod.waiting) or _pause_reason(pod),
                message=f"{_named(pod)}: {pod.waiting.reason}: {pod.waiting.message}",
            )
    return None


def _starting(sight: Sight) -> WaitingState | None:
    """Ranks that do not run yet."""
    pods, members = sight.pods, sight.members
    if len(pods) < members:
        text = f"{len(pods)} of {members} pods exist"
        if sight.is_late:
            # A quota or an admission policy speaks to the set's controller, which tells it in Events only.
            text += f"; what holds a pod back: kubectl describe statefulset {sight.incomplete_set}"
        return WaitingState(phase=GroupPhase.STARTING, reason=Reason.STARTING, message=text)
    idle = [pod for pod in pods if pod.phase != "Running"]
    if not idle:
        return None
    first = idle[0]
    where = f" on node {first.node}" if first.node else ""
    text = f"waiting for {_ranks(idle)} to run: {first.name}{where} prepares its image and volumes"
    return WaitingState(phase=GroupPhase.STARTING, reason=Reason.STARTING, message=text)


def _forming(sight: Sight) -> WaitingState:
    """All ranks run and the group does not serve: not yet, or not any more."""
    unready = [pod for pod in sight.pods if not pod.ready]
    if sight.has_served:
        where = ", ".join(sorted({pod.node for pod in unready if pod.node}))
        verb = "are" if len(unready) > 1 else "is"
        text = f"{_ranks(unready)} {verb} not ready any more{f' (node {where})' if where else ''}"
        return WaitingState(phase=GroupPhase.DEGRADED, reason=Reason.GROUP_DEGRADED, message=text)
    text = f"all {sight.members} ranks run; waiting for {_ranks(unready)} to be ready"
    if differing := differing_images(sight.pods):
        return WaitingState(
            phase=GroupPhase.FORMING, reason=Reason.IMAGES_DIFFER, message=f"{text}; {differing}"
        )
    return WaitingState(phase=GroupPhase.FORMING, reason=Reason.FORMING, message=text)


def differing_images(pods: Sequence[PodView]) -> str:
    """What is to be said of ranks that run different builds of one image; empty when they do not.

    A tag that moved between two pulls, or that a node had kept from before: such engines may not understand
    each other (gpustack issue 2691). An image that was loaded by hand has no digest to be compared.
    """
    found = [(pod.node_rank, *pod.image_id.partition(_DIGEST)) for pod in pods]
    repositories, digests = {repository for _, repository, _, _ in found}, {digest for *_, digest in found}
    if len(repositories) != 1 or "" in digests or len(digests) < 2:
        return ""
    told = ", ".join(f"{digest[:12]} on rank {rank}" for rank, _, _, digest in found)
    repository = repositories.pop()
    return (
        f"the ranks run different builds of {repository} ({told}): "
        "give spec.engine.image by digest, or a tag that never moves"
    )


def _pause_reason(pod: PodView) -> Reason:
    """Why a pod pauses that its kubelet could start: what it ended with, or nothing yet."""
    return cause_of(pod, otherwise=Reason.CONTAINER_RESTARTED).reason if pod.restarts else Reason.STARTING


def _named(pod: PodView) -> str:
    return f"rank {pod.node_rank} ({pod.name})"


def _ranks(pods: Sequence[PodView]) -> str:
    """In words; without any pod it is rank 0 whose readiness counts."""
    numbers = ", ".join(str(pod.node_rank) for pod in pods) or "0"
    return f"ranks {numbers}" if len(pods) > 1 else f"rank {numbers}"
