"""What differs between two pod templates, in words that a person would use.

Values of environment variables are not shown: the words end in logs of pipelines, and a user may have put a
password into a plain variable.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MOST_SHOWN = 60
"""Characters of a value."""


def pod_changes(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[str]:
    """Every difference, a line each."""
    if old is None or new is None:
        return [] if old is new else ["the number of pods in a group"]
    return list(_differences(old, new, ""))


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys((*old, *new)):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _list_differences(old, new, path)
    elif ".env." in path or path.startswith("env."):
        yield f"{_short(path)}: {'another value' if old is not None and new is not None else _came(old)}"
    else:
        yield f"{_short(path)}: {_shown(old)} -> {_shown(new)}"


def _list_differences(old: Sequence[Any], new: Sequence[Any], path: str) -> Iterator[str]:
    if all(isinstance(item, str) for item in (*old, *new)):
        yield from _argument_differences(old, new)
        return
    before, after = _named(old), _named(new)
    for name in dict.fromkeys((*before, *after)):
        mine, other = before.get(name), after.get(name)
        if mine is None or other is None:
            yield f"{_short(path)}: {name} {_came(mine)}"
        else:
            yield from _differences(mine, other, f"{path}.{name}")


def _argument_differences(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    before, after = _arguments(old), _arguments(new)
    for name in dict.fromkeys((*before, *after)):
        mine, other = before.get(name), after.get(name)
        if mine == other:
            continue
        if mine is None or other is None:
            value = mine or other
            yield f"{name}{f' {value}' if value else ''} {_came(mine)}"
        else:
            yield f"{name} {mine} -> {other}"


def _arguments(words: Sequence[str]) -> dict[str, str]:
    """Options with their values; words without an option stand for themselves."""
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--") and word != "--":
            name = word
            count = 2
            while name in found:  # the launcher and the engine both have a --port
                name = f"{word} ({count})"
                count += 1
            found[name] = ""
        elif name:
            found[name] = f"{found[name]} {word}".strip()
            name = "" if word == "--" else name
        else:
            found[word] = ""
    return found


def _named(items: Sequence[Any]) -> dict[str, Any]:
    return {
        str(item.get("name") or item.get("key") or index) if isinstance(item, Mapping) else str(index): item
        for index, item in enumerate(items)
    }


def _short(path: str) -> str:
    return path.removeprefix("spec.").replace("containers.", "").replace("metadata.", "")


def _came(old: object) -> str:
    return "is new" if old is None else "is gone"


def _shown(value: object) -> str:
    if value is None:
        return "none"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
