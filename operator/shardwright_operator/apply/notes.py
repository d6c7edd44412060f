"""What the server made of earlier writes, so that a write that cannot hold is not repeated for ever.

Four cases: the server refuses a manifest; a mutating webhook alters it each time; somebody else undoes it
each time; a CRD that is older than the operator cuts fields out of the status. All are kept in memory only:
after a restart one more attempt is made, and the case is known again.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shardwright_operator.api.constants import Label
from shardwright_operator.build.digest import digest
from shardwright_operator.decide.decision import Apply
from shardwright_operator.observe.views import ChildKind, Key, WriteNote

FIRST_DELAY_S = 10.0
LONGEST_DELAY_S = 300.0
LONGEST_CONFLICT_DELAY_S = 60.0
"""Between two looks at a name that somebody else holds: no watch shows an object without our label."""
QUIET_S = 600.0
"""After so long without a write of the same content, the next one counts as the first again."""

Place = tuple[ChildKind, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    note: WriteNote
    attempts: int
    at: datetime


class WriteLedger:
    """Notes by resource, kind and name."""

    def __init__(self) -> None:
        self._entries: defaultdict[Key, dict[Place, _Entry]] = defaultdict(dict)
        self._cut: dict[Key, tuple[str, str]] = {}

    def of(self, key: Key) -> Mapping[Place, WriteNote]:
        """Notes that a decision must know about."""
        return {
            place: entry.note
            for place, entry in self._entries.get(key, {}).items()
            if entry.note.refused or entry.note.altered or entry.note.retry_at is not None
        }

    def refused(self, key: Key, write: Apply, message: str, *, foreign: bool, now: datetime) -> WriteNote:
        """The server refused the write; it is tried again after 10 s, 20 s, ... 5 minutes.

        Another content under the same name counts on: a leader set carries the time of its start, so that no
        two of its tries are alike, and it was tried every 10 s for ever.
        """
        attempts = self._attempts(key, write, now, alike=False)
        note = _note(write, refused=message, foreign=foreign, retry_at=now + _delay(attempts))
        self._keep(key, write, note, attempts, now)
        return note

    def written(
        self, key: Key, write: Apply, *, altered: str | None, answer: str, now: datetime
    ) -> WriteNote:
        """The server took the write. The first repetition of the same content is free, later ones wait."""
        attempts = self._attempts(key, write, now)
        note = _note(write)
        if altered:
            note = replace(note, altered=altered, answer=answer)
        if attempts > 1:
            note = replace(note, retry_at=now + _delay(attempts - 1), undone=write.why, repeats=attempts - 1)
        self._keep(key, write, note, attempts, now)
        return note

    def deleted(self, key: Key, kind: ChildKind, name: str) -> None:
        """We deleted the object ourselves: writing it anew is no repetition."""
        self._entries.get(key, {}).pop((kind, name), None)

    def conflicts_due(self, key: Key, now: datetime) -> tuple[Place, ...]:
        """Names that somebody else held when they were last looked at, and that may be looked at again."""
        return tuple(
            place
            for place, entry in self._entries.get(key, {}).items()
            if entry.note.foreign and entry.note.retry_at is not None and entry.note.retry_at <= now
        )

    def still_foreign(self, key: Key, place: Place, now: datetime) -> None:
        """The name is held as before: look again later."""
        entry = self._entries[key][place]
        delay = min(_delay(entry.attempts + 1), timedelta(seconds=LONGEST_CONFLICT_DELAY_S))
        self._entries[key][place] = _Entry(
            note=replace(entry.note, retry_at=now + delay), attempts=entry.attempts + 1, at=now
        )

    def status_written(self, key: Key, status: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
        """The server took the status; returns whether it kept another one than it was given."""
        if kept == status:
            self._cut.pop(key, None)
            return False
        self._cut[key] = (digest(status), digest(kept))
        return True

    def was_cut_to(self, key: Key, status: Mapping[str, Any], standing: Mapping[str, Any]) -> bool:
        """Whether the status that stands is what the server made of this very one: all that can be had."""
        return key in self._cut and self._cut[key] == (digest(status), digest(standing))

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._entries.pop(key, None)
        self._cut.pop(key, None)

    def _attempts(self, key: Key, write: Apply, now: datetime, *, alike: bool = True) -> int:
        """How often it was tried with this one; ``alike`` counts the same content only, else all refusals."""
        entry = self._entries.get(key, {}).get((write.kind, write.name))
        if entry is None or (entry.note.digest != write.digest and (alike or not entry.note.refused)):
            return 1
        return 1 if now - entry.at > timedelta(seconds=QUIET_S) else entry.attempts + 1

    def _keep(self, key: Key, write: Apply, note: WriteNote, attempts: int, now: datetime) -> None:
        self._entries[key][write.kind, write.name] = _Entry(note=note, attempts=attempts, at=now)


def _note(
    write: Apply, *, refused: str = "", foreign: bool = False, retry_at: datetime | None = None
) -> WriteNote:
    return WriteNote(
        kind=write.kind,
        name=write.name,
        digest=write.digest,
        refused=refused,
        foreign=foreign,
        pods_hash=write.manifest["metadata"].get("labels", {}).get(Label.PODS, ""),
        retry_at=retry_at,
    )


def _delay(attempts: int) -> timedelta:
    return timedelta(seconds=min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(attempts - 1, 16)))
