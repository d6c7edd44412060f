"""Random models and sizes for the two-way test, from a seed: mostly plausible, often just wrong."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from group_matrix import SPARSE_FAMILIES
from shardwright_planner.layout import Layout
from shardwright_planner.partition import own_partition
from synthetic_models import FAMILIES, QUANTIZATIONS, Config, synthetic_config

HEADS = (4, 6, 8, 8, 12, 14, 16, 16, 24, 28, 32)
WIDTHS = (256, 512, 768, 1024, 1024, 1280, 1536, 1792, 2048, 2048, 2816, 3072)
ODD_WIDTHS = (1000, 1100, 2222)
"""No checkpoint that is quantized in groups has such a width: they are cut from whole groups."""
TENSORS = (1, 1, 2, 2, 2, 2, 3, 4, 4, 4, 6, 7, 8, 8, 16)
LAYOUTS = 15
"""Layouts per model: a new model takes vLLM longer to read than many layouts to judge."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model and one layout."""

    family: str
    quantization: str | None
    config: Config
    layout: Layout

    def words(self) -> list[str]:
        """The layout as ``vllm serve`` is told it."""
        layout = self.layout
        return [
            *("--tensor-parallel-size", str(layout.tensor)),
            *("--pipeline-parallel-size", str(layout.pipeline)),
            *("--data-parallel-size", str(layout.data)),
            *(["--enable-expert-parallel"] if layout.expert else []),
            "--allow-deprecated-quantization",
        ]


def two_way_cases(seed: int, count: int) -> Iterator[Case]:
    """The known disagreements, then ``count`` cases of a seed."""
    yield from KNOWN
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    for _ in range(count // LAYOUTS):
        family = chance.choice(tuple(FAMILIES))
        quantization = chance.choice((None, None, *QUANTIZATIONS))
        if quantization == "mxfp4" and family not in SPARSE_FAMILIES:
            quantization = None  # a format of experts
        widths = WIDTHS if quantization or chance.random() < 0.8 else ODD_WIDTHS
        sizes = _sizes(chance, family, widths)
        config = synthetic_config(family, quantization=quantization, **sizes)
        for _ in range(LAYOUTS):
            layout = _layout(chance, family, config)
            yield Case(family=family, quantization=quantization, config=config, layout=layout)


def _known(family: str, layout: Layout, quantization: str | None = None, **changed: int) -> Case:
    config = synthetic_config(family, quantization=quantization, **changed)
    return Case(family=family, quantization=quantization, config=config, layout=layout)


KNOWN = (
    _known("llama", Layout(tensor=1, data=2)),
    _known("nemotron-h", Layout(tensor=2, expert=True)),
    _known("llama", Layout(tensor=1, pipeline=16)),
    _known("qwen3-next", Layout(tensor=16)),
    _known("llama4", Layout(tensor=4, data=2, expert=True), intermediate_size=2222),
    _known("mixtral", Layout(tensor=4, data=4, expert=True)),
    _known("qwen3-moe", Layout(tensor=8), "fp8-block"),
    _known("llama", Layout(tensor=8), "gptq", intermediate_size=1792),
    _known("gpt-oss", Layout(tensor=2), intermediate_size=1000),
    _known("mixtral", Layout(tensor=2), "awq"),
    _known("mixtral", Layout(tensor=2), "compressed-w8a8"),
    _known("mixtral", Layout(tensor=2), "compressed-nvfp4"),
    _known("mixtral", Layout(tensor=2), "mxfp4"),
)
"""One case for each listed disagreement, so that whether it still stands does not hang on the seed."""


def _sizes(chance: random.Random, family: str, widths: Sequence[int]) -> Config:
    heads = chance.choice(HEADS)
    whole = [size for size in range(1, heads + 1) if heads % size == 0]
    layers = chance.choice((1, 2, 3, 4))
    changed: Config = {
        "num_attention_heads": heads,
        "num_key_value_heads": chance.choice(whole) if family not in {"phi", "deepseek-v3"} else heads,
        "num_hidden_layers": layers,
        "hidden_size": heads * 64,
        "intermediate_size": chance.choice(widths),
        "vocab_size": chance.choice((512, 512, 512, 1024, 1088, 2049)),
    }
    if family in SPARSE_FAMILIES:
        experts = chance.choice((4, 6, 8, 8, 16, 16))
        changed |= {key: experts for key in _EXPERT_KEYS if key in FAMILIES[family]}
        if "moe_intermediate_size" in FAMILIES[family]:
            changed["moe_intermediate_size"] = chance.choice(widths)
    if family == "deepseek-v3":
        changed |= {"n_group": 1, "topk_group": 1, "first_k_dense_replace": chance.choice((0, 1))}
    if family == "gpt-oss":
        changed["layer_types"] = (["sliding_attention", "full_attention"] * 2)[:layers]
    if family == "llama4":
        changed["no_rope_layers"] = [1, 1, 1, 0][:layers]
    if family == "qwen3-next":
        changed["layer_types"] = ["linear_attention", "full_attention"] * 2
        changed["num_hidden_layers"] = 4
        changed["linear_num_key_heads"] = chance.choice((2, 4, 8, 6))
        changed["linear_num_value_heads"] = changed["linear_num_key_heads"] * chance.choice((1, 2))
        changed["shared_expert_intermediate_size"] = chance.choice(widths)
    if family == "nemotron-h":
        pattern = chance.choice(("M-M*", "M*", "MM-*M-"))
        groups = chance.choice((1, 2, 4, 8))
        changed |= {"hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern), "n_groups": groups}
        changed["mamba_num_heads"] = groups * chance.choice((1, 2, 4, 6))
    return changed


_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")


def _layout(chance: random.Random, family: str, config: Config) -> Layout:
    layers = config["num_hidden_layers"]
    tensor, pipeline = chance.choice(TENSORS), chance.choice((1, 1, 1, 1, 2, 2, layers, layers + 1))
    sparse = family in SPARSE_FAMILIES
    data = chance.choice((1, 1, 1, 2, 4) if sparse else (1,) * 9 + (2,))
    expert = chance.random() < (0.4 if sparse else 0.05)
    stages = min(pipeline, layers)
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        expert=expert,
        gpus_per_node=tensor * pipeline * data,
        partition=own_partition(layers, stages),
    )
