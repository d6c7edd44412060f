"""Does the target revision come up where it is tried?

A rollout whose new groups do not serve within their time is stalled: nothing more is taken down for it, and a
group that breaks meanwhile comes back on the revision that is known to serve.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from shardwright_operator.api.constants import GroupPhase
from shardwright_operator.api.lifecycle_spec import RecoverySpec, RolloutSpec
from shardwright_operator.api.quantities import format_duration
from shardwright_operator.build.startup import startup_budget_s
from shardwright_operator.status.group import GroupState
from shardwright_planner import Plan

MARGIN_S = 900
"""Added to the time that an engine has for its start: for pulling an image of 10 GB and more, and for one
restart on the way."""

_BROUGHT_UP = frozenset({GroupPhase.READY, GroupPhase.DEGRADED, GroupPhase.TERMINATING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How the groups on the target revision get on."""

    overdue: GroupState | None
    deadline_s: float
    due_in_s: float | None
    """Seconds until the next group is overdue, if any is on its way."""

    @property
    def message(self) -> str:
        """What is overdue, in words."""
        if self.overdue is None:
            return ""
        state = self.overdue
        within = format_duration(self.deadline_s)
        return f"group {state.index} has not served within {within} of its start: {state.message}"


def progress_of(
    states: Iterable[GroupState], plan: Plan, rollout: RolloutSpec, recovery: RecoverySpec, now: datetime
) -> Progress:
    """Progress at a time; the deadline is the user's, or follows from the time that the engine has.

    A group that was given up needs no deadline to tell.
    """
    given = rollout.progress_deadline_s
    deadline_s = startup_budget_s(recovery, plan) + MARGIN_S if given is None else given
    deadline = timedelta(seconds=deadline_s)
    on_their_way = [
        (now if state.phase is GroupPhase.FAILED else state.started + deadline, state)
        for state in states
        if state.current and state.started is not None and state.phase not in _BROUGHT_UP
    ]
    first, overdue = min(on_their_way, key=lambda pair: pair[0], default=(None, None))
    if first is None or now < first:
        left = None if first is None else (first - now).total_seconds()
        return Progress(overdue=None, deadline_s=deadline_s, due_in_s=left)
    return Progress(overdue=overdue, deadline_s=deadline_s, due_in_s=None)
