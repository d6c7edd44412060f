"""The judge: a trace and an audit log in, broken promises out. It never asks the operator."""

from collections.abc import Iterable, Sequence

from control_plane.audit import AuditEvent
from rules_of_conduct import Span, false_statuses, request_storms
from rules_of_groups import (
    made_for_the_gone,
    more_gpus_than_there_are,
    side_by_side,
    taken_down_for_nothing,
    too_many_groups,
)
from sights import Sight
from violations import Violation, clock

AROUND_S = 3.0
LINES = 40


def judge(
    sights: Sequence[Sight], requests: Sequence[AuditEvent], outages: Iterable[Span]
) -> list[Violation]:
    """All rules that hold at any time, over a whole trace in order; the first broken comes first."""
    found = [
        *side_by_side(sights),
        *too_many_groups(sights),
        *more_gpus_than_there_are(sights),
        *taken_down_for_nothing(sights),
        *made_for_the_gone(sights),
        *false_statuses(sights, outages),
        *request_storms(requests),
    ]
    return sorted(found, key=lambda violation: violation.at)


def audit_lines(violation: Violation, requests: Iterable[AuditEvent]) -> list[str]:
    """The operator's requests about the same object around the moment: the last of them first to be read."""
    about = violation.about.partition("/")[0].split()[-1]
    lines = [
        f"{clock(e.received.timestamp())} {e.verb} {e.full_resource} {e.name}: {e.code}"
        for e in requests
        if abs(e.received.timestamp() - violation.at) <= AROUND_S and about in e.name
    ]
    return lines[-LINES:]
