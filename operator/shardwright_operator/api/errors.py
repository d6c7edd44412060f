"""The one exception of the API layer: a spec that cannot be acted on, as data and as one sentence.

The CRD's schema refuses most bad input at once. What it cannot express, and what reaches the command line
with no API server in between, ends here; the same sentence becomes a condition's message and a line on
stderr.
"""

from collections.abc import Mapping

from shardwright_operator.api.constants import Reason
from shardwright_planner.errors import PlanInputError


class Described(str):
    """Words about a value that stand in for it, as in "an object": shown without quotes."""

    __slots__ = ()


class SpecError(ValueError):
    """A field of the resource that has no usable value.

    Args:
        field: path of the field, for example ``spec.parallelism.tensor``.
        value: what was given; None for a field that is missing.
        limit: what is allowed, with numbers; continues the sentence "FIELD is VALUE, but ...".
        remedy: what to do instead; an imperative clause without a full stop.
        reason: reason of the condition that tells it.
    """

    def __init__(
        self,
        *,
        field: str,
        value: object,
        limit: str,
        remedy: str,
        reason: Reason = Reason.INVALID_SPEC,
    ) -> None:
        self.field = field
        self.value = value
        self.limit = limit
        self.remedy = remedy
        self.reason = reason
        super().__init__(field, value, limit, remedy, reason)

    def __str__(self) -> str:
        return f"{self.field} is {_shown(self.value)}, but {self.limit}; {self.remedy}."

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuilt, (self.field, self.value, self.limit, self.remedy, self.reason))

    def under(self, path: str) -> "SpecError":
        """The same error seen from further up: ``tensor`` under ``spec.parallelism``."""
        field = ".".join(part for part in (path, self.field) if part)
        return SpecError(
            field=field, value=self.value, limit=self.limit, remedy=self.remedy, reason=self.reason
        )


def from_planner(error: PlanInputError, reason: Reason = Reason.INVALID_SPEC) -> SpecError:
    """The planner's refusal in the resource's words: its fields are those of the spec without ``spec.``."""
    field = error.field if error.field.startswith("spec.") else f"spec.{error.field}"
    return SpecError(field=field, value=error.value, limit=error.limit, remedy=error.remedy, reason=reason)


def described_type(value: object) -> Described:
    """What kind of value stands where an object should, in YAML's words."""
    kinds = ((bool, "true or false"), (str, "a text"), (int | float, "a number"), (list, "a list"))
    return Described(next((words for kind, words in kinds if isinstance(value, kind)), type(value).__name__))


def _rebuilt(field: str, value: object, limit: str, remedy: str, reason: Reason) -> SpecError:
    return SpecError(field=field, value=value, limit=limit, remedy=remedy, reason=reason)


def _shown(value: object) -> str:
    if value is None:
        return "not given"
    if isinstance(value, Mapping):
        return "an object"
    # Python's spelling of a boolean would puzzle somebody who wrote YAML.
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = repr(value) if isinstance(value, str) and not isinstance(value, Described) else text
    return text if len(text) <= 120 else f"{text[:117]}..."
