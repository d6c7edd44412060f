"""Typed reading of a config.json, whose keys have several names and whose values may be anything.

Model families call the same size by different names, and wrappers put the language model's keys one level
down. Reading through one small class keeps every refusal a sentence that names the key.
"""

from collections.abc import Mapping, Sequence
from typing import Never

from shardwright_planner.errors import PlanInputError

MAX_SIZE = 2**31


class Keys:
    """A section of a config.json."""

    def __init__(self, values: Mapping[str, object], path: str = "model.config") -> None:
        self.values = values
        self.path = path

    def has(self, *names: str) -> bool:
        """Whether any of these keys is there with a value other than null."""
        return any(self.values.get(name) is not None for name in names)

    def size(self, *names: str) -> int:
        """A positive whole number under the first of these names that is there.

        Raises:
            PlanInputError: if none is there, or it is not a positive whole number.
        """
        found = self.optional_size(*names)
        if found is None or found == 0:
            raise PlanInputError(
                field=f"{self.path}.{names[0]}",
                value=found,
                limit="a plan needs it as a positive whole number",
                remedy="give the model's whole config.json",
            )
        return found

    def optional_size(self, *names: str) -> int | None:
        """The same, or None if none of the names is there; zero is allowed."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SIZE:
                self._refuse(name, value)
            if value != int(value):
                self._refuse(name, value)
            return int(value)
        return None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A boolean; null and absent give the default."""
        value = self.values.get(name)
        return default if value is None else value is True

    def text(self, *names: str) -> str:
        """A string under the first of these names that has one, else empty."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, str):
                return value
        return ""

    def names(self, name: str) -> tuple[str, ...]:
        """A list of strings; anything else gives an empty one."""
        value = self.values.get(name)
        if isinstance(value, Sequence) and not isinstance(value, str):
            return tuple(str(item) for item in value)
        return ()

    def sizes(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; anything else gives an empty one."""
        value = self.values.get(name)
        if isinstance(value, Sequence) and not isinstance(value, str):
            return tuple(item for item in value if isinstance(item, int))
        return ()

    def section(self, *names: str) -> "Keys | None":
        """A nested object under the first of these names that has one."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, Mapping):
                return Keys(value, f"{self.path}.{name}")
        return None

    def _refuse(self, name: str, value: object) -> Never:
        raise PlanInputError(
            field=f"{self.path}.{name}",
            value=value,
            limit=f"it must be a whole number from 0 to {MAX_SIZE}",
            remedy="check the config against the model's own config.json",
        )
