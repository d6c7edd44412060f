"""Content hashes that survive a restart and an upgrade: canonical JSON, so that key order never counts."""

import hashlib
import json

DIGEST_LENGTH = 10
"""Hex digits kept. A collision matters only among the revisions of one resource, so 40 bits are plenty."""


def digest(value: object) -> str:
    """Hash of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
