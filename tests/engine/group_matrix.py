"""The groups that are rendered and held against vLLM: families, sizes, quantizations, executors.

Each is a spec as a person would write it, with every size pinned, so that what is checked is the rendering
and not the planner's choice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from synthetic_models import FAMILIES, QUANTIZATIONS, Config, synthetic_config

LENGTH = 4096


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Pinned sizes and the GPUs of a node. ``crosses`` opts in to tensor parallelism over nodes."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    gpus: int = 8
    crosses: bool = False
    executor: str | None = None

    def __str__(self) -> str:
        text = f"TP{self.tensor} PP{self.pipeline} DP{self.data}{' EP' if self.expert else ''}"
        return f"{text} on nodes of {self.gpus}{' with Ray' if self.executor == 'ray' else ''}"


DENSE = (
    Sizes(gpus=1),
    Sizes(tensor=4, gpus=4),
    Sizes(pipeline=2, gpus=2),
    Sizes(pipeline=2, gpus=1),
    Sizes(tensor=2, pipeline=2, gpus=2),
    Sizes(tensor=2, pipeline=4, gpus=4),
    Sizes(tensor=4, pipeline=4, gpus=4),
    Sizes(tensor=4, gpus=2, crosses=True),
    Sizes(tensor=4, pipeline=2, gpus=2, crosses=True),
    Sizes(tensor=2, pipeline=2, gpus=2, executor="ray"),
)
SPARSE = (
    Sizes(tensor=2, expert=True, gpus=2),
    Sizes(data=4, expert=True, gpus=4),
    Sizes(data=4, expert=True, gpus=1),
    Sizes(data=4, expert=True, gpus=2),
    Sizes(tensor=2, data=4, expert=True, gpus=4),
    Sizes(tensor=2, data=2, expert=False, gpus=2),
    Sizes(tensor=4, data=2, expert=True, gpus=2, crosses=True),
    Sizes(tensor=2, pipeline=2, data=2, expert=True, gpus=4),
)
QUANTIZED = (Sizes(tensor=2, gpus=2), Sizes(tensor=2, pipeline=2, gpus=2))
SPARSE_FAMILIES = tuple(family for family, config in FAMILIES.items() if "num_experts_per_tok" in config)
_EXPERT_KINDS = ("fp8", "fp8-block", "compressed-fp8", "modelopt-nvfp4")
_OF_NO_DENSE_MODEL = {"mxfp4", "bitsandbytes-4bit", "bitsandbytes-8bit"}
"""A format of experts, and one that vLLM 0.32 does not have any more."""
BLACKWELL, HOPPER = "B200-SXM-180GB", "H200-SXM-141GB"
_NOT_ON_BLACKWELL = {"compressed-w8a8"}
"""Integer arithmetic, which vLLM's documentation ("INT8 W8A8") rules out from compute capability 10.0 on."""
CHECKPOINTS = (
    *(("llama", kind) for kind in QUANTIZATIONS if kind not in _OF_NO_DENSE_MODEL),
    *(("qwen3-moe", kind) for kind in _EXPERT_KINDS),
    *(("deepseek-v3", kind) for kind in ("fp8-block", "compressed-w4a16")),
    ("gpt-oss", "mxfp4"),
)


@dataclass(frozen=True, kw_only=True)
class GroupCase:
    """One group: the model's config and the sizes."""

    family: str
    sizes: Sizes
    quantization: str | None = None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.family, self.quantization, str(self.sizes))))

    @property
    def config(self) -> Config:
        """The model's config.json."""
        return synthetic_config(self.family, quantization=self.quantization)

    def spec(self, name: str) -> dict[str, Any]:
        """The resource's spec for the model in the folder ``name`` of a claim."""
        gpu = HOPPER if self.quantization in _NOT_ON_BLACKWELL else BLACKWELL
        return pinned_spec(self.config, self.sizes, name, gpu=gpu)


def pinned_spec(config: Config, sizes: Sizes, name: str, *, gpu: str = BLACKWELL) -> dict[str, Any]:
    """A spec with every size pinned and just enough nodes."""
    world = sizes.tensor * sizes.pipeline * sizes.data
    spec: dict[str, Any] = {
        "model": {
            "name": name,
            "servedName": "tiny",
            "config": config,
            "source": {"persistentVolumeClaim": {"claimName": "weights"}},
        },
        "workload": {"inputTokens": 1024, "outputTokens": 128, "maxModelLength": LENGTH},
        "hardware": {
            "gpu": gpu,
            "gpusPerNode": sizes.gpus,
            "maxNodes": max(1, world // sizes.gpus),
        },
        "parallelism": {"tensor": sizes.tensor, "pipeline": sizes.pipeline, "data": sizes.data},
    }
    if "num_experts_per_tok" in config:
        spec["parallelism"]["expert"] = sizes.expert
    if sizes.crosses:
        spec["parallelism"]["crossNodeTensor"] = True
    if sizes.executor:
        spec["engine"] = {"executor": sizes.executor}
    return spec


def group_cases() -> Iterator[GroupCase]:
    """Every case, in a stable order."""
    for family in FAMILIES:
        for sizes in DENSE:
            yield GroupCase(family=family, sizes=sizes)
    for family in SPARSE_FAMILIES:
        for sizes in SPARSE:
            yield GroupCase(family=family, sizes=sizes)
    for family, quantization in CHECKPOINTS:
        for sizes in QUANTIZED:
            yield GroupCase(family=family, sizes=sizes, quantization=quantization)
