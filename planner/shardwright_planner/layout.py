"""A layout: the parallel sizes of one replica and how its ranks lie on nodes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes of one candidate. Ranks of one tensor group are neighbours, stages come next, data ranks last."""

    tensor: int
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    nodes: int = 1
    gpus_per_node: int = 1
    partition: tuple[int, ...] = ()  # layers per stage
    own_partition: bool = True  # vLLM would split the same way by itself

    @property
    def world(self) -> int:
        """GPUs of the replica."""
        return self.tensor * self.pipeline * self.data

    @property
    def crosses_nodes(self) -> bool:
        """Whether a tensor group spans nodes."""
        return self.tensor > self.gpus_per_node

    @property
    def expert_ranks(self) -> int:
        """Ranks that whole experts are spread over; 1 without expert parallelism."""
        return self.tensor * self.data if self.expert else 1

    @property
    def expert_tensor(self) -> int:
        """Ranks that each expert is cut over (vLLM flattens TP and DP when expert parallelism is off)."""
        return 1 if self.expert else self.tensor * self.data

    @property
    def splits_sequences(self) -> bool:
        """Whether tensor ranks share out the tokens before the experts instead of the experts' matrices.

        vLLM's sequence-parallel experts (config/parallel.py, use_sequence_parallel_moe).
        """
        return self.expert and self.tensor > 1 and self.data > 1

    def label(self) -> str:
        """Sizes as people write them: ``TP8 x PP2``."""
        parts = [f"TP{self.tensor}"]
        if self.pipeline > 1:
            parts.append(f"PP{self.pipeline}")
        if self.data > 1:
            parts.append(f"DP{self.data}")
        text = " x ".join(parts)
        return f"{text} with EP{self.expert_ranks}" if self.expert else text
