"""What a pod died of, or waits for, in one word: tables of what kubelets, controllers and engines say.

The word counts that is nearest to the cause. A container killed for memory is that, whatever its log says of
peers; a pod that was evicted is that, whatever its engine then complained of.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shardwright_operator.api.constants import Reason
from shardwright_operator.launcher import causes, reasons
from shardwright_operator.observe.containers import ContainerExit, Waiting
from shardwright_operator.observe.views import PodView

NODE_GONE = frozenset({"DeletionByTaintManager", "DeletionByPodGC"})
"""Reasons of the condition DisruptionTarget that say of a pod that its node no longer answers."""

_CONTAINER_REASONS: Mapping[str, Reason] = {
    "OOMKilled": Reason.OUT_OF_MEMORY,
    "ContainerCannotRun": Reason.CONFIG_REJECTED,
    "StartError": Reason.CONFIG_REJECTED,
}
_DISRUPTIONS: Mapping[str, Reason] = {
    **dict.fromkeys(NODE_GONE, Reason.NODE_LOST),
    "EvictionByEvictionAPI": Reason.EVICTED,
    "PreemptionByScheduler": Reason.PREEMPTED,
    "TerminationByKubelet": Reason.EVICTED,
}
_POD_REASONS: Mapping[str, Reason] = {
    "NodeLost": Reason.NODE_LOST,
    "Evicted": Reason.EVICTED,
    "Preempting": Reason.PREEMPTED,
    # The kubelet's device manager refuses a pod when a GPU it was promised has turned unhealthy.
    "UnexpectedAdmissionError": Reason.GPU_LOST,
    "OutOfnvidia.com/gpu": Reason.GPU_LOST,
}
_EXIT_CODES: Mapping[int, Reason] = {
    2: Reason.CONFIG_REJECTED,  # Python's argparse: an argument that the engine does not know
    126: Reason.CONFIG_REJECTED,
    127: Reason.CONFIG_REJECTED,
}
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError"})
_LAUNCHER_LINE = re.compile(r"^shardwright: (?P<reason>[A-Za-z]+): (?P<text>.*)")

LINE_CHARACTERS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A reason, and a clause that begins with a colon or a blank and goes after what was seen."""

    reason: Reason
    detail: str


def cause_of(pod: PodView, *, otherwise: Reason = Reason.MEMBER_LOST) -> Cause:
    """The cause that a pod's last sight tells, or ``otherwise`` when it tells none."""
    ended = pod.last_exit
    where = f" on node {pod.node}" if pod.node else ""
    if ended is not None and (reason := _CONTAINER_REASONS.get(ended.reason)):
        return Cause(reason=reason, detail=f"{_ending(ended)}{where}")
    taken = _DISRUPTIONS.get(pod.disruption) or _POD_REASONS.get(pod.reason)
    if taken is not None:
        words = {
            Reason.NODE_LOST: pod.disruption,
            Reason.PREEMPTED: "a pod of a higher priority took its place",
        }
        said = words.get(taken, pod.message) or pod.disruption or pod.reason
        return Cause(reason=taken, detail=f": {said}{where}")
    if ended is None:
        return Cause(reason=otherwise, detail=f": {pod.reason}{where}" if pod.reason else where)
    said_reason, line = last_words(ended.message)
    reason = said_reason or _EXIT_CODES.get(ended.exit_code) or otherwise
    return Cause(reason=reason, detail=f"{_ending(ended)}{where}{f': {line}' if line else ''}")


def _ending(ended: ContainerExit) -> str:
    return f": container {ended.container} {ended.reason or 'ended'} with exit code {ended.exit_code}"


def waiting_reason(waiting: Waiting) -> Reason | None:
    """Why the kubelet cannot start a container; None for what is no fault of the spec, such as a back-off."""
    if waiting.reason in _IMAGE:
        return Reason.IMAGE_PULL
    if waiting.reason in _CONFIG:
        return Reason.SECRET_MISSING if "secret" in waiting.message.lower() else Reason.CONFIG_REJECTED
    return None


def last_words(message: str) -> tuple[Reason | None, str]:
    """The reason that a termination message gives, and the line that gives it; None where it gives none.

    The launcher has looked at more of the output than is kept here, so its word stands.
    """
    launcher = _LAUNCHER_LINE.match(message)
    if launcher is not None:
        word, line = launcher["reason"], launcher["text"]
    else:
        word = causes.cause_of(message)
        line = causes.telling_line(message, word) or ""
    is_told = word in reasons.ALL and word != reasons.UNKNOWN
    return Reason(word) if is_told else None, line[:LINE_CHARACTERS]
