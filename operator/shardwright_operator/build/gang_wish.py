"""What a revision keeps of the wish to be placed as a whole: enough to make each group's object from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardwright_operator.api.gang import Gang
from shardwright_operator.api.pod_spec import SchedulingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class GangWish:
    """Who places the groups of a revision."""

    gang: Gang
    queue: str = ""
    """Kueue's LocalQueue or Volcano's Queue; empty where none was named."""
    priority_class: str = ""
    topology_key: str = ""

    @classmethod
    def of(cls, scheduling: SchedulingSpec) -> "GangWish | None":
        """The wish of a spec; None without one."""
        if scheduling.gang is None:
            return None
        return cls(
            gang=scheduling.gang,
            queue=scheduling.queue_name or "",
            priority_class=scheduling.priority_class_name or "",
            topology_key=scheduling.topology_key or "",
        )

    def to_wire(self) -> dict[str, str]:
        """Plain JSON for a revision; what is empty is left out."""
        given = {
            "scheduler": str(self.gang),
            "queue": self.queue,
            "priorityClassName": self.priority_class,
            "topologyKey": self.topology_key,
        }
        return {name: value for name, value in given.items() if value}

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "GangWish":
        """The inverse of ``to_wire``. Raises ValueError for a scheduler of a newer operator."""
        return cls(
            gang=Gang(data["scheduler"]),
            queue=data.get("queue", ""),
            priority_class=data.get("priorityClassName", ""),
            topology_key=data.get("topologyKey", ""),
        )
