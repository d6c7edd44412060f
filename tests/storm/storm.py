"""One storm on a control plane of its own, from fair weather to the verdict."""

import contextlib
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from collector import wait_for_collector
from control_plane.audit import AuditEvent, read_audit
from control_plane.client import ApiError
from control_plane.cluster import CommandError
from control_plane.credentials import read_kubeconfig, write_kubeconfig
from control_plane.faults import playing
from control_plane.plane import ControlPlane, Settings
from control_plane.waiting import wait_for
from disturbances import strike
from ending import leaked, remains, unsettled
from git_tool import GitTool
from grounds import IN_GIT, NODES, SPECS, Grounds, manifest
from history import audit_lines, judge
from loopback_proxy import LoopbackProxy
from operator_keeper import OperatorKeeper
from operator_process import OperatorAccount, apply_crd, grant_account
from replay import world_after
from rules_of_conduct import writes_in_quiet
from store_trace import STORED_AS_JSON, StoreTrace
from violations import Violation, clock
from weather import Gust, Kind, forecast

NAMESPACE = "storm"
CONVERGE_S = 180.0
QUIET_S = 6.0
EVENT_S = 1.0
GONE_S = 120.0
COLLECTED_S = 60.0
"""A new garbage collector backs off for up to 40 s from what it could not look at in its first moments."""
TEND_S = 0.1
TELL_S = 15.0

Say = Callable[[str], None]


def say_aloud(text: str) -> None:
    """Print at once, also into a file."""
    print(text, flush=True)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of a storm."""

    seed: int
    folder: Path
    """Where the trace, the audit log and the logs of all processes are kept."""
    struck: Counter[Kind] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    converged_in_s: float = 0.0
    lives: int = 0
    sights: int = 0
    requests: list[AuditEvent] = field(default_factory=list)

    def report(self) -> str:
        """For a person: what struck, what broke, and where to look."""
        lines = [
            f"seed {self.seed}: {sum(self.struck.values())} disturbances, {self.lives} lives of the operator"
        ]
        lines += [f"  {count:4} x {kind}" for kind, count in sorted(self.struck.items(), key=lambda i: -i[1])]
        lines.append(f"converged in {self.converged_in_s:.1f} s; {self.sights} sights; logs in {self.folder}")
        for violation in self.violations:
            lines.append(f"VIOLATION {violation}")
            lines += [f"      {line}" for line in audit_lines(violation, self.requests)]
        lines.append(f"{len(self.violations)} violations")
        return "\n".join(lines)


class Storm:
    """Context manager: fair weather on entry, everything stopped and all logs kept on exit."""

    def __init__(self, seed: int, folder: Path, say: Say = say_aloud) -> None:
        self.outcome = Outcome(seed=seed, folder=folder)
        self._say = say
        self._seed = seed
        self._stack = contextlib.ExitStack()
        self._journal: list[str] = []

    def __enter__(self) -> Self:
        shutil.rmtree(self.outcome.folder, ignore_errors=True)
        self.outcome.folder.mkdir(parents=True)
        try:
            self._bring_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rage(self, duration_s: float) -> None:
        """Let all gusts strike, one after another."""
        began = time.monotonic()
        for gust in forecast(self._seed, duration_s):
            while (left_s := began + gust.at_s - time.monotonic()) > 0:
                self._tend()
                time.sleep(min(TEND_S, left_s))
            self._strike(gust)

    def calm(self) -> None:
        """Fair weather, the first wishes again, and then everything has to come to rest."""
        grounds = self._grounds
        self.tell("calm")
        grounds.git.stop()
        grounds.proxy.clear()
        grounds.keeper.calm()
        # Its garbage collector does not know of resources that were made again while its watches were broken.
        grounds.plane.restart("kube-controller-manager")
        wait_for_collector(grounds.api, NAMESPACE)
        wait_for(lambda: grounds.bring_nodes_back() or True, "the nodes are back", timeout_s=60)
        for name, spec in SPECS.items():
            wait_for(lambda n=name, s=spec: grounds.apply(n, s) or True, f"{name} is applied", timeout_s=60)
        began = time.monotonic()
        missing = self._wait_until(self._unsettled, CONVERGE_S)
        self.outcome.converged_in_s = time.monotonic() - began
        self._blame("does not converge", missing)
        self._blame("leaks objects", self._wait_until(self._leaked, COLLECTED_S if not missing else 0.0))

    def stay_quiet(self) -> None:
        """Nothing is written now, not even by an operator that starts anew."""
        if self.outcome.violations:
            return
        # The Event of a change follows the status by which all is settled: once by 16 ms, into the quiet.
        time.sleep(EVENT_S)
        for what in ("in quiet", "after a restart of the operator"):
            since, before = datetime.now(UTC), self._pods()
            if what != "in quiet":
                self._grounds.keeper.stop(0.0)
            deadline = time.monotonic() + QUIET_S * (1 if what == "in quiet" else 3)
            while time.monotonic() < deadline:
                self._tend()
                time.sleep(TEND_S)
            for violation in writes_in_quiet(self._requests(since)):
                self._add(replace(violation, about=f"{what}: {violation.about}"))
            if self._pods() != before:
                self._blame("pods change though nothing else does", [what])

    def clear_away(self) -> None:
        """All resources go, and everything with them."""
        self._grounds.api.request(
            "DELETE", f"/apis/shardwright.dev/v1alpha1/namespaces/{NAMESPACE}/modeldeployments"
        )
        left = self._wait_until(lambda: list(remains(world_after(self._trace.sights()))), GONE_S)
        self._blame("is left when all resources are gone", left)

    def judge(self) -> Outcome:
        """Read the whole history."""
        outcome, keeper = self.outcome, self._grounds.keeper
        sights = self._trace.sights()
        outcome.requests = self._requests(None)
        outages = [*self._grounds.outages, *keeper.outages()]
        for violation in judge(sights, outcome.requests, outages):
            self._add(violation)
        self._blame("the trace has no end", filter(None, [self._trace.failure]))
        outcome.violations.sort(key=lambda violation: violation.at)
        outcome.sights, outcome.lives = len(sights), len(keeper.lives)
        return outcome

    def tell(self, text: str) -> None:
        """A line of the running report, which is also the journal."""
        line = f"{clock(time.time())} {text}"
        self._journal.append(line)
        with (self.outcome.folder / "journal.txt").open("a") as file:
            file.write(line + "\n")
        self._say(line)

    def _tend(self) -> None:
        """Start again what ends by itself, as a cluster does."""
        self._grounds.keeper.tend()
        for name in self._grounds.plane.revive():
            self.tell(f"  {name} had ended and is started again")

    def _strike(self, gust: Gust) -> None:
        self.outcome.struck[gust.kind] += 1
        rng = random.Random(gust.dice)  # noqa: S311 - a storm is no secret
        try:
            done = strike(gust.kind, self._grounds, rng)
        except (ApiError, CommandError, OSError, AssertionError, subprocess.TimeoutExpired) as error:
            # What it was to strike went at this very moment, or cannot be reached.
            done = f"came to nothing: {str(error)[:200]}"
        self.tell(f"{gust.at_s:6.1f} s  {gust.kind}: {done}")

    def _bring_up(self) -> None:
        folder, stack = self.outcome.folder, self._stack
        plane = stack.enter_context(ControlPlane(settings=Settings(api_server_arguments=(STORED_AS_JSON,))))
        stack.callback(self._keep_logs, plane)
        self._trace = stack.enter_context(StoreTrace(plane.etcd_port, folder / "trace.jsonl"))
        cluster = plane.cluster
        api = cluster.client()
        stack.callback(api.close)
        apply_crd(cluster, api)
        for name in (NAMESPACE, "operator"):
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self._account = grant_account(cluster, api, "operator")
        proxy = stack.enter_context(LoopbackProxy(cluster.credentials, seed=self._seed))
        keeper = OperatorKeeper(
            kubeconfig=_through(proxy, self._account, folder),
            folder=folder,
            lease=self._account.lease,
            rng=random.Random(self._seed),  # noqa: S311 - a storm is no secret
        )
        stack.callback(keeper.end)
        git = GitTool(cluster, manifest(IN_GIT, NAMESPACE, SPECS[IN_GIT]))
        self._grounds = Grounds(
            plane=plane, api=api, namespace=NAMESPACE, proxy=proxy, keeper=keeper, git=git
        )
        # Pods take their time to come up and to go, or no old one would ever be there to be met.
        stack.enter_context(playing(api, NAMESPACE, ready_after="1s", terminates_after="1s"))
        self._grounds.make_nodes(NODES)
        keeper.tend()
        for name, spec in SPECS.items():
            api.create(manifest(name, NAMESPACE, spec))
        self._blame("does not come up in fair weather", self._wait_until(self._unsettled, CONVERGE_S))
        stack.enter_context(git)
        self.tell("all is up")

    def _leaked(self) -> list[str]:
        return list(leaked(world_after(self._trace.sights())))

    def _unsettled(self) -> list[str]:
        world = world_after(self._trace.sights())
        absent = [f"{name} is not there" for name in SPECS if name not in world.deployments]
        return [*absent, *unsettled(world)]

    def _wait_until(self, wrong: Callable[[], list[str]], most_s: float) -> list[str]:
        """Wait until nothing is wrong any more; returns what still is when the time is up."""
        began = told = time.monotonic()
        while (found := wrong()) and time.monotonic() - began < most_s:
            self._tend()
            time.sleep(0.5)
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                self.tell(f"  after {told - began:.0f} s {len(found)} to go: {found[0][:200]}")
        return found

    def _pods(self) -> set[str]:
        return set(world_after(self._trace.sights()).pods)

    def _requests(self, since: datetime | None) -> list[AuditEvent]:
        log = self._grounds.plane.audit_log
        return read_audit(log, user=self._account.user, since=since)

    def _blame(self, rule: str, wrong: Iterable[str]) -> None:
        evidence = tuple(wrong)
        if evidence:
            self._add(Violation(rule=rule, about="the storm", at=time.time(), evidence=evidence))

    def _add(self, violation: Violation) -> None:
        self.outcome.violations.append(violation)
        self.tell(f"VIOLATION {violation}")

    def _keep_logs(self, plane: ControlPlane) -> None:
        """Keep what tells of the storm; the control plane's folder goes with it."""
        for path in (plane.audit_log, *(plane.folder / "logs").glob("*.log")):
            shutil.copy(path, self.outcome.folder)


def run_storm(seed: int, duration_s: float, folder: Path, say: Say = say_aloud) -> Outcome:
    """One storm from beginning to end."""
    with Storm(seed, folder, say) as storm:
        storm.rage(duration_s)
        storm.calm()
        storm.stay_quiet()
        storm.clear_away()
        outcome = storm.judge()
    (folder / "report.txt").write_text(outcome.report() + "\n")
    return outcome


def _through(proxy: LoopbackProxy, account: OperatorAccount, folder: Path) -> Path:
    """A kubeconfig of the operator's account whose way leads through the proxy."""
    credentials = replace(read_kubeconfig(account.kubeconfig), server=proxy.url, authority=None)
    return write_kubeconfig(folder / "operator.kubeconfig", credentials, user="operator")
