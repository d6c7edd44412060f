"""vLLM's defaults and limits by version, read from two data files.

``engines.json`` is kept by hand, ``engine_facts.json`` is derived from the engine itself. Defaults change
between minor versions (the utilization, what is subtracted for CUDA graphs, how much the profiling run
holds), and a plan made with another version's defaults promises cache that the engine does not have.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from shardwright_planner.errors import PlanInputError
from shardwright_planner.gpu import GIB, Gpu

WHOLE_PROMPT_CHUNK = 2048  # tokens per step where prompts are chunked although the default is whole ones


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """What the engine holds besides weights and cache.

    ``sampler_copies`` are 32-bit copies of the logits in the profiling run, beside the logits themselves.
    ``workspace_kept``: the experts' workspace stays allocated, so that it adds to the sampler's peak.
    """

    sampler_copies: float
    workspace_kept: bool
    context_bytes: int
    nccl_bytes: int
    nccl_rank_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """One minor version of the engine.

    ``batch_defaults`` are (least GiB of the GPU, tokens per step, sequences per step), largest GPU first.
    ``whole_prompt_tokens``: contexts up to it are profiled in one step (before chunked prefill was default).
    ``counts_steps_ahead``: overlapping steps count when a window's blocks are admitted.
    ``memory_measured``: start-ups of this version were published and agree with the memory constants.
    ``logs_request_tokens``: the logged "cache size" is requests of the longest length times that length.
    ``executors_over_nodes`` can start ranks on other nodes (``--nnodes`` of mp came with 0.12).
    ``quantizations`` are (method, least compute capability); empty where they were not derived. Those in
    ``deprecated_quantizations`` are refused by the engine unless it is told to take them.
    The sets name architectures: without pipeline parallelism, without half precision, whose layers refuse
    more tensor ranks than experts, whose layers cannot copy KV heads; which make the embedding, and which
    the head, on every pipeline stage; whose shared experts are whole on every rank where attention and
    experts are split apart (EP over several tensor and data ranks).
    """

    version: str
    gpu_memory_utilization: float
    graphs_subtracted: bool
    batch_defaults: tuple[tuple[int, int, int], ...]
    whole_prompt_tokens: int
    logs_request_tokens: bool
    counts_steps_ahead: bool
    memory_measured: bool
    memory: EngineMemory
    executors_over_nodes: tuple[str, ...]
    quantizations: tuple[tuple[str, int], ...]
    deprecated_quantizations: frozenset[str]
    pipeline_unsupported: frozenset[str]
    half_refused: frozenset[str]
    tensor_within_experts: frozenset[str]
    kv_heads_not_copied: frozenset[str]
    embedding_on_every_stage: frozenset[str]
    head_on_every_stage: frozenset[str]
    shared_experts_whole: frozenset[str]

    def batch_limits(self, gpu: Gpu, longest: int = 0) -> tuple[int, int]:
        """Default (tokens, sequences) per step of the API server on this GPU (get_batch_defaults)."""
        size = gpu.memory_bytes / GIB
        for least, tokens, sequences in self.batch_defaults:
            # vLLM keeps A100 boards of any size out of the 70 GiB class.
            if size >= least and not (least == 70 and gpu.is_a100):
                return self._step_tokens(tokens, longest), sequences
        return self.batch_defaults[-1][1:]

    def _step_tokens(self, tokens: int, longest: int) -> int:
        if not self.whole_prompt_tokens:
            return tokens
        return max(tokens, longest) if longest <= self.whole_prompt_tokens else WHOLE_PROMPT_CHUNK


def find_engine(version: str) -> EngineFacts:
    """The facts for a version such as ``0.32``, ``0.32.1`` or ``v0.32.0``.

    Raises:
        PlanInputError: for a version that the table does not cover; the message gives its ends.
    """
    parsed = re.match(r"v?(\d+)\.(\d+)(?:[.\-+a-z].*)?$", version.strip())
    data = _data()
    wanted = (int(parsed.group(1)), int(parsed.group(2))) if parsed else None
    first, last = min(map(_number, data["versions"])), _number(str(data["latest"]))
    if wanted is None or not first <= wanted <= last:
        raise PlanInputError(
            field="engine.version",
            value=version,
            limit=f"the known versions of vLLM are {first[0]}.{first[1]} to {last[0]}.{last[1]}",
            remedy="use one of these, or state the one whose defaults your build has",
        )
    return _facts(wanted)


@cache
def _facts(wanted: tuple[int, int]) -> EngineFacts:
    data = _data()
    row = _governing(data["versions"], wanted)
    memory = data["memory"][row["memory"]]
    derived = _derived(wanted)
    return EngineFacts(
        version=f"{wanted[0]}.{wanted[1]}",
        gpu_memory_utilization=float(row["gpuMemoryUtilization"]),
        graphs_subtracted=bool(row["graphsSubtracted"]),
        batch_defaults=tuple((int(a), int(b), int(c)) for a, b, c in row["batchDefaults"]),
        whole_prompt_tokens=int(row.get("wholePromptTokens", 0)),
        logs_request_tokens=row["tokensLogged"] == "requests",
        counts_steps_ahead=bool(row.get("countsStepsAhead", False)),
        memory_measured=bool(row.get("memoryMeasured", True)),
        memory=EngineMemory(
            sampler_copies=float(memory["samplerCopies"]),
            workspace_kept=bool(memory["workspaceKept"]),
            context_bytes=int(memory["contextGib"] * GIB),
            nccl_bytes=int(memory["ncclGib"] * GIB),
            nccl_rank_bytes=int(memory["ncclRankGib"] * GIB),
        ),
        executors_over_nodes=tuple(row["executorsOverNodes"]),
        quantizations=tuple(derived.get("quantizations", {}).items()),
        deprecated_quantizations=frozenset(derived.get("deprecatedQuantizations", ())),
        pipeline_unsupported=frozenset(derived.get("pipelineUnsupported", data["pipelineUnsupported"])),
        half_refused=frozenset(derived.get("halfRefused", ())),
        tensor_within_experts=frozenset(derived.get("tensorWithinExperts", ())),
        kv_heads_not_copied=frozenset(derived.get("kvHeadsNotCopied", ())),
        embedding_on_every_stage=frozenset(derived.get("embeddingOnEveryStage", ())),
        head_on_every_stage=frozenset(derived.get("headOnEveryStage", ())),
        shared_experts_whole=frozenset(derived.get("sharedExpertsWhole", ())),
    )


def _governing(rows: Mapping[str, Any], wanted: tuple[int, int]) -> Any:
    # The newest row that is not newer than the version; before the first row, the first.
    known = sorted(rows, key=_number)
    older = [version for version in known if _number(version) <= wanted]
    return rows[older[-1] if older else known[0]]


def _number(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


def _derived(wanted: tuple[int, int]) -> Mapping[str, Any]:
    rows: Mapping[str, Any] = _read("engine_facts.json")["versions"]
    covered = wanted >= min(map(_number, rows))
    return _governing(rows, wanted) if covered else {}


def _data() -> Mapping[str, Any]:
    return _read("engines.json")


@cache
def _read(name: str) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = json.loads(
        files("shardwright_planner").joinpath(name).read_text(encoding="utf-8")
    )
    return loaded
