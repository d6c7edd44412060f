"""The GPU catalogue: ``gpus.json``, read once.

Data sheets state gigabytes and teraflops; from here on everything is bytes and operations.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from shardwright_planner.gpu import GIB, Gpu


def _gpu(row: Mapping[str, Any]) -> Gpu:
    major, minor = row["computeCapability"].split(".")
    return Gpu(
        name=row["name"],
        memory_bytes=int(row["memoryGib"] * GIB),
        nominal_memory_bytes=row["nominalGb"] * 10**9,
        bandwidth_bytes_per_s=row["memoryTBPerS"] * 1e12,
        flops_16bit=row["tflops16bit"] * 1e12,
        flops_8bit=_scaled(row["tflops8bit"]),
        flops_int8=_scaled(row["topsInt8"]),
        flops_4bit=_scaled(row["tflops4bit"]),
        compute_capability=(int(major), int(minor)),
        nvlink_bytes_per_s=row["nvlinkGBPerS"] * 1e9,
        nvlink_domain=row["nvlinkDomain"],
        pcie_bytes_per_s=row["pcieGBPerS"] * 1e9,
        source=row["source"],
        aliases=tuple(row.get("aliases", ())),
        product_labels=tuple(row.get("productLabels", ())),
        gke_accelerators=tuple(row.get("gkeAccelerators", ())),
        aws_names=tuple(row.get("awsNames", ())),
    )


def _scaled(value: float | None) -> float | None:
    return None if value is None else value * 1e12


def _read() -> tuple[Gpu, ...]:
    text = files("shardwright_planner").joinpath("gpus.json").read_text(encoding="utf-8")
    return tuple(map(_gpu, json.loads(text)["gpus"]))


GPUS: tuple[Gpu, ...] = _read()
