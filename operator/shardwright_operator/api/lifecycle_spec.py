"""``spec.rollout`` and ``spec.recovery``: how groups are replaced, on purpose and after a failure.

The defaults stand here and not in the schema: a default in the schema is written into every object and can
never be improved.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.fields import ApiRecord, Flag, Int, Period, rule, rules
from shardwright_operator.api.quantities import DURATION_PATTERN, parse_duration_s

DEFAULT_MAX_UNAVAILABLE = 1
DEFAULT_MAX_SURGE = 0
DEFAULT_HISTORY_LIMIT = 10
DEFAULT_MAX_RESTARTS = 10
DEFAULT_BACKOFF = "10s"
DEFAULT_MAX_BACKOFF = "10m"
DEFAULT_RESET_AFTER = "1h"

_FORM = DURATION_PATTERN.replace("\\", "\\\\")


class OnDrain(StrEnum):
    """What becomes of a group when one of its nodes is cordoned."""

    RECREATE = "Recreate"
    BLOCK = "Block"


class RolloutSpec(ApiRecord):
    """How a changed spec, or the drain of a node, reaches running groups."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.maxUnavailable) || self.maxUnavailable > 0"
                " || (has(self.maxSurge) && self.maxSurge > 0)",
                "maxUnavailable 0 needs maxSurge of at least 1: no group could ever be replaced",
            )
        )
    )

    paused: Flag | None = Field(
        default=None, description="Hold changes back: the plan is shown, running groups stay as they are."
    )
    max_unavailable: Annotated[Int, Field(ge=0, le=999)] | None = Field(
        default=None,
        description="Groups that may be down at the same time for a rollout or a drain; "
        f"{DEFAULT_MAX_UNAVAILABLE} when absent. One of several groups always stays up.",
    )
    max_surge: Annotated[Int, Field(ge=0, le=999)] | None = Field(
        default=None,
        description="Groups beyond replicas that a rollout may add while whole groups of GPUs are free; "
        f"{DEFAULT_MAX_SURGE} when absent.",
    )
    on_drain: OnDrain | None = Field(
        default=None,
        description="Recreate (when absent) moves a whole group off a cordoned node when it fits elsewhere; "
        "Block leaves it, and its PodDisruptionBudget holds the drain up.",
    )
    progress_deadline: Period | None = Field(
        default=None,
        description="Longest time for a new group to serve before the rollout counts as stalled and takes "
        "nothing more down; computed from the size of the weights when absent.",
    )
    history_limit: Annotated[Int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description=f"Revisions kept besides those that groups run; {DEFAULT_HISTORY_LIMIT} when absent.",
    )

    @property
    def is_paused(self) -> bool:
        """Whether changes are held back."""
        return bool(self.paused)

    @property
    def surge_groups(self) -> int:
        """Groups that a rollout may add."""
        return self.max_surge or DEFAULT_MAX_SURGE

    @property
    def moves_on_drain(self) -> bool:
        """Whether a group leaves a cordoned node."""
        return self.on_drain is not OnDrain.BLOCK

    @property
    def progress_deadline_s(self) -> float | None:
        """Longest time for a new group to serve in seconds, if the user gave one."""
        return None if self.progress_deadline is None else parse_duration_s(self.progress_deadline)

    @property
    def revisions_kept(self) -> int:
        """Revisions kept besides those that groups run."""
        return DEFAULT_HISTORY_LIMIT if self.history_limit is None else self.history_limit

    @model_validator(mode="after")
    def _can_go_on(self) -> "RolloutSpec":
        if self.max_unavailable == 0 and self.surge_groups == 0:
            raise SpecError(
                field="maxUnavailable",
                value=0,
                limit="maxSurge is 0 too, so that no group could ever be replaced",
                remedy="raise maxUnavailable or maxSurge",
            )
        return self


class RecoverySpec(ApiRecord):
    """How often and how fast a broken group is started again."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                f"!has(self.backoff) || !has(self.maxBackoff) || !self.backoff.matches('{_FORM}')"
                f" || !self.maxBackoff.matches('{_FORM}')"
                " || duration(self.backoff) <= duration(self.maxBackoff)",
                "backoff may not exceed maxBackoff",
            )
        )
    )

    max_restarts: Annotated[Int, Field(ge=0, le=1000)] | None = Field(
        default=None,
        description=f"Restarts of a group before it is left failed; {DEFAULT_MAX_RESTARTS} when absent.",
    )
    backoff: Period | None = Field(
        default=None,
        description=f"Wait before the first restart, doubled each time; {DEFAULT_BACKOFF} when absent.",
    )
    max_backoff: Period | None = Field(
        default=None, description=f"Longest wait before a restart; {DEFAULT_MAX_BACKOFF} when absent."
    )
    reset_after: Period | None = Field(
        default=None,
        description=f"Time of being ready that makes restarts forgotten; {DEFAULT_RESET_AFTER} when absent.",
    )
    startup_timeout: Period | None = Field(
        default=None,
        description="Longest time from start to ready; computed from the size of the weights when absent.",
    )

    @property
    def restart_limit(self) -> int:
        """Restarts of a group before it is left failed."""
        return DEFAULT_MAX_RESTARTS if self.max_restarts is None else self.max_restarts

    @property
    def backoff_s(self) -> float:
        """Wait before the first restart in seconds."""
        return parse_duration_s(self.backoff or DEFAULT_BACKOFF)

    @property
    def max_backoff_s(self) -> float:
        """Longest wait before a restart in seconds; never below the first one."""
        return max(self.backoff_s, parse_duration_s(self.max_backoff or DEFAULT_MAX_BACKOFF))

    @property
    def reset_after_s(self) -> float:
        """Time of being ready in seconds after which restarts are forgotten."""
        return parse_duration_s(self.reset_after or DEFAULT_RESET_AFTER)

    @property
    def startup_timeout_s(self) -> float | None:
        """Longest time from start to ready in seconds, if the user gave one."""
        return None if self.startup_timeout is None else parse_duration_s(self.startup_timeout)

    @model_validator(mode="after")
    def _grows(self) -> "RecoverySpec":
        if self.backoff and self.max_backoff and self.backoff_s > parse_duration_s(self.max_backoff):
            raise SpecError(
                field="backoff",
                value=self.backoff,
                limit=f"maxBackoff is {self.max_backoff}",
                remedy="raise maxBackoff or lower backoff",
            )
        return self
