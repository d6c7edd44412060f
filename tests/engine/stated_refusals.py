"""Where the planner and vLLM 0.32 may disagree, each with the reason. Any other disagreement is a fault.

``OURS`` are layouts that vLLM's configuration and layers take and the planner refuses all the same. ``CPU``
are refusals of the CPU build that a GPU build would not make, with the place in vLLM that says so. The
two-way test fails on an entry that no case meets any more, so that neither list can outlive its reason.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Stated:
    """``pattern`` is a regular expression over the refusing side's sentence, ``where`` over vLLM's place."""

    pattern: str
    reason: str
    where: str = ""


OURS = (
    Stated(
        pattern=r"^data-parallel ranks of a dense model are whole copies",
        reason="vLLM would run them as independent engines behind one server; replicas do the same without "
        "making one group out of them, which fails and restarts as one",
    ),
    Stated(
        pattern=r"^expert parallelism needs a mixture of experts",
        reason="transformers gives Nemotron-H eight experts by default, and vLLM asks the config for that "
        "number, though the pattern of a dense model has no expert layer",
    ),
    Stated(
        pattern=r"^\d+ stages for \d+ layers",
        reason="vLLM would start stages without layers, whose GPUs hold nothing",
    ),
    Stated(
        pattern=r"key and \d+ value heads do not divide",
        reason="vLLM divides the key heads without a remainder check, and a rank would have none",
    ),
    Stated(
        pattern=r"^mlp\.shared_expert\.\w+ has width \d+, which does not divide by TP",
        reason="with attention DP, TP and expert parallelism together vLLM copies the shared expert to every "
        "rank instead of cutting it; a width that does not divide exists in no published model",
    ),
    Stated(
        pattern=r"over \d+ ranks leave some empty",
        reason="vLLM would start expert ranks without experts, whose GPUs hold nothing of them",
    ),
    Stated(
        pattern=r"intermediate_size \d+ over \d+ ranks is \d+, not a multiple of the FP8 block",
        reason="vLLM 0.32 cuts the blocks of experts finer while loading, and then only its Triton kernel "
        "runs; with expert parallelism the blocks stay whole",
    ),
    Stated(
        pattern=r"not a multiple of the quantization group of \d+$",
        reason="vLLM leaves it to the GPU's kernel, which is not here: groups may not cross ranks "
        "(marlin_utils.verify_group_size_divides_partition)",
    ),
)
_MOE = (
    "vLLM chooses the kernel of quantized experts with their layout; the CPU build has none for this format"
)
_ORACLE = r"^vllm/model_executor/layers/fused_moe/oracle/"
CPU = (
    Stated(
        pattern=r"No Unquantized MoE backend supports",
        where=_ORACLE + r"unquantized\.py",
        reason="the CPU's kernel of experts with biases takes widths in steps that a GPU's does not ask for",
    ),
    Stated(pattern=r"No WNA16 MoE backend supports", where=_ORACLE + r"int_wna16\.py", reason=_MOE),
    Stated(pattern=r"No Int8 MoE backend supports", where=_ORACLE + r"int8\.py", reason=_MOE),
    Stated(pattern=r"No NvFp4 MoE backend supports", where=_ORACLE + r"nvfp4\.py", reason=_MOE),
    Stated(pattern=r"No MXFP4 MoE backend supports", where=_ORACLE + r"mxfp4\.py", reason=_MOE),
)
