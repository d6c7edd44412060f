"""Conditions of Kubernetes' objects, ours among them: one place that looks them up by their type."""

from collections.abc import Mapping
from typing import Any


def condition_of(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """The condition of that type; empty where there is none, which says as little as Unknown."""
    return next((c for c in status.get("conditions") or () if c.get("type") == type_), {})


def holds(status: Mapping[str, Any], type_: str) -> bool:
    """Whether the condition of that type is there and ``True``."""
    return condition_of(status, type_).get("status") == "True"
