"""What a member died of, in one word: tables of what kubelets, controllers, engines and launchers say.

The first word counts that is nearest to the cause. A container killed for memory is that, whatever its log
says of peers; a pod that was evicted is that, whatever its engine then complained of. A peer's death comes
last of all texts, because it is what every other rank reports of somebody else's failure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shardwright_operator.api.constants import Reason
from shardwright_operator.observe.views import ContainerExit, PodView

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
    "PreemptionByScheduler": Reason.EVICTED,
    "TerminationByKubelet": Reason.EVICTED,
}
_POD_REASONS: Mapping[str, Reason] = {
    "NodeLost": Reason.NODE_LOST,
    "Evicted": Reason.EVICTED,
    "Preempting": Reason.EVICTED,
    # The kubelet's device manager refuses a pod when a GPU it was promised has turned unhealthy.
    "UnexpectedAdmissionError": Reason.GPU_LOST,
    "OutOfnvidia.com/gpu": Reason.GPU_LOST,
}
_EXIT_CODES: Mapping[int, Reason] = {
    2: Reason.CONFIG_REJECTED,  # Python's argparse: an argument that the engine does not know
    126: Reason.CONFIG_REJECTED,
    127: Reason.CONFIG_REJECTED,
}
_SAID_BY_LAUNCHER = frozenset(
    {
        Reason.OUT_OF_MEMORY,
        Reason.GPU_LOST,
        Reason.MODEL_NOT_FOUND,
        Reason.ACCESS_DENIED,
        Reason.RENDEZVOUS_TIMEOUT,
        Reason.PEER_LOST,
        Reason.CONFIG_REJECTED,
        Reason.ENGINE_STALLED,
        Reason.DOWNLOAD_FAILED,
        Reason.UNKNOWN,
    }
)
"""Reasons that may stand in ``shardwright: <Reason>: text``, the first line of a launcher's last words."""

_LAUNCHER_LINE = re.compile(r"^shardwright: (?P<reason>[A-Za-z]+): (?P<text>.*)")

_TEXTS: tuple[tuple[Reason, re.Pattern[str]], ...] = tuple(
    (reason, re.compile("|".join(texts), re.IGNORECASE))
    for reason, texts in (
        (
            Reason.GPU_LOST,
            (
                r"f(e|a)ll(en)? off the bus",
                r"GPU is lost",
                r"uncorrectable ECC",
                r"\bXid\b",
                r"No CUDA GPUs are available",
                r"CUDA driver initialization failed",
                r"CUDA-capable device\(s\) is/are busy or unavailable",
                r"Failed to initialize NVML",
            ),
        ),
        (
            Reason.OUT_OF_MEMORY,
            (
                r"CUDA out of memory",
                r"OutOfMemoryError",
                r"No available memory for the cache blocks",
                r"larger than the available KV cache memory",
                r"less than desired GPU memory utilization",
                r"\bMemoryError\b",
            ),
        ),
        # The Hub answers 401 for a repository that does not exist, so this is asked before access.
        (
            Reason.MODEL_NOT_FOUND,
            (
                r"RepositoryNotFoundError",
                r"Repository Not Found",
                r"RevisionNotFoundError",
                r"EntryNotFoundError",
                r"is not a valid model identifier",
                r"does not appear to have a file named config\.json",
                r"Invalid repository ID or local directory",
            ),
        ),
        (
            Reason.ACCESS_DENIED,
            (
                r"gated repo",
                r"GatedRepoError",
                r"\b40[13] Client Error",
                r"Invalid user(name or password| token)",
            ),
        ),
        (
            Reason.CONFIG_REJECTED,
            (
                r"unrecognized arguments",
                r"error: argument -",
                r"validation errors? for \w*Config\b",
                r"Model architectures .* (are )?not supported",
                r"must be divisible by tensor parallel size",
            ),
        ),
        (
            Reason.RENDEZVOUS_TIMEOUT,
            (
                r"Timed out after \d+ seconds waiting for clients",
                r"client socket has timed out",
                r"DistStoreError",
                r"Rendezvous\w*(Error|Timeout|Closed)",
                r"leader .* does not resolve",
            ),
        ),
        (
            Reason.PEER_LOST,
            (
                r"ncclRemoteError",
                r"remote process exited",
                r"Watchdog caught collective operation timeout",
                r"NCCL watchdog",
                r"Connection (closed by|reset by) (remote )?peer",
                r"Broken pipe",
            ),
        ),
    )
)
"""How vLLM, PyTorch, NCCL and huggingface_hub word it, nearest cause first."""

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
        said = pod.disruption if taken is Reason.NODE_LOST else pod.message
        return Cause(reason=taken, detail=f": {said or pod.disruption or pod.reason}{where}")
    if ended is None:
        return Cause(reason=otherwise, detail=f": {pod.reason}{where}" if pod.reason else where)
    said_reason, line = _said(ended.message)
    reason = said_reason or _EXIT_CODES.get(ended.exit_code) or otherwise
    return Cause(reason=reason, detail=f"{_ending(ended)}{where}{f': {line}' if line else ''}")


def _ending(ended: ContainerExit) -> str:
    return f": container {ended.container} {ended.reason or 'ended'} with exit code {ended.exit_code}"


def _said(message: str) -> tuple[Reason | None, str]:
    """The reason that a termination message gives, and the line that gives it."""
    launcher = _LAUNCHER_LINE.match(message)
    if launcher is not None and launcher["reason"] in _SAID_BY_LAUNCHER:
        return Reason(launcher["reason"]), launcher["text"][:LINE_CHARACTERS]
    for reason, pattern in _TEXTS:
        found = pattern.search(message)
        if found is not None:
            return reason, _line_at(message, found.start())
    return None, ""


def _line_at(message: str, place: int) -> str:
    start = message.rfind("\n", 0, place) + 1
    end = message.find("\n", place)
    return message[start : end if end >= 0 else len(message)].strip()[:LINE_CHARACTERS]
