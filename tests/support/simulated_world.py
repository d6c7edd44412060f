"""A small world for the decisions: objects, a StatefulSet controller, kubelets and a garbage collector.

It is a model, not a proof: the same sequences run on a real API server elsewhere. What it adds is speed and
control: each controller moves only when a test lets it, and the operator can die between any two writes.
"""

import copy
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from shardwright_operator.api.constants import API_VERSION, KIND, Label
from shardwright_operator.decide import DecideSettings, decide
from shardwright_operator.decide.decision import Apply, Decision, Delete, Event
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import Key

NAMESPACE = "models"
Place = tuple[str, str]


class SimulatedWorld:
    """One ModelDeployment with its children on a few GPU nodes."""

    def __init__(self, spec: dict[str, Any], *, name: str = "llama", nodes: int = 2) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.objects: dict[Place, dict[str, Any]] = {}
        self.events: list[Event] = []
        self.writes: list[str] = []
        self.settings = DecideSettings(operator_version="1.0.0")
        self.key = Key(NAMESPACE, name)
        self._counter = itertools.count(1)
        self.store = Store()
        self.trace: list[str] = []
        for index in range(nodes):
            self.add_node(f"node-{index}")
        self.create(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1},
                "spec": {"replicas": 1, **spec},
                "status": {"observedGeneration": -1},
            }
        )

    # -- objects --------------------------------------------------------------------------------------

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        body = copy.deepcopy(body)
        body["metadata"].setdefault("uid", f"uid-{next(self._counter)}")
        body["metadata"].setdefault("creationTimestamp", self.now.isoformat())
        self.objects[body["kind"], body["metadata"]["name"]] = body
        self.touch(body)
        return body

    def touch(self, body: dict[str, Any]) -> None:
        body["metadata"]["resourceVersion"] = str(next(self._counter))
        self.store.put(copy.deepcopy(body), deleted=False)

    def remove(self, kind: str, name: str) -> None:
        body = self.objects.pop((kind, name), None)
        if body is not None:
            body["metadata"]["resourceVersion"] = str(next(self._counter))
            self.store.put(body, deleted=True)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self.objects[kind, name]

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        return {name: body for (k, name), body in sorted(self.objects.items()) if k == kind}

    @property
    def resource(self) -> dict[str, Any]:
        return self.objects[KIND, self.key.name]

    @property
    def status(self) -> dict[str, Any]:
        return self.resource["status"]

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        return self.of_kind("Pod")

    def condition(self, type_: str) -> tuple[str, str] | None:
        found = next((c for c in self.status.get("conditions", ()) if c["type"] == type_), None)
        return None if found is None else (found["status"], found["reason"])

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        change(self.resource["spec"])
        self.resource["metadata"]["generation"] += 1
        self.touch(self.resource)

    def add_node(self, name: str, product: str = "NVIDIA-H100-80GB-HBM3", gpus: int = 8) -> None:
        self.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
                "spec": {},
                "status": {
                    "allocatable": {"nvidia.com/gpu": str(gpus)},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )

    # -- the operator ---------------------------------------------------------------------------------

    def decision(self) -> Decision:
        return decide(self.store.observe(self.key), self.now, self.settings)

    def reconcile(self, *, die_after: int | None = None) -> Decision:
        """One pass; with ``die_after`` the operator dies after so many of its writes."""
        decision = self.decision()
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
            self.resource["status"] = copy.deepcopy(dict(decision.status))
            self.touch(self.resource)
        self.events.extend(decision.events)
        return decision

    def restart_operator(self) -> None:
        """A new process: nothing is kept in memory, and the first LIST shows what stands."""
        self.store = Store()
        for body in self.objects.values():
            self.store.put(copy.deepcopy(body), deleted=False)

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
                self.remove(kind, write.name)
            return
        self.writes.append(f"apply {write.kind} {write.name}")
        standing = self.objects.get((str(write.kind), write.name))
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

    # -- the cluster ----------------------------------------------------------------------------------

    def delete_pod(self, name: str, *, grace_s: int | None = None) -> None:
        """Ask for a pod's deletion; it goes when the kubelet moves, or at once without grace."""
        pod = self.objects.get(("Pod", name))
        if pod is None:
            return
        if grace_s == 0:
            self.remove("Pod", name)
            return
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
        pod["metadata"]["deletionTimestamp"] = (self.now + timedelta(seconds=grace)).isoformat()
        self.touch(pod)

    def controllers(self) -> None:
        """The StatefulSet controller and the garbage collector catch up."""
        self._collect_garbage()
        for body in self.of_kind("StatefulSet").values():
            self._sync(body)

    def _collect_garbage(self) -> None:
        uids = {body["metadata"]["uid"] for body in self.objects.values()}
        for (kind, name), body in sorted(self.objects.items()):
            owners = body["metadata"].get("ownerReferences", ())
            if owners and not any(owner["uid"] in uids for owner in owners):
                if kind == "Pod" and "deletionTimestamp" not in body["metadata"]:
                    self.delete_pod(name)
                elif kind != "Pod":
                    self.remove(kind, name)

    def _sync(self, body: dict[str, Any]) -> None:
        name, spec = body["metadata"]["name"], body["spec"]
        start = spec.get("ordinals", {}).get("start", 0)
        wanted = {f"{name}-{i}": i for i in range(start, start + spec["replicas"])}
        mine = {n: p for n, p in self.pods.items() if p["metadata"]["ownerReferences"][0]["name"] == name}
        for pod_name, pod in mine.items():
            failed = pod["status"].get("phase") == "Failed"
            if (failed or pod_name not in wanted) and "deletionTimestamp" not in pod["metadata"]:
                self.delete_pod(pod_name, grace_s=0 if failed else None)
        for pod_name, index in wanted.items():
            if ("Pod", pod_name) not in self.objects:
                self._create_pod(body, pod_name, index)
        status = {
            "replicas": sum(p["metadata"]["ownerReferences"][0]["name"] == name for p in self.pods.values()),
            "observedGeneration": body["metadata"]["generation"],
        }
        if body.get("status") != status:
            body["status"] = status
            self.touch(body)

    def _create_pod(self, body: dict[str, Any], name: str, index: int) -> None:
        template = copy.deepcopy(body["spec"]["template"])
        template["metadata"]["labels"][Label.POD_INDEX] = str(index)
        pod = self.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **template["metadata"],
                    "name": name,
                    "namespace": NAMESPACE,
                    "ownerReferences": [
                        {
                            "kind": "StatefulSet",
                            "name": body["metadata"]["name"],
                            "uid": body["metadata"]["uid"],
                            "controller": True,
                        }
                    ],
                },
                "spec": template["spec"],
                "status": {"phase": "Pending"},
            }
        )
        self.trace.append(f"{name} {pod['metadata']['uid']}")

    def kubelets(self) -> None:
        """Terminating pods end; the others are scheduled, run and become ready."""
        for name, pod in self.pods.items():
            if "deletionTimestamp" in pod["metadata"]:
                self.remove("Pod", name)
            elif pod["status"].get("phase") == "Pending":
                self._run(pod)

    def _run(self, pod: dict[str, Any]) -> None:
        taken = {p["spec"].get("nodeName") for p in self.pods.values()}
        free = [node for node in self.of_kind("Node") if node not in taken]
        if not free:
            return
        pod["spec"]["nodeName"] = free[0]
        pod["status"] = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": self.now.isoformat()}],
            "containerStatuses": [{"name": "engine", "restartCount": 0, "state": {"running": {}}}],
        }
        self.touch(pod)

    def restart_container(self, name: str, *, exit_code: int = 0, reason: str = "Completed") -> None:
        """The kubelet restarts a container in place, as it does after an engine's death."""
        pod = self.get("Pod", name)
        container = pod["status"]["containerStatuses"][0]
        container["restartCount"] += 1
        container["lastState"] = {
            "terminated": {
                "exitCode": exit_code,
                "reason": reason,
                "finishedAt": self.now.isoformat(),
                "message": "CUDA error: the device fell off the bus",
            }
        }
        self.touch(pod)

    def settle(self, *, limit: int = 40, check: Callable[[], None] | None = None) -> None:
        """Let everything move until nothing does; time passes when only a back-off is left."""
        for _ in range(limit):
            before = self._versions()
            decision = self.reconcile()
            if check:
                check()
            self.controllers()
            if check:
                check()
            self.kubelets()
            if check:
                check()
            self.now += timedelta(seconds=1)
            if self._versions() == before and not decision.stages:
                if not decision.requeue_after_s:
                    return
                self.now += timedelta(seconds=decision.requeue_after_s)
        raise AssertionError(f"still moving: {self.status}")

    def _versions(self) -> dict[Place, str]:
        return {place: body["metadata"]["resourceVersion"] for place, body in self.objects.items()}

    def live_pods_by_group(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        groups: dict[str, list[dict[str, Any]]] = {}
        for pod in self.pods.values():
            groups.setdefault(pod["metadata"]["labels"][Label.GROUP_INDEX], []).append(pod)
        yield from sorted(groups.items())
