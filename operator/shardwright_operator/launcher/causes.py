"""What an engine, or a download, died of, from what it said: a reason for people to act on.

An engine says the cause early and then a page of consequences, in several processes at once. So the causes
are tried in an order, those that explain others first, and each by the words that vLLM 0.32, torch and
huggingface_hub 2 use for it.
"""

from __future__ import annotations

import re

from shardwright_operator.launcher import reasons

_CAUSES = {
    # The Hub answers 401 for a repository that does not exist, so that this is asked before access.
    reasons.MODEL_NOT_FOUND: (
        r"(Repository|Revision|Entry)NotFoundError",
        r"404 Client Error",
        r"(Model|Repository) '.{0,200}' not found",
        r"Revision not found",
        r"File not found in",
        r"is not a local folder and is not a valid model identifier",
        r"does not appear to have a file named config\.json",
        r"Repo id must",
        r"Cannot find any model weights",
        r"No such file or directory: '/models/",
    ),
    reasons.ACCESS_DENIED: (
        r"GatedRepoError",
        r"Access to model .{0,200} is restricted",
        r"Access denied\.",
        r"gated repo",
        r"40[13] Client Error",
        r"Invalid (user token|username or password|credentials)",
        r"(token|authentication) .{0,40}(is invalid|expired)",
    ),
    reasons.OUT_OF_MEMORY: (
        r"CUDA out of memory",
        r"OutOfMemoryError",
        r"No available memory for the cache blocks",
        r"is larger than the available KV cache memory",
        r"larger than the maximum number of tokens that can be",
        r"is less than desired GPU memory utilization",
        r"Insufficient space in /dev/shm",
        r"Cannot allocate memory",
        r"\bMemoryError",
    ),
    reasons.GPU_LOST: (
        r"No CUDA GPUs are available",
        r"CUDA driver initialization failed",
        r"Failed to infer device type",
        r"uncorrectable ECC",
        r"GPU is lost",
        r"fallen off the bus",
        r"CUDA error: (unspecified launch failure|unknown error|the launch timed out|hardware)",
        r"invalid device ordinal",
        r"NVML.{0,40}(Unknown|Lost)",
    ),
    reasons.CONFIG_REJECTED: (
        r"error: (unrecognized arguments|argument |the following arguments)",
        r"\d+ validation errors? for ",
        r"must be divisible by",
        r"not supported (for|by|on|with)",
        r"appears to be a URI",
    ),
    reasons.RENDEZVOUS_TIMEOUT: (
        r"DistStoreError",
        r"clients joined",
        r"wait timeout after \d+ ?ms",
        r"Timed out waiting for .{0,40}(rank|client|peer)",
        r"The client socket has (timed out|failed to connect)",
    ),
    reasons.PEER_LOST: (
        r"RPC call to \w+ timed out",
        r"Connection (closed|reset) by peer",
        r"remote process (has )?exited",
        r"Worker proc \S+ died unexpectedly",
        r"NCCL.{0,60}(remote|timeout)",
        r"Watchdog caught collective",
    ),
}
_PATTERNS = {reason: re.compile("|".join(words), re.IGNORECASE) for reason, words in _CAUSES.items()}

_JOINED = re.compile(r"\brank \d+ in world size \d+ is assigned as ")
_ERROR_LINE = re.compile(r"\b(ERROR|CRITICAL|FATAL|Traceback|Exception|error:|Error:|\w+Error\b)")


def cause_of(text: str) -> str:
    """The reason that the text speaks of; Unknown when it says nothing that is known."""
    return next((reason for reason, pattern in _PATTERNS.items() if pattern.search(text)), reasons.UNKNOWN)


def telling_line(text: str, reason: str) -> str | None:
    """The line that made the reason, without the log's prefix; None for an unknown one."""
    pattern = _PATTERNS.get(reason)
    if pattern is None:
        return None
    line = next((line for line in text.splitlines() if pattern.search(line)), None)
    return None if line is None else re.sub(r"^.{0,80}?\[[\w./]+:\d+\]\s*", "", line).strip()


def looks_like_an_error(line: str) -> bool:
    """Whether a line of the log may be where the trouble began."""
    return _ERROR_LINE.search(line) is not None


def tells_of_joining(line: str) -> bool:
    """Whether an engine says here that its process group is complete (vLLM ``parallel_state.py``)."""
    return _JOINED.search(line) is not None
