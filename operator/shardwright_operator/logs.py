"""Log lines: one JSON object each for machines, or one readable line each for people.

What a line is about stands in fields (``key``, ``kind``, ``name``, ``why``), so that the history of one
resource is a filter and no search. Bodies of objects and headers are never logged: both may hold secrets.
"""

import json
import logging
import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

from shardwright_operator.settings import LogFormat, LogLevel

FIELDS = ("key", "kind", "name_", "uid", "why", "reason", "stage", "seconds")
"""Fields that a line may carry through ``extra=``; ``name_`` because logging keeps ``name`` for itself."""

_QUIET = ("kopf", "aiohttp", "asyncio", "kubernetes")


class JsonFormatter(logging.Formatter):
    """A line of JSON with a stable order of fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(_fields(record))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Time, level, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {record.getMessage()}"
        if fields:
            line += f"  [{fields}]"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(format_: LogFormat, level: LogLevel, stream: TextIO | None = None) -> None:
    """Set up the process's logging; libraries speak only from warnings on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("shardwright_operator").setLevel(level.value.upper())
    quieten(_QUIET)


def quieten(names: Iterable[str]) -> None:
    """Let libraries speak only from warnings on."""
    for name in names:
        logging.getLogger(name).setLevel(logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    values = {name: getattr(record, name, None) for name in FIELDS}
    return {name.rstrip("_"): value for name, value in values.items() if value not in {None, ""}}
