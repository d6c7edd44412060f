"""How a pass says that it must be tried again, without that being a fault."""


class RetryLaterError(Exception):
    """A pass could not end, for an expected reason: run the key again after its back-off.

    ``error`` is the class under which the metrics count it; empty for what is part of normal life, such as
    a decision that rested on an outdated view.
    """

    def __init__(self, why: str, *, error: str = "", at_least_s: float = 0.0) -> None:
        super().__init__(why)
        self.why = why
        self.error = error
        self.at_least_s = at_least_s
