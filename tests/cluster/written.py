"""What the operator wrote, by the API server's audit log."""

from collections.abc import Iterable
from datetime import datetime

import pytest

from control_plane.audit import WRITE_VERBS, AuditEvent, read_audit
from control_plane.cluster import Cluster


def writes_of(cluster: Cluster, user: str, since: datetime, namespace: str | None = None) -> list[AuditEvent]:
    """Requests of a user that change something; the Lease apart."""
    if cluster.audit_log is None:
        pytest.skip("the given cluster's audit log cannot be read")
    return read_audit(
        cluster.audit_log, user=user, since=since, namespace=namespace, verbs=WRITE_VERBS, leases=False
    )


def described(events: Iterable[AuditEvent]) -> list[str]:
    """Requests in short, for comparisons and failures."""
    return [f"{event.verb} {event.full_resource} {event.name}" for event in events]
