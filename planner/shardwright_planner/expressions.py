"""Regular expressions in time that is linear in the text, for expressions that come from outside.

Ignore lists of checkpoints hold expressions, and Python's own matcher tries every way to match: a dozen
characters keep it busy for years, and with it an operator that was given them. Here all ways are followed at
once, as a set of states, and steps that were taken before are remembered. Known is what such lists use:
characters and classes, groups, alternatives, repetitions, the ends of the text, and looking ahead.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

MOST_CHARACTERS = 1024
MOST_STATES = 4096
MOST_DEPTH = 32
MOST_COPIES = 256
MOST_LOOKS = 4


class UnknownExpressionError(ValueError):
    """An expression that is none, or uses what is not known here."""


@dataclass(frozen=True, slots=True)
class _State:
    """A character that is read, or a way to go without one: to all of ``following`` if ``holds`` does."""

    following: tuple[int, ...]
    reads: re.Pattern[str] | None = None
    holds: Callable[[str, int], bool] | None = None


@dataclass(slots=True)
class Expression:
    """A compiled expression. State 0 accepts."""

    states: list[_State] = field(default_factory=lambda: [_State(())])
    start: int = 0
    positional: bool = False  # whether any state depends on where in the text it is
    _steps: dict[tuple[frozenset[int], str], frozenset[int]] = field(default_factory=dict)

    def match(self, text: str, position: int = 0) -> bool:
        """Whether the text, from a position on, begins with what the expression describes."""
        current = self._closure(frozenset((self.start,)), text, position)
        while 0 not in current:
            if not current or position == len(text):
                return False
            character = text[position]
            position += 1
            key = (current, character)
            known = None if self.positional else self._steps.get(key)
            if known is None:
                known = self._closure(self._read(current, character), text, position)
                if not self.positional:
                    self._steps[key] = known
            current = known
        return True

    def _read(self, current: frozenset[int], character: str) -> frozenset[int]:
        return frozenset(
            following
            for state in (self.states[index] for index in current)
            if state.reads is not None and state.reads.fullmatch(character)
            for following in state.following
        )

    def _closure(self, current: frozenset[int], text: str, position: int) -> frozenset[int]:
        found: set[int] = set()
        left = list(current)
        while left:
            index = left.pop()
            if index in found:
                continue
            found.add(index)
            state = self.states[index]
            if state.reads is None and (state.holds is None or state.holds(text, position)):
                left += state.following
        return frozenset(found)

    def add(self, state: _State) -> int:
        """A new state's number."""
        if len(self.states) >= MOST_STATES:
            message = f"it takes more than {MOST_STATES} states"
            raise UnknownExpressionError(message)
        self.states.append(state)
        return len(self.states) - 1


# What is left to describe, as a function from the state that follows to the state that it begins with.
_Part = Callable[[Expression, int], int]


def compile_expression(text: str) -> Expression:
    """The expression that a text describes, in the syntax of Python's ``re``.

    Raises:
        UnknownExpressionError: for a text that is none, or needs what is not known here.
    """
    if len(text) > MOST_CHARACTERS:
        message = f"it has more than {MOST_CHARACTERS} characters"
        raise UnknownExpressionError(message)
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnknownExpressionError(str(error)) from None
    part = _Reader(text).alternatives()
    return _finished(part)


def _finished(part: _Part) -> Expression:
    expression = Expression()
    expression.start = part(expression, 0)
    expression.positional = any(state.holds is not None for state in expression.states)
    return expression


_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d*)(,?)(\d*)\})([?+]?)")
_ATOM = re.compile(r"\\[dDwWsS]|\\[^a-zA-Z0-9]|\\[nrtfv]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\]()|^$*+?]|[\]]")


class _Reader:
    """Reads a text that ``re`` takes; what it does not know it refuses by name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0
        self.looks = 0

    def alternatives(self) -> _Part:
        parts = [self._sequence()]
        while self._peek("|"):
            self.position += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _any_of(parts)

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self.position < len(self.text) and not self._peek("|") and not self._peek(")"):
            parts.append(self._repeated(self._item()))
        return _all_of(parts)

    def _item(self) -> _Part:
        if self._peek("("):
            return self._group()
        for sign, holds in (("^", _at_start), ("$", _at_end), ("\\A", _at_start), ("\\Z", _at_end)):
            if self._peek(sign):
                self.position += len(sign)
                return _where(holds)
        found = _ATOM.match(self.text, self.position)
        if found is None:
            raise self._unknown(self.text[self.position : self.position + 2])
        self.position = found.end()
        return _reading(re.compile(found.group()))

    def _group(self) -> _Part:
        for opening in ("(?:", "(?=", "(?!", "(?P<", "(?", "("):
            if self._peek(opening):
                break
        self.position += len(opening)
        if opening == "(?P<":
            self.position = self.text.index(">", self.position) + 1
        elif opening == "(?":
            raise self._unknown(f"(?{self.text[self.position]}")
        self.depth += 1
        self.looks += opening in {"(?=", "(?!"}
        if self.depth > MOST_DEPTH or self.looks > MOST_LOOKS:
            message = f"it nests more than {MOST_DEPTH} groups or looks ahead more than {MOST_LOOKS} times"
            raise UnknownExpressionError(message)
        inner = self.alternatives()
        self.depth -= 1
        self.position += 1
        if opening in {"(?=", "(?!"}:
            ahead = lru_cache(MOST_CHARACTERS)(_finished(inner).match)
            wanted = opening == "(?="
            return _where(lambda text, at: ahead(text, at) is wanted)
        return inner

    def _repeated(self, part: _Part) -> _Part:
        found = _QUANTIFIER.match(self.text, self.position)
        if found is None or found.group() == "{}" or found.group(2, 3, 4) == ("", "", ""):
            return part
        if found.group(5) == "+":
            raise self._unknown(found.group())
        self.position = found.end()
        sign, least, comma, most = found.group(1, 2, 3, 4)
        if sign is not None:
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        else:
            low = int(least or 0)
            high = (int(most) if most else None) if comma else low
        if max(low, high or 0) > MOST_COPIES:
            message = f"it repeats more than {MOST_COPIES} times"
            raise UnknownExpressionError(message)
        return _times(part, low, high)

    def _peek(self, sign: str) -> bool:
        return self.text.startswith(sign, self.position)

    def _unknown(self, what: str) -> UnknownExpressionError:
        return UnknownExpressionError(f"{what} is not known here")


def _at_start(_: str, position: int) -> bool:
    return position == 0


def _at_end(text: str, position: int) -> bool:
    return position == len(text)


def _reading(atom: re.Pattern[str]) -> _Part:
    return lambda expression, then: expression.add(_State((then,), reads=atom))


def _where(holds: Callable[[str, int], bool]) -> _Part:
    return lambda expression, then: expression.add(_State((then,), holds=holds))


def _all_of(parts: list[_Part]) -> _Part:
    def build(expression: Expression, then: int) -> int:
        for part in reversed(parts):
            then = part(expression, then)
        return then

    return build


def _any_of(parts: list[_Part]) -> _Part:
    return lambda expression, then: expression.add(_State(tuple(part(expression, then) for part in parts)))


def _times(part: _Part, low: int, high: int | None) -> _Part:
    def build(expression: Expression, then: int) -> int:
        if high is None:
            # The loop's own state is needed before what it leads to is known.
            again = expression.add(_State(()))
            expression.states[again] = _State((part(expression, again), then))
            then = again
        else:
            end = then
            for _ in range(high - low):
                then = expression.add(_State((part(expression, then), end)))
        for _ in range(low):
            # A state per copy, so that copies of nothing are bounded too.
            then = expression.add(_State((part(expression, then),)))
        return then

    return build
