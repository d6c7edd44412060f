"""Conditions by the rules of kstatus, which Flux, Argo CD's health scripts and ``helm --wait`` read.

``Ready`` always stands. ``Reconciling`` and ``Stalled`` are abnormal-true: present only while true. A
condition's transition time moves only when its status flips, and texts hold no counters or times that change
from pass to pass, so that an unchanged world gives an equal status and no write.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shardwright_operator.api.constants import ConditionType, Reason

_ORDER = {type_: place for place, type_ in enumerate(ConditionType)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition as it should stand now; ``status`` None means Unknown."""

    type: ConditionType
    status: bool | None
    reason: Reason
    message: str


def merge_conditions(
    wanted: Iterable[Condition], old: Iterable[Mapping[str, Any]], *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The list to write: the wanted conditions in a fixed order, with transition times kept or moved."""
    before = {str(condition.get("type")): condition for condition in old}
    merged = []
    for condition in sorted(wanted, key=lambda c: _ORDER[c.type]):
        status = "Unknown" if condition.status is None else str(condition.status)
        earlier = before.get(condition.type, {})
        unchanged = earlier.get("status") == status and earlier.get("lastTransitionTime")
        merged.append(
            {
                "type": str(condition.type),
                "status": status,
                "observedGeneration": generation,
                "lastTransitionTime": earlier["lastTransitionTime"] if unchanged else rfc3339(now),
                "reason": str(condition.reason),
                "message": condition.message,
            }
        )
    return merged


def rfc3339(time: datetime) -> str:
    """A time as Kubernetes writes it: whole seconds, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
