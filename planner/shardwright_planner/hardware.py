"""Finding a GPU by any of its names.

A cluster names one and the same board in four ways (NVIDIA's product label, a cloud's accelerator label, an
instance family, what people type), so one look-up serves all of them.
"""

from functools import cache

from shardwright_planner.errors import PlanInputError
from shardwright_planner.gpu import GIB, Gpu
from shardwright_planner.gpus import GPUS

__all__ = ["GIB", "GPUS", "Gpu", "find_gpu"]


def find_gpu(name: str) -> Gpu:
    """The GPU of that name, alias, product label or cloud accelerator name; case and spaces do not matter.

    Raises:
        PlanInputError: for a name that the catalogue does not have; the message lists the known GPUs.
    """
    found = _by_name().get(_folded(name))
    if found is None:
        raise PlanInputError(
            field="hardware.gpu",
            value=name,
            limit=f"the known GPUs are {', '.join(gpu.name for gpu in GPUS)}",
            remedy="use one of these names, or the node's nvidia.com/gpu.product label",
        )
    return found


def _folded(name: str) -> str:
    # "NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3" and "h100_80gb_hbm3" are one name. Feature discovery
    # appends "-SHARED" to shared devices and "-MIG-..." to slices: those stay unknown, since a slice has
    # neither the memory nor the links of the board.
    return name.strip().lower().replace(" ", "-").replace("_", "-").removeprefix("nvidia-")


@cache
def _by_name() -> dict[str, Gpu]:
    return {_folded(name): gpu for gpu in reversed(GPUS) for name in gpu.names()}
