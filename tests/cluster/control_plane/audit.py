"""Reading the API server's audit log.

It is the one witness of what a program really asked for: how many requests, of which kind, and with which
rights. A program's own counters would miss what its libraries do.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})

_CREATED = 201


class Right(NamedTuple):
    """What an RBAC rule grants: a verb on a resource of a group, the core group being the empty text."""

    group: str
    resource: str
    """With its subresource, if any: ``pods/status``."""
    verb: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One request that the API server has answered, or a watch that it has opened."""

    received: datetime
    user: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    uri: str
    user_agent: str

    @property
    def is_write(self) -> bool:
        return self.verb in WRITE_VERBS

    @property
    def full_resource(self) -> str:
        """Resource with its subresource, as RBAC writes it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def is_lease(self) -> bool:
        return self.group == "coordination.k8s.io" and self.resource == "leases"

    def rights(self) -> tuple[Right, ...]:
        """Rights that the request needed; an apply that created its object needed ``create`` as well."""
        if not self.resource:
            return ()
        needed = Right(self.group, self.full_resource, self.verb)
        if self.verb == "patch" and self.code == _CREATED:
            return (needed, needed._replace(verb="create"))
        return (needed,)


def account_user(namespace: str, account: str) -> str:
    """Return a ServiceAccount's user name in the log."""
    return f"system:serviceaccount:{namespace}:{account}"


def read_audit(
    log: Path,
    *,
    user: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    namespace: str | None = None,
    verbs: Iterable[str] | None = None,
    resource: str | None = None,
    leases: bool = True,
) -> list[AuditEvent]:
    """Read the requests that pass all filters, in the order of the log.

    ``since`` (inclusive) and ``until`` (exclusive) are aware datetimes of when the request was received.
    ``resource`` includes its subresources. With ``leases=False`` requests on Leases are left out.
    """
    wanted = None if verbs is None else frozenset(verbs)
    return [
        event
        for event in _events(log)
        if (user is None or event.user == user)
        and (since is None or event.received >= since)
        and (until is None or event.received < until)
        and (namespace is None or event.namespace == namespace)
        and (wanted is None or event.verb in wanted)
        and (resource is None or event.resource == resource)
        and (leases or not event.is_lease)
    ]


def now() -> datetime:
    """Return the moment to pass as ``since``: the API server of this machine reads the same clock."""
    return datetime.now(UTC)


def count_by_kind(events: Iterable[AuditEvent]) -> Counter[tuple[str, str]]:
    """Count requests by (verb, resource with subresource)."""
    return Counter((event.verb, event.full_resource) for event in events)


def rights_used(events: Iterable[AuditEvent]) -> frozenset[Right]:
    """Rights that these requests needed.

    Not in the log, as no request shows it: ``update`` on an owner's ``finalizers`` subresource, which
    OwnerReferencesPermissionEnforcement asks for when ``blockOwnerDeletion`` is set.
    """
    return frozenset(right for event in events for right in event.rights())


def _events(log: Path) -> Iterator[AuditEvent]:
    try:
        text = log.open(encoding="utf-8")
    except FileNotFoundError:
        return
    with text:
        for line in text:
            # The last line may be half written.
            if not line.endswith("\n"):
                return
            record = json.loads(line)
            if _counts(record):
                yield _event(record)


def _counts(record: dict[str, Any]) -> bool:
    """Tell whether a record is a request's one record that counts.

    A long-running request leaves one when its answer begins and one when it ends, which may be never; any
    other leaves only the second.
    """
    stage = record["stage"]
    if record["verb"] == "watch":
        return bool(stage == "ResponseStarted")
    return stage in {"ResponseComplete", "Panic"}


def _event(record: dict[str, Any]) -> AuditEvent:
    target = record.get("objectRef") or {}
    return AuditEvent(
        received=datetime.fromisoformat(record["requestReceivedTimestamp"]),
        user=record["user"].get("username", ""),
        verb=record["verb"],
        group=target.get("apiGroup", ""),
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=(record.get("responseStatus") or {}).get("code", 0),
        uri=record["requestURI"],
        user_agent=record.get("userAgent", ""),
    )
