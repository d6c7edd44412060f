"""A short hash of what the user asked for.

A stored plan stays in force until this changes. It must not move with the cluster (pools found on nodes come
and go), with the catalogue (a corrected fact restarts nothing) or with new options that nobody set: only the
model's name or given config, and values that differ from their defaults, are part of it.
"""

import hashlib
import json
from dataclasses import fields, is_dataclass
from enum import StrEnum

from shardwright_planner.request import (
    EngineOptions,
    Pins,
    PlanRequest,
    ServiceLevel,
    Workload,
)


def input_hash(request: PlanRequest) -> str:
    """Sixteen hex digits over the planning inputs of the resource."""
    stated = {
        "model": request.model.name,
        "config": request.model.source_digest,
        "hardware": request.hardware_key,
        "workload": _stated(request.workload, Workload()),
        "serviceLevel": _stated(request.service_level, ServiceLevel()),
        "pins": _stated(request.pins, Pins()),
        "engine": _stated(request.engine, EngineOptions()),
    }
    text = json.dumps(stated, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stated(record: object, default: object) -> dict[str, object]:
    assert is_dataclass(record)  # noqa: S101  every part of a request is one
    result: dict[str, object] = {}
    for item in fields(record):
        value = getattr(record, item.name)
        if value != getattr(default, item.name):
            result[item.name] = _plain(value)
    return result


def _plain(value: object) -> object:
    if isinstance(value, StrEnum):
        return value.value
    return list(value) if isinstance(value, tuple) else value
