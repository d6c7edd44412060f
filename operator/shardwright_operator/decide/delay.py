"""When something may be tried again: back-off, and the spread that keeps groups from moving in step."""

import hashlib
from datetime import datetime, timedelta

from shardwright_operator.api.lifecycle_spec import RecoverySpec


def restart_delay_s(recovery: RecoverySpec, attempt: int, identity: str) -> float:
    """Seconds to wait before the given attempt (1, 2, ...): doubling, capped, spread by up to a quarter.

    The spread keeps the groups of a node that fell over from coming back in the same second.
    """
    delay = min(recovery.backoff_s * 2.0 ** min(attempt - 1, 30), recovery.max_backoff_s)
    return delay * (1 + spread(f"{identity}/{attempt}") / 4)


def spread(identity: str) -> float:
    """A number from 0 to 1 that is always the same for one identity, so that decisions stay pure."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:2]) / 0xFFFF


def next_attempt(recovery: RecoverySpec, attempt: int, ready_since: datetime | None, now: datetime) -> int:
    """Number of the coming attempt; 1 again after a long time of service."""
    served_long = ready_since is not None and now - ready_since > timedelta(seconds=recovery.reset_after_s)
    return 1 if served_long else attempt + 1
