"""From a checkpoint's real bytes to factors on the computed ones.

The config says how each matrix is split; the headers say what a layer really weighs. The computed bytes of a
layer are therefore kept in their proportions and scaled to the real sum, so that both are used for what they
know. Layers of one kind share the mean of their factors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardwright_planner.errors import PlanInputError
from shardwright_planner.gpu import GIB
from shardwright_planner.model import LayerKind, ModelFacts
from shardwright_planner.tensor_bytes import Bulk, TensorBytes
from shardwright_planner.tensors import Matrix, Part

LEAST, MOST = 0.5, 2.0
"""Beyond these factors the tensors are not those of the config."""

Rate = Callable[[LayerKind, Matrix], float]
"""Computed bytes of a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Factors on computed bytes; 1 where nothing is known."""

    kinds: tuple[tuple[float, float], ...]
    """For each kind of layer: all but the routed experts, and these."""
    embedding: float = 1.0
    head: float = 1.0
    tower: float = 1.0


def weight_scale(
    model: ModelFacts, matrices: Sequence[Sequence[Matrix]], rate: Rate, dtype_bytes: int
) -> Scale:
    """The factors for a model as it is loaded, in a type of ``dtype_bytes``.

    Raises:
        PlanInputError: for tensors that cannot be those of the model's config.
    """
    found = model.tensor_bytes
    alone = Scale(kinds=((1.0, 1.0),) * len(model.kinds))
    if found is None:
        return alone
    measure = _Measure(model, matrices, rate, dtype_bytes, found)
    if not found.layers:
        factor = _checked(model, measure.whole())
        return Scale(kinds=((factor, factor),) * len(model.kinds))
    vocabulary = model.vocab_size * model.hidden_size
    return Scale(
        kinds=tuple(measure.kind(index) for index in range(len(model.kinds))),
        embedding=measure.factor(found.embedding, vocabulary, vocabulary * dtype_bytes),
        head=1.0 if model.tied_embeddings else measure.head(vocabulary),
        tower=measure.tower(),
    )


class _Measure:
    def __init__(
        self,
        model: ModelFacts,
        matrices: Sequence[Sequence[Matrix]],
        rate: Rate,
        dtype_bytes: int,
        found: TensorBytes,
    ) -> None:
        self._model, self._matrices, self._rate = model, matrices, rate
        self._dtype_bytes, self._found = dtype_bytes, found
        # A checkpoint in 16 bits that is quantized while loading is measured in parameters: what becomes of
        # each is the scheme's affair.
        self._by_bytes = found.is_quantized

    def kind(self, index: int) -> tuple[float, float]:
        """Factors of one kind of layer: all but its routed experts, and these."""
        places = [place for place, kind in enumerate(self._model.layers) if kind == index]
        factors = []
        for bulks, expert in ((self._found.layers, False), (self._found.experts, True)):
            real = Bulk(
                elements=sum(bulks[place].elements for place in places),
                fixed_bytes=sum(bulks[place].fixed_bytes for place in places),
            )
            parameters, size = self._computed(index, expert=expert)
            many = len(places)
            factors.append(_checked(self._model, self.factor(real, parameters * many, size * many)))
        return factors[0], factors[1]

    def head(self, parameters: int) -> float:
        """Factor of the head."""
        size = parameters * self._model.head_rate(self._dtype_bytes)
        return self.factor(self._found.head, parameters, size)

    def tower(self) -> float:
        """Factor of the encoder beside the language model."""
        tower = self._model.tower
        if tower is None:
            return 1.0
        return self.factor(self._found.tower, tower.parameters, tower.parameters * self._dtype_bytes)

    def whole(self) -> float:
        """One factor for everything, from the size of the files alone."""
        model = self._model
        size = 0.0
        for index, count in enumerate(model.counts(0, model.layer_count)):
            size += count * sum(self._computed(index, expert=expert)[1] for expert in (False, True))
        ends = model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2)
        beside = model.extra_parameters + (model.tower.parameters if model.tower else 0)
        size += (ends + beside) * self._dtype_bytes
        return self._found.total_bytes / size if self._found.total_bytes else 1.0

    def factor(self, real: Bulk, parameters: float, size: float) -> float:
        """Real over computed; 1 where either is nothing."""
        if self._by_bytes:
            loaded = real.loaded_bytes(self._dtype_bytes)
            return loaded / size if loaded and size else 1.0
        return real.elements / parameters if real.elements and parameters else 1.0

    def _computed(self, index: int, *, expert: bool) -> tuple[int, float]:
        kind = self._model.kinds[index]
        own = [m for m in self._matrices[index] if (m.part is Part.EXPERT) == expert and not m.derived]
        parameters = sum(matrix.parameters for matrix in own)
        return parameters, sum(matrix.parameters * self._rate(kind, matrix) for matrix in own)


def _checked(model: ModelFacts, factor: float) -> float:
    if LEAST <= factor <= MOST:
        return factor
    size = model.tensor_bytes.total_bytes if model.tensor_bytes else 0
    raise PlanInputError(
        field="model.config",
        value=model.name,
        limit=f"its tensors ({size / GIB:.1f} GiB in all) weigh {factor:.2f} times what the config says",
        remedy="give the config.json and the files of one and the same checkpoint",
    )
