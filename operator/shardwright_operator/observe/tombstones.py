"""Objects that were seen to go: a late event or answer must not bring them back, and sometimes they live on.

To a watch that selects by label, an object whose label somebody removes is deleted, and no LIST with that
selector has it either. It is seen again at a later version, or when it is read by its name.
"""

import sys
from collections import OrderedDict
from typing import NamedTuple, Protocol

KEPT = 10_000

_FOR_GOOD = sys.maxsize


class _Sight(Protocol):
    @property
    def uid(self) -> str: ...

    @property
    def resource_version(self) -> int: ...


class _Tombstone(NamedTuple):
    gone: int
    """Version at which a watch or a LIST no longer had the object."""
    seen: int
    """A read of this version or a later one proves that it is there."""


class Tombstones:
    """Versions of living objects by UID, and of others at their end; of these the oldest are forgotten."""

    def __init__(self) -> None:
        self._by_uid: OrderedDict[str, _Tombstone] = OrderedDict()
        self._living: dict[str, int] = {}
        """Newest version seen of each living object."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def bury(self, uid: str, version: int = 0, *, seen: int = 0) -> None:
        """Remember that an object went at a version, last ``seen`` at another; version 0 says: for good."""
        self._living.pop(uid, None)
        gone = version or _FOR_GOOD
        self._by_uid[uid] = _Tombstone(gone=gone, seen=seen or gone)
        while len(self._by_uid) > KEPT:
            self._by_uid.popitem(last=False)

    def is_new(self, uid: str, version: int) -> bool:
        """Whether a sight of an object is of a living one, and newer than any before; then it is kept."""
        if not self.admits(uid, version) or self._living.get(uid, 0) >= version:
            return False
        self._living[uid] = version
        return True

    def succeeds(self, sight: _Sight, old: _Sight) -> bool:
        """Whether a sight is newer than what stands under the name; of two objects, one is gone for good.

        Which of them, the versions tell and not the order of arrival: a resource was made anew while the
        watches were cut, and a late answer about the former one would take its place. Nothing
        would have brought that back, as its version was known.
        """
        newer = sight.resource_version > old.resource_version
        if sight.uid != old.uid:
            self.bury(old.uid if newer else sight.uid)
        return newer

    def admits(self, uid: str, version: int, *, read: bool = False) -> bool:
        """Whether a sight of an object at a version is news of a living one; then its end is forgotten.

        ``read`` says that it was just read by its name, and does not come from a watch, a LIST or an answer
        to a write. The answer to a deletion carries the version of the end itself.
        """
        tombstone = self._by_uid.get(uid)
        if tombstone is None:
            return True
        alive = version >= tombstone.seen if read else version > tombstone.gone
        if alive:
            del self._by_uid[uid]
        return alive
