"""What a group's leader set remembers in its annotations.

The status is a view that backups drop; this is the record. It is written in the same apply as the step it
belongs to, so that an operator that dies between two steps finds out where it was.
"""

from dataclasses import dataclass
from datetime import datetime

from shardwright_operator.api.constants import Annotation
from shardwright_operator.observe.values import moment
from shardwright_operator.observe.views import ChildView


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the leader set's annotations remember of a group."""

    revision: str = ""
    members: tuple[str, ...] = ()
    attempt: int = 0
    restarts: int = 0
    not_before: str = ""
    cause: str = ""
    evidence: str = ""
    started: str = ""
    """Of the first start since the group last served, or came to its revision."""
    retry: str = ""

    @classmethod
    def of(cls, leader: ChildView) -> "Record":
        """Read from a set; whatever is missing or garbled counts as never written."""
        notes = leader.annotations
        return cls(
            revision=notes.get(Annotation.REVISION, ""),
            members=tuple(filter(None, notes.get(Annotation.MEMBERS, "").split(","))),
            attempt=_count(notes.get(Annotation.ATTEMPT, "")),
            restarts=_count(notes.get(Annotation.RESTARTS, "")),
            not_before=notes.get(Annotation.NOT_BEFORE, ""),
            cause=notes.get(Annotation.CAUSE, ""),
            evidence=notes.get(Annotation.EVIDENCE, ""),
            started=notes.get(Annotation.STARTED, ""),
            retry=notes.get(Annotation.RETRY, ""),
        )

    def annotations(self) -> dict[str, str]:
        """As they are written; what is empty is left out, and server-side apply removes it."""
        written = {
            Annotation.REVISION: self.revision,
            Annotation.MEMBERS: ",".join(self.members),
            Annotation.ATTEMPT: str(self.attempt) if self.attempt else "",
            Annotation.RESTARTS: str(self.restarts) if self.restarts else "",
            Annotation.NOT_BEFORE: self.not_before,
            Annotation.CAUSE: self.cause,
            Annotation.EVIDENCE: self.evidence,
            Annotation.STARTED: self.started,
            Annotation.RETRY: self.retry,
        }
        return {name: value for name, value in written.items() if value}

    def due_in_s(self, now: datetime) -> float:
        """Seconds until the group may start again; 0 when it may now."""
        not_before = moment(self.not_before)
        return 0.0 if not_before is None else max(0.0, (not_before - now).total_seconds())

    @property
    def started_at(self) -> datetime | None:
        """When the group was first started since it last served; None when it has served since."""
        return moment(self.started)


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 0
