"""vLLM's defaults and limits by version, read from one data file.

They change between minor versions (the default utilization, what is subtracted for CUDA graphs), and a plan
made with another version's defaults promises cache that the engine does not have.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from shardwright_planner.errors import PlanInputError
from shardwright_planner.gpu import GIB, Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """One minor version of the engine.

    ``batch_defaults`` are (least GiB of the GPU, tokens per step, sequences per step), largest GPU first.
    """

    version: str
    gpu_memory_utilization: float
    graphs_subtracted: bool
    batch_defaults: tuple[tuple[int, int, int], ...]
    pipeline_unsupported: frozenset[str]

    def batch_limits(self, gpu: Gpu) -> tuple[int, int]:
        """Default (tokens, sequences) per step of the API server on this GPU (get_batch_defaults)."""
        size = gpu.memory_bytes / GIB
        for least, tokens, sequences in self.batch_defaults:
            # vLLM keeps A100 boards of any size out of the 70 GiB class.
            if size >= least and not (least == 70 and gpu.is_a100):
                return tokens, sequences
        return self.batch_defaults[-1][1:]


def find_engine(version: str) -> EngineFacts:
    """The facts for a version such as ``0.32``, ``0.32.1`` or ``v0.32.0``.

    Raises:
        PlanInputError: for a version that the table does not have; the message lists the known ones.
    """
    parsed = re.match(r"v?(\d+\.\d+)(?:[.\-+].*)?$", version.strip())
    found = _table().get(parsed.group(1)) if parsed else None
    if found is None:
        raise PlanInputError(
            field="engine.version",
            value=version,
            limit=f"the known versions of vLLM are {', '.join(_table())}",
            remedy="use one of these, or state the one whose defaults your build has",
        )
    return found


@cache
def _table() -> Mapping[str, EngineFacts]:
    data = json.loads(files("shardwright_planner").joinpath("engines.json").read_text(encoding="utf-8"))
    return {
        version: EngineFacts(
            version=version,
            gpu_memory_utilization=float(row["gpuMemoryUtilization"]),
            graphs_subtracted=bool(row["graphsSubtracted"]),
            batch_defaults=tuple((int(a), int(b), int(c)) for a, b, c in row["batchDefaults"]),
            pipeline_unsupported=frozenset(data["pipelineUnsupported"][version]),
        )
        for version, row in data["versions"].items()
    }
