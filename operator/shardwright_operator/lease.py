"""Leader election by a Lease: at most one operator acts at a time.

The times in the Lease are for people to read. Whether a holder is alive is judged by one's own clock alone: a
Lease that has not changed for its duration since *we* saw it change is free. So wrong clocks cannot give two
leaders. A leader stops acting before others may take over: its deadline for renewing is shorter than the
duration that they wait.
"""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shardwright_operator.cluster import (
    AlreadyExistsError,
    Cluster,
    ClusterError,
    ConflictError,
    Manifest,
    NotFoundError,
)

JITTER = 0.2

log = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """Somebody else leads, or the Lease could not be renewed in time. The process must end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Seconds. ``renew_deadline_s`` must be shorter than ``duration_s``."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.retry_s < self.renew_deadline_s < self.duration_s:
            raise ValueError(
                "the Lease's times must grow: retry < renew deadline < duration, got "
                f"{self.retry_s} s, {self.renew_deadline_s} s, {self.duration_s} s"
            )


class LeaseElection:
    """One candidate."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes,
        clock: Callable[[], datetime],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times
        self._clock = clock
        self._draw = draw
        self._held: Manifest | None = None
        self._seen: Mapping[str, Any] | None = None
        self._seen_at = 0.0
        self._renewed_at = -math.inf

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last looked at."""
        return str((self._seen or {}).get("holderIdentity") or "")

    def certain_for_s(self) -> float:
        """Seconds for which nobody else can take the Lease, by one's own clock alone; 0 when one may have.

        A process that was stopped in the middle of a pass goes on with its next write before it renews again.
        By then another may lead, and be in the middle of taking down what this one is about to bring up.
        """
        return max(0.0, self._renewed_at + self._times.renew_deadline_s - _now())

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        while True:
            try:
                if await self._take():
                    return
            except ClusterError as error:
                log.warning("the Lease cannot be read or written", extra={"why": error.message})
            await self._pause()

    async def hold(self) -> None:
        """Renew for ever; raises LeaseLostError."""
        while True:
            await self._pause()
            left = self._renewed_at + self._times.renew_deadline_s - _now()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    held = await self._take()
            except (ClusterError, TimeoutError) as error:
                log.warning("the Lease was not renewed", extra={"why": str(error) or type(error).__name__})
            else:
                if not held and self.holder not in {"", self._identity}:
                    raise LeaseLostError(f"the Lease is held by {self.holder}")
            if _now() - self._renewed_at >= self._times.renew_deadline_s:
                raise LeaseLostError(f"the Lease was not renewed for {self._times.renew_deadline_s:g} s")

    async def release(self) -> None:
        """Give the Lease up, so that the next one need not wait for its end; does nothing when not held."""
        if self._held is None:
            return
        body, self._held = self._held, None
        spec = {**body["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._stamp()}
        try:
            await self._cluster.replace({**body, "spec": spec})
        except ClusterError as error:
            log.warning("the Lease was not released", extra={"why": error.message})

    async def _take(self) -> bool:
        """Create, take over or renew the Lease; False when it is another's or was written meanwhile."""
        began = _now()
        try:
            body = self._held or await self._cluster.get("Lease", self._namespace, self._name)
            if self._held is None and not self._is_free(body):
                return False
            answer = await self._cluster.replace({**body, "spec": self._spec(body["spec"])})
        except NotFoundError:
            self._held = None
            try:
                answer = await self._cluster.create(self._new())
            except AlreadyExistsError:
                return False
        except ConflictError:
            self._held = None
            return False
        self._held = answer
        self._renewed_at = began
        return True

    def _is_free(self, body: Manifest) -> bool:
        spec = body.get("spec") or {}
        if spec != self._seen:
            self._seen, self._seen_at = spec, _now()
        if self.holder in {"", self._identity}:
            return True
        return _now() - self._seen_at >= float(spec.get("leaseDurationSeconds") or self._times.duration_s)

    def _spec(self, old: Mapping[str, Any]) -> dict[str, Any]:
        changed = old.get("holderIdentity") != self._identity
        stamp = self._stamp()
        return {
            **old,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration_s)),
            "renewTime": stamp,
            "acquireTime": stamp if changed else old.get("acquireTime", stamp),
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (1 if changed else 0),
        }

    def _new(self) -> Manifest:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": {**self._spec({}), "leaseTransitions": 0},
        }

    def _stamp(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def _pause(self) -> None:
        """Candidates must not knock in step."""
        await asyncio.sleep(self._times.retry_s * (1.0 + JITTER * self._draw()))


def _now() -> float:
    return asyncio.get_running_loop().time()
