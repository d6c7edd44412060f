"""Where one group stands: made by the decision, read by the status, the events and the metrics."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shardwright_operator.api.constants import GroupPhase, Reason

MESSAGE_CHARACTERS = 512
"""Of a group's message: a hundred groups stand in one status. Ready's own message has it whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group in one pass."""

    index: int
    phase: GroupPhase
    reason: Reason
    message: str
    revision: str
    current: bool
    """Whether its pods are those of the target revision."""
    restarts: int
    members: int
    ready_members: int
    nodes: tuple[str, ...] = ()
    first_failure: Mapping[str, Any] | None = None
    started: datetime | None = None
    """When it was first started since it last served."""

    @property
    def available(self) -> bool:
        """Whether it serves: rank 0 answers and every member of its formation is there."""
        return self.phase is GroupPhase.READY

    @property
    def exists(self) -> bool:
        """Whether the group counts as a replica for the scale subresource."""
        return self.phase is not GroupPhase.TERMINATING

    def to_wire(self) -> dict[str, Any]:
        """As it stands in ``status.groups``."""
        wire: dict[str, Any] = {
            "index": self.index,
            "phase": str(self.phase),
            "reason": str(self.reason),
            "message": self.message[:MESSAGE_CHARACTERS],
            "revision": self.revision,
            "restarts": self.restarts,
            "members": self.members,
            "readyMembers": self.ready_members,
            "nodes": list(self.nodes),
        }
        if self.first_failure is not None:
            wire["firstFailure"] = dict(self.first_failure)
        return wire
