"""Every name under which a cluster knows a GPU leads to the right board."""

import pytest

from shardwright_planner import GPUS, PlanInputError, find_gpu


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("H100-SXM-80GB", "H100-SXM-80GB"),
        ("h100", "H100-SXM-80GB"),
        ("h100-80gb", "H100-SXM-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM-80GB"),
        ("nvidia-h100-80gb", "H100-SXM-80GB"),
        ("nvidia-h100-mega-80gb", "H100-SXM-80GB"),
        ("NVIDIA-H100-PCIe", "H100-PCIe-80GB"),
        ("NVIDIA-H100-NVL", "H100-NVL-94GB"),
        ("NVIDIA-H200", "H200-SXM-141GB"),
        ("nvidia-h200-141gb", "H200-SXM-141GB"),
        ("NVIDIA-B200", "B200-SXM-180GB"),
        ("nvidia-b200", "B200-SXM-180GB"),
        ("NVIDIA-A100-SXM4-80GB", "A100-SXM-80GB"),
        ("nvidia-a100-80gb", "A100-SXM-80GB"),
        ("NVIDIA-A100-SXM4-40GB", "A100-SXM-40GB"),
        ("nvidia-tesla-a100", "A100-SXM-40GB"),
        ("p4d", "A100-SXM-40GB"),
        ("p4de", "A100-SXM-80GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-PCIe-80GB"),
        ("NVIDIA-A100-PCIE-40GB", "A100-PCIe-40GB"),
        ("NVIDIA-L40S", "L40S"),
        ("NVIDIA-L4", "L4"),
        ("nvidia-l4", "L4"),
        ("NVIDIA-A10", "A10"),
        ("a10g", "A10G"),
        ("NVIDIA-B300-SXM6-AC", "B300-SXM-288GB"),
        ("NVIDIA-GB200", "GB200-186GB"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX-PRO-6000-Blackwell"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("NVIDIA-RTX-A6000", "RTX-A6000"),
        ("NVIDIA-A40", "A40"),
        ("NVIDIA-L40", "L40"),
        ("NVIDIA-H20-3e", "H20-3e-141GB"),
    ],
)
def test_a_name_is_found(name, want):
    assert find_gpu(name).name == want


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(PlanInputError) as caught:
        find_gpu("TPU-v5")
    assert str(caught.value) == (
        f"hardware.gpu is 'TPU-v5', but the known GPUs are {', '.join(gpu.name for gpu in GPUS)}; use one of "
        "these names, or the node's nvidia.com/gpu.product label."
    )


def test_no_two_boards_share_a_name():
    folded = [
        name.lower().replace(" ", "-").removeprefix("nvidia-") for gpu in GPUS for name in set(gpu.names())
    ]
    by_gpu = {(name, gpu.name) for gpu in GPUS for name in [n.lower() for n in gpu.names()]}
    assert len({name for name, _ in by_gpu}) == len(by_gpu)
    assert all(folded)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_figures_are_within_reason(gpu):
    assert 0.85 * gpu.nominal_memory_bytes < gpu.memory_bytes < 1.075 * gpu.nominal_memory_bytes
    assert gpu.flops_16bit > 50e12
    assert (gpu.flops_8bit is None) == (gpu.capability < 89)
    assert (gpu.nvlink_domain > 1) == (gpu.nvlink_bytes_per_s > 0)
    assert any(kind in gpu.source for kind in ("data sheet", "product brief", "white paper"))
