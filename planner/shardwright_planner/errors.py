"""The one exception of the library, so that every refusal can become a message without being parsed.

"Does not fit" is not an error: it is a plan with ``feasible`` False. An error means that the question itself
cannot be answered: an unknown GPU, a pinned size that the engine would refuse, a config without its sizes.
"""


class PlanInputError(ValueError):
    """An input that no plan can be made from, with the field, the value, the limit, and a way out.

    Args:
        field: the input as the resource calls it, for example ``parallelism.tensor``.
        value: what was given.
        limit: what is allowed, with numbers; continues the sentence "FIELD is VALUE, but ...".
        remedy: what to do instead; an imperative clause without a full stop.
    """

    def __init__(self, *, field: str, value: object, limit: str, remedy: str) -> None:
        self.field = field
        self.value = value
        self.limit = limit
        self.remedy = remedy
        super().__init__(field, value, limit, remedy)

    def __str__(self) -> str:
        shown = "not given" if self.value is None else _shortened(self.value)
        return f"{self.field} is {shown}, but {self.limit}; {self.remedy}."

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuilt, (self.field, self.value, self.limit, self.remedy))


def _rebuilt(field: str, value: object, limit: str, remedy: str) -> PlanInputError:
    return PlanInputError(field=field, value=value, limit=limit, remedy=remedy)


def _shortened(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
