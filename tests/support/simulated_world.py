"""The operator's decisions in a simulated cluster: passes, writes, and deaths between any two of them."""

import copy
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from shardwright_operator.api.constants import API_VERSION, KIND, Label
from shardwright_operator.api.gang import Gang
from shardwright_operator.decide import DecideSettings, decide
from shardwright_operator.decide.decision import (
    Apply,
    Decision,
    Delete,
    Event,
    GoneClaim,
    PodClaim,
    ResourceClaim,
    SetClaim,
)
from shardwright_operator.observe.conditions import condition_of
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import ClaimView, Key
from simulated_cluster import NAMESPACE, SimulatedCluster

__all__ = ["NAMESPACE", "SimulatedWorld"]


class SimulatedWorld(SimulatedCluster):
    """ModelDeployments with their children on a few GPU nodes; most tests have one."""

    def __init__(
        self,
        spec: dict[str, Any],
        *,
        name: str = "llama",
        nodes: int = 2,
        sees_gpus: bool = True,
        one_namespace: bool = False,
        gang_obstacles: dict[Gang, str] | None = None,
    ) -> None:
        """``sees_gpus`` is whether the operator knows what other pods hold."""
        super().__init__()
        self.gang_obstacles = gang_obstacles or {}
        """Read when the operator starts."""
        self.events: list[Event] = []
        self.writes: list[str] = []
        self.settings = DecideSettings(operator_version="1.0.0")
        self.claim: ClaimView | None = None
        """What a GET of the claim that the spec names answers; None: the spec names none."""
        self.key = Key(NAMESPACE, name)
        self._sees_gpus = sees_gpus and not one_namespace
        self._one_namespace = one_namespace
        self.store = self._new_store()
        for index in range(nodes):
            self.add_node(f"node-{index}")
        self.add_resource(name, spec)

    def _new_store(self) -> Store:
        store = Store(nodes_visible=not self._one_namespace, gang_obstacles=self.gang_obstacles)
        if self._sees_gpus:
            store.replace_strangers((), version=0)
        return store

    def add_resource(self, name: str, spec: dict[str, Any]) -> Key:
        self.create(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1},
                "spec": {"replicas": 1, **spec},
                "status": {"observedGeneration": -1},
            }
        )
        return Key(NAMESPACE, name)

    def tell(self, body: dict[str, Any], *, deleted: bool) -> None:
        ours = body["kind"] != "Pod" or Label.DEPLOYMENT in body["metadata"].get("labels", {})
        if ours:
            self.store.put(copy.deepcopy(body), deleted=deleted)
        elif self._sees_gpus:
            self.store.put_stranger(copy.deepcopy(body), deleted=deleted)

    @property
    def resource(self) -> dict[str, Any]:
        return self.objects[KIND, self.key.name]

    @property
    def status(self) -> dict[str, Any]:
        return self.resource["status"]

    def resource_named(self, name: str) -> dict[str, Any]:
        return self.objects[KIND, name]

    def condition(self, type_: str, name: str = "") -> tuple[str, str] | None:
        found = condition_of(self.resource_named(name or self.key.name)["status"], type_)
        return (found["status"], found["reason"]) if found else None

    def message(self, type_: str, name: str = "") -> str:
        return str(condition_of(self.resource_named(name or self.key.name)["status"], type_)["message"])

    @property
    def job(self) -> dict[str, Any]:
        """The only Job."""
        (job,) = self.of_kind("Job").values()
        return job

    def report_job(self, **status: Any) -> None:
        """What the Job's controller writes."""
        self.job["status"] = status
        self.touch(self.job)

    def show_job_pod(self, status: dict[str, Any], *, version: int = 999_999, deleted: bool = False) -> None:
        """What a watch shows of the Job's pod; the simulated kubelets would run it to a good end."""
        meta, template = self.job["metadata"], self.job["spec"]["template"]
        metadata = {
            "name": f"{meta['name']}-x1y2z",
            "namespace": NAMESPACE,
            "uid": f"pod-of-{meta['uid']}",
            "resourceVersion": str(version),
            "creationTimestamp": meta["creationTimestamp"],
            "labels": {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": meta["name"]},
        }
        spec = {"containers": template["spec"]["containers"]}
        body = {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
        self.tell(body, deleted=deleted)

    def edit(self, change: Callable[[dict[str, Any]], None], *, name: str = "") -> None:
        resource = self.resource_named(name or self.key.name)
        change(resource["spec"])
        resource["metadata"]["generation"] += 1
        self.touch(resource)

    # -- the operator ---------------------------------------------------------------------------------

    def decision(self, key: Key | None = None) -> Decision:
        observed = self.store.observe(key or self.key, claim=self.claim)
        return decide(observed, self.now, self.settings)

    def reconcile(self, key: Key | None = None, *, die_after: int | None = None) -> Decision:
        """One pass; with ``die_after`` the operator dies after so many of its writes."""
        decision = self.decision(key)
        if not self._confirmed(decision):
            return self.reconcile(key, die_after=die_after)
        resource = self.resource_named((key or self.key).name)
        left = itertools.count() if die_after is None else iter(range(die_after))
        for stage in decision.stages:
            for write in stage:
                if next(left, None) is None:
                    return decision
                self._write(write)
        if decision.status is not None:
            if next(left, None) is None:
                return decision
            self.writes.append("status")
            resource["status"] = copy.deepcopy(dict(decision.status))
            self.touch(resource)
        self.events.extend(decision.events)
        return decision

    def _confirmed(self, decision: Decision) -> bool:
        """Look at the live objects that the decision believes to be gone; a wrong belief mends the store."""
        confirmed = True
        for claim in decision.confirm:
            kind = "StatefulSet" if isinstance(claim, SetClaim) else "Pod"
            live = self.objects.get((kind, claim.name))
            if isinstance(claim, ResourceClaim):
                confirmed = confirmed and self.resource_named(claim.name)["metadata"]["uid"] == claim.uid
                continue
            if live is None:
                continue
            self.store.put_read(copy.deepcopy(live))
            metadata = live["metadata"]
            wrong = not isinstance(claim, PodClaim) or metadata["uid"] == claim.uid
            excused = "deletionTimestamp" in metadata and not isinstance(claim, GoneClaim)
            confirmed = confirmed and (excused or not wrong)
        return confirmed

    def restart_operator(self) -> None:
        """A new process: nothing is kept in memory, and the first LIST shows what stands."""
        self.store = self._new_store()
        for body in self.objects.values():
            self.tell(body, deleted=False)

    def _write(self, write: Apply | Delete) -> None:
        if isinstance(write, Delete):
            kind = "Pod" if write.kind is None else str(write.kind)
            self.writes.append(f"delete {kind} {write.name}")
            body = self.objects.get((kind, write.name))
            if body is None or body["metadata"]["uid"] != write.uid:
                return
            if kind == "Pod":
                self.delete_pod(write.name, grace_s=write.grace_period_s)
            else:
                self.remove_gently(kind, write.name)
            return
        self.writes.append(f"apply {write.kind} {write.name}")
        standing = self.objects.get((str(write.kind), write.name))
        if write.uid is not None and (standing is None or standing["metadata"]["uid"] != write.uid):
            return
        manifest = copy.deepcopy(dict(write.manifest))
        if standing is None:
            manifest["metadata"]["generation"] = 1
            self.create(manifest)
            return
        changed = manifest.get("spec") != standing.get("spec")
        kept = {k: standing["metadata"][k] for k in ("uid", "creationTimestamp", "generation")}
        standing.update(manifest)
        standing["metadata"] = {**manifest["metadata"], **kept}
        standing["metadata"]["generation"] += changed
        self.touch(standing)

    def settle(self, *, limit: int = 60, check: Callable[[], None] | None = None) -> None:
        """Let everything move until nothing does; time passes when only a back-off is left."""
        for _ in range(limit):
            before = self._versions()
            decisions = self.step(check=check)
            if self._versions() == before and not any(decision.stages for decision in decisions):
                waits = [d.requeue_after_s for d in decisions if d.requeue_after_s]
                # Nothing but a deadline or a wait for GPUs is left: that is settled, too.
                if not waits or min(waits) > 20:
                    return
                self.now += timedelta(seconds=min(waits))
        raise AssertionError(f"still moving: {self.status}")

    def settled(self) -> "SimulatedWorld":
        """It, when nothing moves any more, with no memory of what was written or made on the way."""
        self.settle()
        self.writes.clear()
        self.trace.clear()
        return self

    def step(self, *, check: Callable[[], None] | None = None) -> list[Decision]:
        """Everybody moves once."""
        decisions = []
        for body in self.of_kind(KIND).values():
            decisions.append(self.reconcile(Key(NAMESPACE, body["metadata"]["name"])))
            if check:
                check()
        for move in (self.controllers, self.kubelets):
            move()
            if check:
                check()
        self.now += timedelta(seconds=1)
        return decisions

    def run_for(self, seconds: float, *, check: Callable[[], None] | None = None) -> None:
        """Let everybody move, and time pass, for so long."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            before = self._versions()
            decisions = self.step(check=check)
            if self._versions() == before and not any(decision.stages for decision in decisions):
                waits = [d.requeue_after_s for d in decisions if d.requeue_after_s]
                left = (end - self.now).total_seconds()
                self.now += timedelta(seconds=max(0.0, min([*waits, left])))
