"""The operator's process: preflight, Lease, first LIST, workers and watches, and an orderly end.

Nothing here is needed after a crash: what must survive lives in the cluster.
"""

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import sys
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shardwright_operator import logs
from shardwright_operator.api.gang import Gang
from shardwright_operator.assembly import Assembly, standard_decide
from shardwright_operator.cluster import Cluster, ClusterError
from shardwright_operator.cluster.api import ApiCluster
from shardwright_operator.cluster.connection import NoClusterError, connect
from shardwright_operator.cluster.transport import Transport
from shardwright_operator.ending import EXIT_BAD_INPUT, EXIT_OK, GANGS, unless, verdict
from shardwright_operator.health import HealthServer
from shardwright_operator.lease import LeaseElection, LeaseTimes
from shardwright_operator.metrics import Metrics
from shardwright_operator.preflight import find_gang_obstacles, find_obstacles
from shardwright_operator.reconciler import Decide
from shardwright_operator.served_crd import NOT_SERVED, ServedCrd
from shardwright_operator.settings import Settings, SettingsError, settings_from
from shardwright_operator.strangers import StrangerWatch
from shardwright_operator.watching import UnservedError, WatchThread
from shardwright_planner.wording import count_text

PREFLIGHT_RETRY_S = 5.0
DRAIN_S = 8.0
"""For passes under way at the end; the pod's grace period must be longer."""
HUNG_PASS_S = 180.0

RECURSION_LIMIT = 25_000
"""Frames of Python; the API server keeps JSON of up to 10000 levels."""

log = logging.getLogger(__name__)


def run(options: Mapping[str, Any]) -> int:
    """Run the operator until a signal; ``options`` are parsed arguments, those left out being None."""
    try:
        settings = settings_from(options)
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_BAD_INPUT
    logs.configure(settings.log_format, settings.log_level)
    return asyncio.run(_run_until_signal(settings))


def _refuse(why: str) -> None:
    """Say why there is nothing to serve: to a person in plain words, elsewhere as a line of the log."""
    if sys.stderr.isatty():
        sys.stderr.write(f"shardwright: {why}.\n")
    else:
        log.error("%s", why)


async def _run_until_signal(settings: Settings) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await Operator(settings).run(stop)


class Operator:
    """One operator; several may live in one process, each in an event loop of its own."""

    def __init__(self, settings: Settings, decide: Decide | None = None) -> None:
        """``decide`` is for tests of the shell alone; by default the operator's own decisions are made."""
        self.settings = settings
        self._decide = decide or standard_decide(settings)
        self.metrics = Metrics()
        self.health: HealthServer | None = None
        self.ready = asyncio.Event()
        """Set when it leads, knows the cluster and works."""
        self._blockers: list[str] = ["starting"]
        self._gang_obstacles: Mapping[Gang, str] = {}
        self._assembly: Assembly | None = None
        self._election: LeaseElection | None = None
        self._served: ServedCrd | None = None

    async def run(self, stop: asyncio.Event) -> int:
        """Run until ``stop`` is set or the operator must end; returns the process's exit code."""
        # With Python's usual limit a spec.model.config of 3000 levels cannot be read: every watch ended with
        # it, and no operator started again.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
        settings = self.settings
        try:
            connection = await connect(settings.kubeconfig)
        except NoClusterError as error:
            _refuse(str(error))
            return EXIT_BAD_INPUT
        agent = f"shardwright/{settings.operator_version}"
        cluster = ApiCluster(
            Transport(
                connection, user_agent=agent, meter=self.metrics.requested, write_time_s=self._write_time_s
            )
        )
        self.health = HealthServer(
            host=settings.health_host,
            health_port=settings.health_port,
            metrics_port=settings.metrics_port,
            alive=self._what_hangs,
            ready=lambda: self._blockers or self._crd_faults(),
            expose=self.metrics.expose,
        )
        try:
            try:
                await self.health.start()
            except OSError as error:
                # Mostly another operator by hand, or whatever else has 8080.
                _refuse(f"{error.strerror or error}; give others with --health-port and --metrics-port")
                return EXIT_BAD_INPUT
            while True:
                try:
                    return await self._begin(cluster, stop)
                except UnservedError as error:
                    # As at a start there is nothing to do but to wait: what is watched is settled anew then.
                    gone = NOT_SERVED if error.kind.gang is None else f"{error}; what needs it waits for it"
                    self._blockers = [gone]
                    log.error("%s", gone)  # noqa: TRY400 - where it was raised says nothing more
                    # Discovery follows within seconds, and until then all may seem to be well.
                    await unless(stop, asyncio.sleep(PREFLIGHT_RETRY_S))
        finally:
            await self.health.stop()
            await cluster.close()

    async def _begin(self, cluster: Cluster, stop: asyncio.Event) -> int:
        """From the preflight to the end; raises UnservedError when a kind that is watched has gone."""
        served = self._served = ServedCrd(cluster)
        if not await unless(stop, self._preflight(cluster, served)):
            return EXIT_OK
        return await self._lead(cluster, served, stop)

    def _crd_faults(self) -> list[str]:
        return [] if self._served is None else self._served.known

    async def _preflight(self, cluster: Cluster, served: ServedCrd) -> None:
        """Wait until the cluster can be served: exiting would only be a slower loop with less to see."""
        said = self._blockers
        while True:
            try:
                self._gang_obstacles = await find_gang_obstacles(cluster, self.settings.gangs)
                self._blockers = await find_obstacles(cluster, served)
            except ClusterError as error:
                self._blockers = [f"the API server cannot be asked: {error.message}"]
            if not self._blockers:
                return
            if self._blockers != said:
                for blocker in self._blockers:
                    if blocker not in served.known:  # which has told of it
                        log.error("%s", blocker)
                said = self._blockers
            await asyncio.sleep(PREFLIGHT_RETRY_S)

    async def _lead(self, cluster: Cluster, served: ServedCrd, stop: asyncio.Event) -> int:
        """Take the Lease, serve, give the Lease back."""
        settings = self.settings
        if not settings.leader_election:
            return await self._serve(cluster, served, stop, None)
        election = LeaseElection(
            cluster,
            namespace=settings.lease_namespace,
            name=settings.lease_name,
            identity=settings.identity or _identity(),
            times=LeaseTimes(
                duration_s=settings.lease_duration_s,
                renew_deadline_s=settings.lease_renew_deadline_s,
                retry_s=settings.lease_retry_s,
            ),
            clock=_now,
        )
        self._election = election
        log.info("waiting for the Lease")
        try:
            if not await unless(stop, election.acquire()):
                return EXIT_OK
            self.metrics.leading(True)
            log.info("leading")
            return await self._serve(cluster, served, stop, election)
        finally:
            self.metrics.leading(False)
            await election.release()

    async def _serve(
        self, cluster: Cluster, served: ServedCrd, stop: asyncio.Event, election: LeaseElection | None
    ) -> int:
        """Work until something ends; the Lease is renewed from the first moment on."""
        settings = self.settings
        assembly = Assembly(
            settings,
            cluster,
            served,
            self.metrics,
            self._decide,
            clock=_now,
            gang_obstacles=self._gang_obstacles,
        )
        self._assembly = assembly
        ends: set[asyncio.Task[Any]] = {asyncio.create_task(stop.wait(), name="stop")}
        if election is not None:
            ends.add(asyncio.create_task(election.hold(), name="lease"))
        workers: list[asyncio.Task[None]] = []
        intake = assembly.intake
        watch = WatchThread(
            assembly.kinds, settings.namespaces, settings.kubeconfig, intake.deliver, intake.distrust
        )
        strangers = StrangerWatch(settings.kubeconfig, intake.deliver_stranger, intake.replace_strangers)
        try:
            sync = asyncio.create_task(self._first_sync(assembly, strangers), name="first sync")
            await asyncio.wait({*ends, sync}, return_when=asyncio.FIRST_COMPLETED)
            if sync.done() and not sync.cancelled():
                sync.result()
                workers = [
                    asyncio.create_task(assembly.work(), name="worker") for _ in range(settings.workers)
                ]
                ends |= {
                    watch.start(),
                    asyncio.create_task(served.run(), name="served CRD"),
                    asyncio.create_task(assembly.intake.run(settings.resync_interval_s), name="resync"),
                    asyncio.create_task(assembly.measurer.run(settings.measure_interval_s), name="measuring"),
                }
                if settings.gangs:
                    ends.add(asyncio.create_task(self._gangs_change(cluster), name=GANGS))
                if settings.cluster_wide:
                    ends.add(asyncio.create_task(strangers.run(), name="pods with GPUs"))
                self.ready.set()
                log.info("serving %s", count_text(len(assembly.store.keys()), "resource"))
                await asyncio.wait({*ends, *workers}, return_when=asyncio.FIRST_COMPLETED)
            sync.cancel()
            return verdict(ends)
        finally:
            self.ready.clear()
            self._assembly = None
            lost = any(task.get_name() == "lease" and task.done() for task in ends)
            await _drain(assembly, workers, at_once=lost)
            await watch.stop()
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _first_sync(self, assembly: Assembly, strangers: StrangerWatch) -> None:
        if self.settings.cluster_wide:
            await strangers.sync()
        while True:
            try:
                await assembly.intake.resync()
            except ClusterError as error:
                log.warning("the first list failed", extra={"why": error.message})
                await asyncio.sleep(max(1.0, error.retry_after_s or 0.0))
            else:
                return

    async def _gangs_change(self, cluster: Cluster) -> None:
        """Return when another set of gang schedulers can be used than at the start.

        The process ends then and is started anew: what it watches is settled once.
        """
        while True:
            await asyncio.sleep(self.settings.resync_interval_s)
            with contextlib.suppress(ClusterError):
                if await find_gang_obstacles(cluster, self.settings.gangs) != self._gang_obstacles:
                    return

    def _write_time_s(self) -> float:
        return math.inf if self._election is None else self._election.certain_for_s()

    def _what_hangs(self) -> list[str]:
        assembly = self._assembly
        if assembly is None or not self.ready.is_set():
            return []
        wrong = []
        if assembly.queue.longest_run_s() > HUNG_PASS_S:
            wrong.append(f"a pass runs for more than {HUNG_PASS_S:g} s")
        limit = 3 * self.settings.resync_interval_s + HUNG_PASS_S
        if assembly.intake.age_s() > limit:
            wrong.append(f"no live list has succeeded for {limit:g} s")
        return wrong


async def _drain(assembly: Assembly, workers: list[asyncio.Task[None]], *, at_once: bool) -> None:
    """Let passes under way end; without the Lease they must not, since another may act already."""
    assembly.queue.close()
    if workers and not at_once:
        await asyncio.wait(workers, timeout=DRAIN_S)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


def _identity() -> str:
    """A pod's name is unique and outlives a restart of its container, which thereby keeps its Lease."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


def _now() -> datetime:
    return datetime.now(UTC)
