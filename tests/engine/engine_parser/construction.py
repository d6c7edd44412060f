"""A model's layers as one rank would have them, made by vLLM without weights, peers or GPUs.

The configuration checks little about splitting: that heads divide, that there are experts. Whether widths,
KV heads, state groups and quantization blocks can be split is found out only when a rank makes its layers,
minutes after the pods have started. So the layers are made here: on torch's ``meta`` device, which has shapes
and no memory, with groups that know their size and are never spoken through. Kernels of linear layers that
only a GPU has are replaced by one that computes nothing, so that the checks of shapes around them run; those
of expert layers are chosen together with their weights' layout and cannot be.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.kernels import linear
from vllm.model_executor.layers.fused_moe.expert_map_manager import ExpertMapManager
from vllm.model_executor.model_loader.utils import initialize_model

GROUPS = ("_WORLD", "_TP", "_PP", "_DP", "_EP", "_EPLB", "_ETP", "_DCP", "_PCP")


class _Group:
    """What model code asks a process group for while layers are made."""

    def __init__(self, size: int, rank: int) -> None:
        self.world_size = size
        self.rank = self.rank_in_group = self.local_rank = rank
        self.ranks = list(range(size))
        self.is_first_rank = rank == 0
        self.is_last_rank = rank == size - 1
        self.first_rank, self.last_rank = 0, size - 1
        self.device = torch.device("cpu")
        self.device_group = self.cpu_group = self
        self.device_communicator = None
        self.use_device_communicator = False
        self.unique_name = "shape-only"

    def size(self) -> int:
        return self.world_size


class _NoKernel:
    """Stands for a kernel that this machine has not: any method does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.config = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def stand_in_for_kernels() -> None:
    """Let linear layers be made whose kernels are for GPUs only; once per process."""
    # Which experts a rank has is computed with values, not shapes.
    ExpertMapManager.__init__ = _with_values(ExpertMapManager.__init__)
    for name, fallback in (
        ("choose_scaled_mm_linear_kernel", _NoKernel),
        ("choose_mp_linear_kernel", _NoKernel),
        ("init_nvfp4_linear_kernel", _NoKernel()),
    ):
        setattr(linear, name, _or_else(getattr(linear, name), fallback))


def _or_else(choose: Callable[..., Any], fallback: object) -> Callable[..., Any]:
    def chosen(*arguments: Any, **named: Any) -> Any:
        try:
            return choose(*arguments, **named)
        except ValueError:
            return fallback

    return chosen


def _with_values(make: Callable[..., None]) -> Callable[..., None]:
    def made(*arguments: Any, **named: Any) -> None:
        with torch.device("cpu"):
            make(*arguments, **named)

    return made


def rank_bytes(config: VllmConfig, *, stage: int, tensor_rank: int) -> int:
    """Bytes of all parameters of one rank, after making its layers.

    Raises:
        Exception: whatever vLLM raises about a split that it cannot make.
    """
    parallel = config.parallel_config
    tensor, data = parallel.tensor_parallel_size, parallel.data_parallel_size
    spread = tensor * data
    groups = {
        "_WORLD": _Group(parallel.world_size, stage * tensor + tensor_rank),
        "_TP": _Group(tensor, tensor_rank),
        "_PP": _Group(parallel.pipeline_parallel_size, stage),
        "_DP": _Group(data, 0),
        "_EP": _Group(spread, tensor_rank),
        "_EPLB": _Group(spread, tensor_rank),
        "_ETP": _Group(1, 0),
        "_DCP": _Group(1, 0),
        "_PCP": _Group(1, 0),
    }
    shapes = torch.device("meta")
    with _groups(groups), _default_dtype(config.model_config.dtype), shapes, set_current_vllm_config(config):
        model = initialize_model(config)
    return sum(tensor.numel() * tensor.element_size() for tensor in model.parameters())


@contextlib.contextmanager
def _groups(groups: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(parallel_state, name) for name in GROUPS}
    for name, group in groups.items():
        setattr(parallel_state, name, group)
    try:
        yield
    finally:
        for name, group in before.items():
            setattr(parallel_state, name, group)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
