"""One kind of GPU: what CUDA reports, what the data sheet promises, and every name it goes by."""

from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One kind of GPU.

    ``memory_bytes`` is the total that CUDA reports to the engine, below the nominal figure; vLLM takes its
    utilization of that number. Rates are dense peaks (no sparsity), in operations and bytes per second.
    Link rates are one way, per GPU.
    """

    name: str
    memory_bytes: int
    nominal_memory_bytes: int
    bandwidth_bytes_per_s: float
    flops_16bit: float
    flops_8bit: float | None  # FP8; None where the hardware has no FP8 units
    flops_int8: float | None
    flops_4bit: float | None  # FP4
    compute_capability: tuple[int, int]
    nvlink_bytes_per_s: float  # 0 where there is no NVLink
    nvlink_domain: int  # GPUs that reach each other over NVLink; 1 where there is none
    pcie_bytes_per_s: float
    source: str
    aliases: tuple[str, ...] = ()
    product_labels: tuple[str, ...] = ()  # values of nvidia.com/gpu.product
    gke_accelerators: tuple[str, ...] = ()  # values of cloud.google.com/gke-accelerator
    aws_names: tuple[str, ...] = ()  # Karpenter's instance-gpu-name, and instance families

    @property
    def capability(self) -> int:
        """Compute capability as vLLM writes it: 90 for 9.0."""
        return self.compute_capability[0] * 10 + self.compute_capability[1]

    def narrow_flops(self, bits: int, *, integer: bool) -> float | None:
        """Rate of products of such narrow numbers; None without units for them: they are widened."""
        if integer:
            return self.flops_int8 if bits == 8 else None
        return self.flops_4bit if bits <= 4 else self.flops_8bit

    @property
    def is_a100(self) -> bool:
        """Whether vLLM's batch defaults treat it as an A100 (they look at the device's name)."""
        return self.name.startswith("A100")

    def link_bytes_per_s(self, group: int) -> float:
        """One-way rate per GPU between ``group`` GPUs of one node: NVLink in its domain, else PCIe."""
        return self.nvlink_bytes_per_s if 1 < group <= self.nvlink_domain else self.pcie_bytes_per_s

    def names(self) -> tuple[str, ...]:
        """Every name this GPU answers to."""
        return (self.name, *self.aliases, *self.product_labels, *self.gke_accelerators, *self.aws_names)
