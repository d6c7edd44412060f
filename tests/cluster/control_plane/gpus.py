"""What a node with each kind of GPU looks like in a real cluster.

The labels are those of NVIDIA's GPU feature discovery. Memory is the total that ``nvidia-smi`` prints in MiB,
which is what ``nvidia.com/gpu.memory`` carries; it is a little less than the nominal size. The table is kept
apart from the planner's catalogue on purpose: the tests would otherwise judge the catalogue by itself.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpu:
    """One kind of GPU and the usual node around it."""

    name: str
    product: str
    """Value of ``nvidia.com/gpu.product``: the driver's product name with dashes for blanks."""
    memory_mib: int
    family: str
    compute_capability: tuple[int, int]
    per_node: int
    cpus: int
    memory_gib: int

    def labels(self, count: int) -> dict[str, str]:
        """Labels that GPU feature discovery writes on a node with ``count`` of them."""
        major, minor = self.compute_capability
        prefix = "nvidia.com"
        return {
            f"{prefix}/gpu.present": "true",
            f"{prefix}/gpu.product": self.product,
            f"{prefix}/gpu.count": str(count),
            f"{prefix}/gpu.memory": str(self.memory_mib),
            f"{prefix}/gpu.family": self.family,
            f"{prefix}/gpu.compute.major": str(major),
            f"{prefix}/gpu.compute.minor": str(minor),
            f"{prefix}/gpu.replicas": "1",
            f"{prefix}/gpu.sharing-strategy": "none",
            f"{prefix}/mig.capable": "true" if self.family in {"ampere", "hopper", "blackwell"} else "false",
            f"{prefix}/cuda.driver-version.major": "580",
            f"{prefix}/cuda.runtime-version.major": "13",
        }


FAMILIES = {
    (8, 0): "ampere",
    (8, 6): "ampere",
    (8, 9): "ada-lovelace",
    (9, 0): "hopper",
    (10, 0): "blackwell",
}
"""Architecture by compute capability, as GPU feature discovery spells it."""


def _gpu(
    name: str, product: str, memory_mib: int, capability: tuple[int, int], *, per_node: int = 8
) -> NodeGpu:
    # CPUs and memory as in the vendors' 8-GPU servers, in proportion for smaller ones.
    return NodeGpu(
        name=name,
        product=product,
        memory_mib=memory_mib,
        family=FAMILIES[capability],
        compute_capability=capability,
        per_node=per_node,
        cpus=24 * per_node,
        memory_gib=256 * per_node,
    )


NODE_GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("H100-SXM-80GB", "NVIDIA-H100-80GB-HBM3", 81559, (9, 0)),
        _gpu("H100-PCIE-80GB", "NVIDIA-H100-PCIe", 81559, (9, 0)),
        _gpu("H100-NVL-94GB", "NVIDIA-H100-NVL", 95830, (9, 0)),
        _gpu("H200-SXM-141GB", "NVIDIA-H200", 143771, (9, 0)),
        _gpu("B200-SXM-180GB", "NVIDIA-B200", 183359, (10, 0)),
        _gpu("A100-SXM-80GB", "NVIDIA-A100-SXM4-80GB", 81920, (8, 0)),
        _gpu("A100-SXM-40GB", "NVIDIA-A100-SXM4-40GB", 40960, (8, 0)),
        _gpu("A100-PCIE-80GB", "NVIDIA-A100-80GB-PCIe", 81920, (8, 0)),
        _gpu("A100-PCIE-40GB", "NVIDIA-A100-PCIE-40GB", 40960, (8, 0)),
        _gpu("L40S", "NVIDIA-L40S", 46068, (8, 9)),
        _gpu("L4", "NVIDIA-L4", 23034, (8, 9)),
        _gpu("A10", "NVIDIA-A10", 23028, (8, 6), per_node=4),
    )
}


def node_gpu(name: str) -> NodeGpu:
    """Look a GPU up by its catalogue name. Raises KeyError that lists the known names."""
    if name not in NODE_GPUS:
        raise KeyError(f"no simulated node for GPU {name!r}; known: {', '.join(NODE_GPUS)}")
    return NODE_GPUS[name]
