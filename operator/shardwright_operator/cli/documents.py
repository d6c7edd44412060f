"""Files that a user gives: manifests out of YAML or standard input, and a model's config.json."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from shardwright_operator.api.constants import API_VERSION, KIND
from shardwright_operator.api.errors import described_type
from shardwright_operator.cli.console import InputError

STDIN = "-"
MOST_VALUES = 1_000_000
MOST_LEVELS = 100
# libyaml's loader where it is there: a CRD-sized file takes a fifth of the time.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_manifests(source: str) -> list[dict[str, Any]]:
    """All ModelDeployments of a file with one or several documents; other kinds beside them are passed over.

    Raises:
        InputError: for a file that cannot be read, is no YAML, or has no ModelDeployment.
    """
    text, shown = _read(source)
    try:
        documents = [document for document in yaml.load_all(text, Loader=_LOADER) if document is not None]
    except yaml.YAMLError as error:
        message = f"{shown} is not YAML: {_where(error)}."
        raise InputError(message) from None
    except (ValueError, KeyError) as error:
        # PyYAML's constructors raise them for a date with month 13, !!bool x, or 5000 digits.
        message = f"{shown} has a value that YAML cannot read: {_plainly(error)}."
        raise InputError(message) from None
    _check_size(documents, shown)
    documents = [item for document in documents for item in _items(document)]
    found = [d for d in documents if isinstance(d, dict) and d.get("kind") == KIND]
    if not found:
        kinds = sorted({_kind(document) for document in documents})
        what = f"has only {', '.join(kinds)}" if kinds else "is empty"
        message = f"{shown} {what}; give a {KIND} of {API_VERSION}."
        raise InputError(message)
    return found


def _check_size(documents: list[object], shown: str) -> None:
    # Aliases make a file of a line expand to billions of values, or contain itself.
    values, left = 0, [(document, 0) for document in documents]
    while left:
        value, depth = left.pop()
        values += 1
        if values > MOST_VALUES or depth > MOST_LEVELS:
            message = (
                f"{shown} expands to more than {MOST_VALUES} values or {MOST_LEVELS} levels; "
                "write it without aliases that repeat or contain themselves."
            )
            raise InputError(message)
        if isinstance(value, Mapping):
            left += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            left += [(item, depth + 1) for item in value]


def parse_json(text: str | bytes, shown: str) -> Any:
    """What a JSON text of somebody else's holds.

    Raises:
        InputError: for a text that is none, or nests so deep that Python's reader gives up.
    """
    try:
        return json.loads(text)
    except RecursionError:
        message = f"{shown} nests deeper than any model's file does."
    except ValueError as error:
        message = f"{shown} is not JSON: {_plainly(error)}."
    raise InputError(message)


def _plainly(error: BaseException) -> str:
    return str(error).partition(";")[0]  # after it comes what Python's developers are told


def read_config(source: str) -> dict[str, Any]:
    """A model's config.json.

    Raises:
        InputError: for a file that cannot be read or is no JSON object.
    """
    path = Path(source)
    text, shown = _read(str(path / "config.json") if source != STDIN and path.is_dir() else source)
    config = parse_json(text, shown)
    if not isinstance(config, dict):
        message = f"{shown} holds {described_type(config)} and no object; give a model's config.json."
        raise InputError(message)
    return config


def to_yaml(document: Mapping[str, Any]) -> str:
    """A document as YAML in the order of its keys."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are, for the launcher's sources in a ConfigMap."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _read(source: str) -> tuple[str, str]:
    if source == STDIN:
        if sys.stdin.isatty():
            print("reading a manifest from standard input (end with Ctrl-D)", file=sys.stderr)
        return sys.stdin.read(), "standard input"
    try:
        return Path(source).read_text(encoding="utf-8"), source
    except OSError as error:
        message = f"cannot read {source}: {error.strerror or error}."
    except UnicodeDecodeError:
        message = f"cannot read {source}: it is no text in UTF-8."
    raise InputError(message)


def _items(document: object) -> list[object]:
    # `kubectl get -o yaml` wraps several objects into a List.
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
        items = document.get("items")
        return items if isinstance(items, list) else []
    return [document]


def _kind(document: object) -> str:
    if isinstance(document, dict):
        return str(document.get("kind") or "an object without a kind")
    return described_type(document)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "cannot be parsed"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark is not None else problem
