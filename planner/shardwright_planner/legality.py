"""What the engine refuses whatever the memory: heads, widths, blocks, experts, pipelines.

Every rule returns a sentence with the numbers, since "illegal" alone sends people to the engine's traceback.
The rules are vLLM 0.33's (config/model.py, layers/linear.py, quantization/utils); legality comes before
memory.
"""

from collections.abc import Iterator

from shardwright_planner.engine import EngineFacts
from shardwright_planner.gpu import Gpu
from shardwright_planner.layout import Layout
from shardwright_planner.model import (
    Attention,
    LatentAttention,
    LayerKind,
    LinearAttention,
    Mamba,
    Mixer,
    ModelFacts,
)
from shardwright_planner.request import Executor
from shardwright_planner.tensors import Matrix, Part, Split, layer_matrices
from shardwright_planner.weights import padded_vocabulary

# Least compute capability per method where the engine's own were not derived; FP8 below 8.9 runs weight-only.
LEAST_CAPABILITY = {
    "awq": 75,
    "bitsandbytes": 70,
    "compressed-tensors": 75,
    "fbgemm_fp8": 80,
    "fp8": 80,
    "gptq": 75,
    "modelopt": 80,
    "modelopt_fp4": 80,
    "mxfp4": 80,
}
# For INT8 vLLM 0.32 takes its CUTLASS kernel whatever the GPU (kernels/linear/scaled_mm/cutlass.py), which
# from here on ends the first step: "Int8 not supported on SM100. Use FP8 quantization instead".
FIRST_WITHOUT_INT8 = 100


class Legality:
    """The rules for one model on one engine version; answers are kept, since layouts share sizes."""

    def __init__(
        self, model: ModelFacts, engine: EngineFacts, executor: Executor = Executor.MULTIPROCESSING
    ) -> None:
        self.model = model
        self.engine = engine
        self.executor = executor
        self._matrices = tuple(
            (kind, m) for kind in model.kinds for m in layer_matrices(kind, model.hidden_size)
        )
        self._least = dict(engine.quantizations)
        self._tensor: dict[int, str | None] = {}
        self._alignment: dict[tuple[int, int], str | None] = {}

    def violation(self, layout: Layout) -> str | None:
        """Why the engine would refuse this layout, in one sentence; None if it would not."""
        return (
            self.quantization_violation()
            or self.tensor_violation(layout.tensor)
            or self.pipeline_violation(layout.pipeline)
            or self._executor_violation(layout)
            or self._expert_violation(layout)
            or self._alignment_violation(layout)
        )

    def quantization_violation(self) -> str | None:
        """Whether this version of the engine has the checkpoint's quantization at all."""
        scheme = self.model.quantization
        if scheme is None or not self._least or scheme.method in self._least:
            return None
        return f"vLLM {self.engine.version} has no quantization {scheme.method}"

    def tensor_violation(self, tensor: int) -> str | None:
        """The rules about heads, widths and vocabulary for a tensor size."""
        if tensor not in self._tensor:
            self._tensor[tensor] = next(self._tensor_violations(tensor), None)
        return self._tensor[tensor]

    def legal_tensor_sizes(self, limit: int) -> tuple[int, ...]:
        """Tensor sizes up to a limit that heads, widths, vocabulary and quantization allow."""
        return tuple(
            size
            for size in range(1, limit + 1)
            if self.tensor_violation(size) is None
            and self._alignment_violation(Layout(tensor=size, expert=self.model.is_moe)) is None
        )

    def pipeline_violation(self, pipeline: int) -> str | None:
        """The rules about a pipeline size."""
        if pipeline == 1:
            return None
        if self.model.architecture in self.engine.pipeline_unsupported:
            return f"{self.model.architecture} has no pipeline parallelism in vLLM {self.engine.version}"
        if pipeline > self.model.layer_count:
            return f"{pipeline} stages for {self.model.layer_count} layers"
        return None

    def _executor_violation(self, layout: Layout) -> str | None:
        if layout.nodes == 1:
            return None
        able = self.engine.executors_over_nodes
        if self.executor.value not in able:
            return (
                f"executor {self.executor.value} of vLLM {self.engine.version} stays on one node; over "
                f"{layout.nodes} nodes it is {' or '.join(able)}"
            )
        if layout.data > 1 and self.executor is Executor.RAY:
            return "executor ray runs no data-parallel ranks over nodes; executor mp does"
        return None

    def capability_violation(self, gpu: Gpu) -> str | None:
        """Whether the GPU lacks what the checkpoint's quantization needs."""
        scheme = self.model.quantization
        if scheme is None:
            return None
        least = (self._least or LEAST_CAPABILITY).get(scheme.method, 0)
        if gpu.capability < least:
            return (
                f"{scheme.method} needs compute capability {least / 10}, {gpu.name} has {gpu.capability / 10}"
            )
        if scheme.integer_activations and gpu.capability >= FIRST_WITHOUT_INT8:
            return (
                f"8-bit integer activations run below compute capability {FIRST_WITHOUT_INT8 / 10} only, "
                f"{gpu.name} has {gpu.capability / 10}; an FP8 checkpoint of the model runs there"
            )
        return None

    def _tensor_violations(self, tensor: int) -> Iterator[str]:
        if tensor == 1:
            return
        for kind in self.model.kinds:
            yield from self._mixer_violations(kind.mixer, tensor)
        for _, matrix in self._matrices:
            if (
                matrix.part in {Part.MLP, Part.SHARED}
                and matrix.split is not Split.REPLICATED
                and _split_width(matrix) % tensor
            ):
                yield f"{matrix.name} has width {_split_width(matrix)}, which does not divide by TP {tensor}"
        vocabulary = padded_vocabulary(self.model.vocab_size)
        if vocabulary % tensor:
            yield f"the padded vocabulary of {vocabulary} does not divide by TP {tensor}"
        scheme = self.model.quantization
        if scheme is not None and scheme.method == "bitsandbytes" and scheme.bits == 8:
            yield f"8-bit bitsandbytes weights cannot be split, so TP {tensor} is refused"

    def _mixer_violations(self, mixer: Mixer | None, tensor: int) -> Iterator[str]:
        match mixer:
            case Attention() as a:
                yield from _head_violations(a.heads, a.kv_heads, tensor)
                if tensor > a.kv_heads and self.model.architecture in self.engine.kv_heads_not_copied:
                    yield f"{self.model.architecture} cannot copy its {a.kv_heads} KV heads to TP {tensor}"
            case LatentAttention() as a if a.heads % tensor:
                yield f"{a.heads} attention heads do not divide by TP {tensor}"
            case Mamba() as m if m.heads % tensor:
                yield f"{m.heads} Mamba heads do not divide by TP {tensor}"
            case Mamba() as m if m.groups % tensor and m.groups > 1:
                yield f"{m.groups} Mamba groups do not divide by TP {tensor}"
            case LinearAttention() as a if a.value_heads % tensor or a.key_heads % tensor:
                yield f"{a.key_heads} key and {a.value_heads} value heads do not divide by TP {tensor}"
            case _:
                pass

    def _expert_violation(self, layout: Layout) -> str | None:
        moe = self.model.experts
        if moe is None:
            if layout.expert:
                return "expert parallelism needs a mixture of experts"
            if layout.data > 1:
                return "data-parallel ranks of a dense model are whole copies: use replicas"
            return None
        ranks = layout.tensor * layout.data
        if layout.expert:
            return f"{moe.count} experts over {ranks} ranks leave some empty" if ranks > moe.count else None
        if layout.tensor > moe.count and self._bound_by_experts():
            return f"TP {layout.tensor} exceeds the {moe.count} experts; expert parallelism is off"
        if moe.intermediate % ranks:
            return f"expert width {moe.intermediate} does not divide by {ranks} ranks"
        return None

    def _bound_by_experts(self) -> bool:
        # Others cut every expert further; older versions were not read for it.
        return not self._least or self.model.architecture in self.engine.tensor_within_experts

    def _alignment_violation(self, layout: Layout) -> str | None:
        key = (layout.tensor, layout.expert_tensor)
        if key not in self._alignment:
            self._alignment[key] = self._misalignment(layout)
        return self._alignment[key]

    def _misalignment(self, layout: Layout) -> str | None:
        scheme = self.model.quantization
        if scheme is None or scheme.experts_only or (scheme.block is None and scheme.group_size is None):
            return None
        for kind, matrix in self._matrices:
            if matrix.part in {Part.VECTOR, Part.ROUTER} or matrix.name in kind.unquantized:
                continue
            ranks = layout.expert_tensor if matrix.part is Part.EXPERT else layout.tensor
            block = None if _is_merged(kind, matrix) else scheme.block
            found = _misaligned(matrix, ranks, block, scheme.group_size)
            if found is not None:
                return found
        return None


def _head_violations(heads: int, kv_heads: int, tensor: int) -> Iterator[str]:
    if heads % tensor:
        yield f"{heads} attention heads do not divide by TP {tensor}"
    if kv_heads % tensor and tensor % kv_heads:
        yield f"{kv_heads} KV heads and TP {tensor} do not divide one another"


def _is_merged(kind: LayerKind, matrix: Matrix) -> bool:
    # vLLM makes one matrix of several and lets their blocks be cut (layers/linear.py,
    # allow_fp8_block_shape_mismatch). Those of latent and linear attention stay matrices of their own.
    mixed = matrix.part is Part.MIXER and matrix.split is Split.COLUMN
    return mixed and isinstance(kind.mixer, Attention | Mamba)


def _split_width(matrix: Matrix) -> int:
    return matrix.outputs if matrix.split is Split.COLUMN else matrix.inputs


def _misaligned(matrix: Matrix, ranks: int, block: tuple[int, int] | None, group: int | None) -> str | None:
    if ranks == 1 or matrix.split in {Split.REPLICATED, Split.KV_HEADS}:
        return None
    width = _split_width(matrix)
    share = width / ranks
    if block is not None:
        unit = block[0] if matrix.split is Split.COLUMN else block[1]
        what = f"the FP8 block of {unit}"
    elif matrix.split is Split.ROW and group is not None:
        unit, what = group, f"the quantization group of {group}"
    else:
        return None
    if share % unit:
        size = "intermediate_size" if matrix.part is not Part.MIXER else matrix.name
        return f"{size} {width} over {ranks} ranks is {share:g}, not a multiple of {what}"
    return None
