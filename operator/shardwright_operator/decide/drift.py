"""Does a live object still say what we applied, and if not, what is the first difference in words?

The comparison runs over the desired manifest only: fields that the server defaults or that other managers own
do not count as drift. That mirrors server-side apply, so that an unchanged world needs no write at all.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from shardwright_operator.api.gang import kind_of
from shardwright_operator.build.digest import digest
from shardwright_operator.decide.decision import Apply
from shardwright_operator.observe.views import ChildKind, ChildView, WriteNote

_ITEM_KEYS = ("uid", "name", "mountPath", "containerPort", "port")
"""Fields by which the items of the API's keyed lists are told apart; the first that differs in all serves."""

_WHOLE = frozenset(
    {"selector", "podSelector", "namespaceSelector", "labelSelector", "matchLabels", "nodeSelector"}
)
"""Fields that the server takes as one: a key that somebody adds changes what is selected, and is drift."""

ABSENT = "it does not exist"
"""Why a missing child is written; no field of it was changed."""

_IDENTITY = frozenset({"apiVersion", "kind"})


def difference(desired: Any, live: Any, path: str = "") -> str | None:
    """First difference between a desired value and the live one, or None when the live one satisfies it."""
    # Most of a live object is as it was applied. What is wholly so is told at once; only where the server has
    # added defaults is it gone into, field by field.
    if desired == live or (desired == "" and live is None):
        return None
    # Plain JSON types only: a test against the abstract ones would be a fifth of a pass's time.
    if isinstance(desired, dict):
        return _mapping_difference(desired, live, path)
    if isinstance(desired, (list, tuple)):
        return _list_difference(desired, live, path)
    if ".env[" in path:
        # The words end in the log, and a user may have put a password into a plain variable.
        return f"{path}: wanted another value"
    return f"{path}: wanted {json.dumps(desired)}, found {json.dumps(live)}"


def needed_write(
    manifest: Mapping[str, Any], child: ChildView | None, note: WriteNote | None, now: datetime
) -> Apply | None:
    """The write that brings the live object to the manifest, or None when there is nothing to do (now).

    A write that was just refused, that a webhook altered, or that somebody undid a moment ago is not repeated
    until its note's time has come: this is what keeps a fight over a field from becoming a hot loop.
    """
    metadata = manifest["metadata"]
    why = ABSENT if child is None else _child_difference(manifest, child)
    if why is None:
        return None
    wanted = digest(manifest)
    if note is not None and note.digest == wanted:
        if note.retry_at is not None and now < note.retry_at:
            return None
        if child is not None and note.answer and note.answer == body_digest(child):
            return None
    return Apply(
        kind=ChildKind(kind_of(manifest)),
        name=metadata["name"],
        manifest=manifest,
        owned=child is not None,
        digest=wanted,
        why=why,
        uid=child.uid if child is not None else None,
    )


def body_digest(child: ChildView) -> str:
    """Digest of what drift is looked for in, as the server holds it."""
    return hashlib.sha256(child.packed_body).hexdigest()[:16]


def _child_difference(manifest: Mapping[str, Any], child: ChildView) -> str | None:
    live = child.body
    for name, value in manifest.items():
        if name in _IDENTITY:
            continue
        if name == "metadata":
            value = {k: v for k, v in value.items() if k not in {"name", "namespace"}}  # noqa: PLW2901
        if found := difference(value, live.get(name), name):
            return found
    return None


def _mapping_difference(desired: Mapping[str, Any], live: Any, path: str) -> str | None:
    if not desired and live is None:
        return None
    if not isinstance(live, dict):
        return f"{path}: wanted an object, found {json.dumps(live)}"
    if path.rpartition(".")[2] in _WHOLE and (added := sorted(live.keys() - desired.keys())):
        return f"{path}.{added[0]}: not wanted, found {json.dumps(live[added[0]])}"
    for name, value in desired.items():
        if found := difference(value, live.get(name), f"{path}.{name}" if path else name):
            return found
    return None


def _list_difference(desired: Sequence[Any], live: Any, path: str) -> str | None:
    if not desired and live is None:
        return None
    if not isinstance(live, list | tuple):
        return f"{path}: wanted a list, found {json.dumps(live)}"
    key = _item_key(desired)
    if key is None:
        if len(desired) != len(live):
            return f"{path}: wanted {len(desired)} items, found {len(live)}"
        pairs = [(str(i), item, live[i]) for i, item in enumerate(desired)]
    else:
        by_key = {item.get(key): item for item in live if isinstance(item, dict)}
        pairs = [(str(item[key]), item, by_key.get(item[key])) for item in desired]
    for label, item, other in pairs:
        if other is None:
            return f"{path}[{label}]: wanted, not found"
        if found := difference(item, other, f"{path}[{label}]"):
            return found
    return None


def _item_key(items: Sequence[Any]) -> str | None:
    if not all(isinstance(item, dict) for item in items):
        return None
    return next(
        (
            key
            for key in _ITEM_KEYS
            if items and len({item.get(key) for item in items} - {None}) == len(items)
        ),
        None,
    )
