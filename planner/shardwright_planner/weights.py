"""Bytes of weights on each rank, layer by layer, and the work that reading them makes.

One object per model and way of splitting holds the sums per kind of layer; a stage is then a dot product of
its layer counts with these sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from shardwright_planner.engine import EngineFacts
from shardwright_planner.kernels import kernel_count
from shardwright_planner.layout import Layout
from shardwright_planner.model import Attention, Experts, LayerKind, ModelFacts
from shardwright_planner.partition import stage_ranges
from shardwright_planner.tensor_scale import weight_scale
from shardwright_planner.tensors import Matrix, Part, Split, layer_matrices

_BLOCKS = frozenset({Part.MLP, Part.SHARED})


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCost:
    """One kind of layer on one rank. Arithmetic is in operations per token that the rank computes."""

    resident_bytes: int  # all of it, as loaded
    read_bytes: int  # read in every step: all but the routed experts
    expert_bytes: int  # of one local expert
    local_experts: int
    operations_16bit: float
    operations_narrow: float  # in the width of quantized activations, where the GPU has units for it
    expert_operations: float  # of one token in one expert, on this rank's share of it
    reduces: int  # AllReduces in the layer when TP > 1
    kernels: int  # launched in a step


def reduces_of(kind: LayerKind) -> int:
    """AllReduces of a layer when TP > 1: after the mixer, after the feed-forward block.

    A norm over all query heads together needs one more for its variance (models/minimax_m2.py).
    """
    shared_norm = isinstance(kind.mixer, Attention) and kind.mixer.qk_norm_width > 0
    return (kind.mixer is not None) + (kind.feed_forward is not None) + shared_norm


def padded_vocabulary(size: int) -> int:
    """Vocabulary padded to 64 rows, as vLLM stores it (layers/vocab_parallel_embedding.py)."""
    return -(-size // 64) * 64


def parameter_count(model: ModelFacts) -> int:
    """Parameters that plain decoding loads, without encoders: the number model cards quote."""
    counted = [sum(m.parameters for m in layer_matrices(kind, model.hidden_size)) for kind in model.kinds]
    embedding = model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2)
    return sum(counted[kind] for kind in model.layers) + embedding + model.hidden_size


class WeightTable:
    """Sizes of one model's weights, in the dtype and quantization they are loaded with.

    Some of the engine's model classes hold more than their share; without ``engine`` none does.
    """

    def __init__(self, model: ModelFacts, dtype_bytes: int, engine: EngineFacts | None = None) -> None:
        self.model = model
        self.dtype_bytes = dtype_bytes
        kind = model.architecture
        self._embedding_everywhere = engine is not None and kind in engine.embedding_on_every_stage
        self._head_everywhere = engine is not None and kind in engine.head_on_every_stage
        self._shared_whole = engine is not None and kind in engine.shared_experts_whole
        self.matrices = tuple(layer_matrices(kind, model.hidden_size) for kind in model.kinds)
        self._widest: dict[int, int] = {}
        self._costs: dict[tuple[int, int, int, bool], tuple[KindCost, ...]] = {}
        self._counts: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = {}
        self._scale = weight_scale(model, self.matrices, self._rate, dtype_bytes)

    def costs(self, layout: Layout) -> tuple[KindCost, ...]:
        """Per kind of layer, for this way of splitting."""
        whole = self._shared_whole and layout.splits_sequences
        key = (layout.tensor, layout.expert_tensor, layout.expert_ranks, whole)
        found = self._costs.get(key)
        if found is None:
            found = tuple(self._cost(i, *key) for i in range(len(self.matrices)))
            self._costs[key] = found
        return found

    def widest(self, tensor: int) -> int:
        """Elements per token at the widest place of any layer on one rank.

        That is what a block's first matrices put out, and for an MLP their product besides.
        """
        if tensor not in self._widest:
            self._widest[tensor] = max(map(partial(_widest, tensor=tensor), self.matrices))
        return self._widest[tensor]

    def embedding_bytes(self, tensor: int) -> int:
        """The embedding on one rank."""
        size = self._vocabulary_rows(tensor) * self.model.hidden_size * self.dtype_bytes
        return int(size * self._scale.embedding)

    def head_bytes(self, tensor: int) -> int:
        """The language-model head on one rank, in 16 bits unless the scheme covers it."""
        rate = self.model.head_rate(self.dtype_bytes)
        return int(self._vocabulary_rows(tensor) * self.model.hidden_size * rate * self._scale.head)

    def tower_bytes(self, tensor: int) -> int:
        """The encoder on one rank of the first stage."""
        tower, measured = self.model.tower, self.model.tensor_bytes
        if tower is None:
            # An encoder that the config does not size but the checkpoint holds, whole on every rank.
            return int(measured.tower.loaded_bytes(self.dtype_bytes)) if measured else 0
        whole = tower.parameters - tower.split_parameters
        size = (whole + tower.split_parameters // tensor) * self.dtype_bytes
        return int(size * self._scale.tower)

    def ends_bytes(self, layout: Layout, stage: int) -> int:
        """What a stage holds besides layers: embedding and encoders first, head and final norm last.

        Some model classes make embedding or head on every stage, needed there or not.
        """
        first, last, tied = stage == 0, stage == layout.pipeline - 1, self.model.tied_embeddings
        total = 0
        # A tied head needs the embedding's rows again on its own stage (models/llama.py).
        if first or self._embedding_everywhere or (last and tied):
            total += self.embedding_bytes(layout.tensor)
        if first:
            total += self.tower_bytes(layout.tensor)
        if (last or self._head_everywhere) and not tied:
            total += self.head_bytes(layout.tensor)
        if last:
            total += self.model.hidden_size * self.dtype_bytes
        return total

    def stage_bytes(self, layout: Layout, stage: int, counts: Sequence[int]) -> int:
        """Weights on each rank of a stage that has ``counts`` layers of each kind."""
        layers = sum(c.resident_bytes * n for c, n in zip(self.costs(layout), counts, strict=True))
        return layers + self.ends_bytes(layout, stage)

    def stage_counts(self, partition: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Layers of each kind on every stage of a partition."""
        found = self._counts.get(partition)
        if found is None:
            found = tuple(self.model.counts(start, stop) for start, stop in stage_ranges(partition))
            self._counts[partition] = found
        return found

    def total_bytes(self) -> int:
        """Weights in all, as loaded once."""
        alone = Layout(tensor=1)
        return self.stage_bytes(alone, 0, self.model.counts(0, self.model.layer_count))

    def _vocabulary_rows(self, tensor: int) -> int:
        return -(-padded_vocabulary(self.model.vocab_size) // tensor)

    def _rate(self, kind: LayerKind, matrix: Matrix) -> float:
        scheme = self.model.quantization
        if scheme is None or matrix.part in {Part.VECTOR, Part.ROUTER} or matrix.name in kind.unquantized:
            return self.dtype_bytes
        if scheme.experts_only and matrix.part is not Part.EXPERT:
            return self.dtype_bytes
        if matrix.part is Part.EXPERT and scheme.expert_bytes_per_parameter is not None:
            return scheme.expert_bytes_per_parameter
        if matrix.part in _BLOCKS and scheme.block_bytes_per_parameter is not None:
            return scheme.block_bytes_per_parameter
        return scheme.bytes_per_parameter

    def _cost(
        self, index: int, tensor: int, expert_tensor: int, expert_ranks: int, shared_whole: bool
    ) -> KindCost:
        kind = self.model.kinds[index]
        moe = kind.feed_forward if isinstance(kind.feed_forward, Experts) else None
        read = 0.0
        per_expert = expert_operations = 0.0
        wide = narrow = 0.0
        dense_scale, expert_scale = self._scale.kinds[index]
        for matrix in self.matrices[index]:
            rate = self._rate(kind, matrix)
            if matrix.part is Part.EXPERT:
                size = self._expert_elements(matrix, expert_tensor)
                per_expert += size * rate * expert_scale
                expert_operations += 2.0 * matrix.outputs * matrix.inputs / expert_tensor
                continue
            is_whole = shared_whole and matrix.part is Part.SHARED
            elements = rank_elements(matrix, 1 if is_whole else tensor)
            read += elements * rate * (1.0 if matrix.derived else dense_scale)
            if matrix.part is not Part.VECTOR:
                # Whole matrices meet only the rank's own share of the tokens.
                operations = 2.0 * elements / (tensor if is_whole else 1)
                if self._is_narrow(matrix, rate):
                    narrow += operations
                else:
                    wide += operations
        local = -(-moe.count // expert_ranks) if moe else 0
        return KindCost(
            resident_bytes=int(read + local * per_expert),
            read_bytes=int(read),
            expert_bytes=int(per_expert),
            local_experts=local,
            operations_16bit=wide,
            operations_narrow=narrow,
            expert_operations=expert_operations,
            reduces=reduces_of(kind),
            kernels=kernel_count(kind, self.model.quantization),
        )

    def _is_narrow(self, matrix: Matrix, rate: float) -> bool:
        scheme = self.model.quantization
        if scheme is None or scheme.activation_bits > 8 or rate >= self.dtype_bytes:
            return False
        # Other activations than the scheme's own are priced as if they were widened.
        own = scheme.block_activation_bits if matrix.part in _BLOCKS else None
        return own in {None, scheme.activation_bits}

    def _expert_elements(self, matrix: Matrix, ranks: int) -> float:
        # MXFP4 kernels pad each rank's width to 128 and the hidden size to 256 (fused_moe/oracle/mxfp4.py).
        scheme = self.model.quantization
        pad = scheme.pad_multiple if scheme else 1
        inward = matrix.split is Split.COLUMN
        width = matrix.outputs if inward else matrix.inputs
        hidden = matrix.inputs if inward else matrix.outputs
        share = -(-width // ranks)
        if pad > 1:
            share, hidden = _up(share, pad), _up(hidden, 2 * pad)
        bias = (share if inward else hidden) if matrix.bias else 0
        return float(share * hidden + bias)


def _widest(matrices: Sequence[Matrix], tensor: int) -> int:
    mixer = mlp = 0
    for matrix in matrices:
        if matrix.part is Part.MIXER and matrix.split is not Split.ROW:
            mixer += rank_elements(matrix, tensor) // matrix.inputs
        elif matrix.part in {Part.MLP, Part.SHARED} and matrix.split is Split.COLUMN:
            mlp += matrix.outputs // tensor
    return max(mixer, mlp + mlp // 2)


def rank_elements(matrix: Matrix, tensor: int) -> int:
    """Elements of a matrix on one tensor rank; a KV head is copied once there are more ranks than heads."""
    outputs, inputs = matrix.outputs, matrix.inputs
    match matrix.split:
        case Split.COLUMN:
            outputs = -(-outputs // tensor)
        case Split.ROW:
            inputs = -(-inputs // tensor)
        case Split.KV_HEADS:
            outputs = outputs // matrix.heads * max(1, -(-matrix.heads // tensor))
        case Split.REPLICATED:
            pass
    return matrix.copies * (outputs * inputs + (outputs if matrix.bias else 0))


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
