"""Content hashes that survive a restart and an upgrade: canonical JSON, so that key order never counts."""

import hashlib
import json
import re

DIGEST_LENGTH = 10
"""Hex digits kept. A collision matters only among the revisions of one resource, so 40 bits are plenty."""

_LIKE_A_NUMBER = re.compile(r"^[0-9]+(e[0-9]+)?$")


def digest(value: object) -> str:
    """Hash of a JSON value. It never looks like a number: YAML would read ``1234567e89`` as one."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    found = _short(text)
    while _LIKE_A_NUMBER.match(found):
        found = _short(found)
    return found


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
