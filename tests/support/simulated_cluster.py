"""A small cluster in memory: objects, a StatefulSet controller, a scheduler, kubelets, a garbage collector.

It is a model, not a proof: the same sequences run on a real API server elsewhere. What it adds is speed and
control: each controller moves only when a test lets it.
"""

import copy
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from shardwright_operator.api.constants import GPU_RESOURCE, Label
from shardwright_operator.api.gang import GANG_APIS, Gang, kind_of

NAMESPACE = "models"
POD_GROUP = GANG_APIS[Gang.KUBERNETES].kind
Place = tuple[str, str]


class SimulatedCluster:
    """Objects by kind and name, and everybody who moves them but the operator."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.objects: dict[Place, dict[str, Any]] = {}
        self.trace: list[str] = []
        """Name and UID of every pod that was made."""
        self.course: Callable[[dict[str, Any]], str] = lambda _pod: ""
        """What becomes of a pod on its node: ``image`` (cannot be pulled), ``unready``, else all is well."""
        self.refuses: Callable[[dict[str, Any]], str] = lambda _pod: ""
        """Why the scheduler takes no node for a pod though its GPUs are there, in its words."""
        self._counter = itertools.count(1)

    def tell(self, body: dict[str, Any], *, deleted: bool) -> None:
        """An event for whoever watches."""

    # -- objects --------------------------------------------------------------------------------------

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        body = copy.deepcopy(body)
        body["metadata"].setdefault("uid", f"uid-{next(self._counter)}")
        body["metadata"].setdefault("creationTimestamp", self.now.isoformat())
        self.objects[kind_of(body), body["metadata"]["name"]] = body
        self.touch(body)
        return body

    def touch(self, body: dict[str, Any]) -> None:
        body["metadata"]["resourceVersion"] = str(next(self._counter))
        self.tell(body, deleted=False)

    def unlabel(self, kind: str, name: str, label: str) -> None:
        """Somebody takes a label away; without the one that watches select by, an object leaves the watch."""
        body = self.get(kind, name)
        del body["metadata"]["labels"][label]
        body["metadata"]["resourceVersion"] = str(next(self._counter))
        self.tell(body, deleted=label == Label.MANAGED_BY)

    def remove(self, kind: str, name: str) -> None:
        body = self.objects.pop((kind, name), None)
        if body is not None:
            body["metadata"]["resourceVersion"] = str(next(self._counter))
            self.tell(body, deleted=True)

    def remove_gently(self, kind: str, name: str) -> None:
        """As ``remove``; but Kubernetes keeps a PodGroup until no pod names it any more."""
        body = self.objects.get((kind, name))
        if body is None or kind != POD_GROUP or not self._in_gang(name):
            self.remove(kind, name)
        elif "deletionTimestamp" not in body["metadata"]:
            body["metadata"]["deletionTimestamp"] = self.now.isoformat()
            self.touch(body)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self.objects[kind, name]

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        return {name: body for (k, name), body in sorted(self.objects.items()) if k == kind}

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        return self.of_kind("Pod")

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

    def add_priority_class(self, name: str, value: int, *, is_default: bool = False) -> None:
        self.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "globalDefault": is_default,
            }
        )

    def preempt(self, name: str) -> None:
        """The scheduler takes a pod away for one of a higher priority."""
        pod = self.get("Pod", name)
        words = "default-scheduler: preempting to accommodate a higher priority pod"
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        pod["status"].setdefault("conditions", []).append({**condition, "message": words})
        self.touch(pod)
        self.delete_pod(name)

    def occupy(self, node: str, gpus: int = 8, name: str = "stranger") -> None:
        """Somebody else's pod takes GPUs of a node."""
        resources = {"limits": {GPU_RESOURCE: str(gpus)}}
        self.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "elsewhere"},
                "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
                "status": {"phase": "Running"},
            }
        )

    def cordon(self, node: str, *, cordoned: bool = True) -> None:
        body = self.get("Node", node)
        body["spec"]["unschedulable"] = cordoned
        self.touch(body)

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
        for name, body in self.of_kind(POD_GROUP).items():
            if "deletionTimestamp" in body["metadata"]:
                self.remove_gently(POD_GROUP, name)
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
        mine = {n: p for n, p in self.pods.items() if _set_of(p) == name}
        for pod_name, pod in mine.items():
            failed = pod["status"].get("phase") == "Failed"
            if (failed or pod_name not in wanted) and "deletionTimestamp" not in pod["metadata"]:
                self.delete_pod(pod_name, grace_s=0 if failed else None)
        for pod_name, index in wanted.items():
            if ("Pod", pod_name) not in self.objects:
                self._create_pod(body, pod_name, index)
        status = {
            "replicas": sum(_set_of(pod) == name for pod in self.pods.values()),
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
        """Terminating pods end; the others are scheduled, run and become ready.

        The scheduler takes higher priorities first, and of one priority rank 0 of every group: of groups that
        compete, each would get a part. It preempts nobody by itself.
        """
        for name, pod in self.pods.items():
            if "deletionTimestamp" in pod["metadata"]:
                self.remove("Pod", name)
        for pod in sorted(self.pods.values(), key=self._turn):
            placed = "nodeName" in pod["spec"]
            if pod["status"].get("phase") == "Pending" and (placed or self._schedule(pod)):
                self._run(pod)

    def _turn(self, pod: dict[str, Any]) -> tuple[int, str]:
        named = self.objects.get(("PriorityClass", pod["spec"].get("priorityClassName", "")), {})
        return -named.get("value", 0), pod["metadata"]["name"].rpartition("-")[2]

    def _schedule(self, pod: dict[str, Any]) -> bool:
        free = [name for name, node in self.of_kind("Node").items() if self._takes(node, pod)]
        words = self.refuses(pod)
        together = self._placed_with(pod)
        if free and not words and len(free) >= len(together) > 0:
            for each, node in zip(together, free, strict=False):
                each["spec"]["nodeName"] = node
            return True
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        words = words or "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
        conditions = [{**condition, "message": words}]
        if pod["status"].get("conditions") != conditions:
            pod["status"]["conditions"] = conditions
            self.touch(pod)
        return False

    def _placed_with(self, pod: dict[str, Any]) -> list[dict[str, Any]]:
        """Pods that are placed at once with this one or not at all; none while its PodGroup is not whole."""
        gang = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
        if gang is None:
            return [pod]
        group, pods = self.objects.get((POD_GROUP, gang)), self._in_gang(gang)
        if group is None or len(pods) < group["spec"]["schedulingPolicy"]["gang"]["minCount"]:
            return []
        return [each for each in pods if "nodeName" not in each["spec"]]

    def _in_gang(self, name: str) -> list[dict[str, Any]]:
        """Pods that name a PodGroup."""
        reference = {"podGroupName": name}
        return [p for p in self.pods.values() if p["spec"].get("schedulingGroup") == reference]

    def _takes(self, node: dict[str, Any], pod: dict[str, Any]) -> bool:
        here = [p for p in self.pods.values() if p["spec"].get("nodeName") == node["metadata"]["name"]]
        free = int(node["status"]["allocatable"][GPU_RESOURCE]) - sum(map(gpus_of, here))
        ready = node["status"]["conditions"][0]["status"] == "True"
        alone = not any(_group_of(p) == _group_of(pod) for p in here)
        return ready and alone and not node["spec"].get("unschedulable") and free >= gpus_of(pod)

    def _run(self, pod: dict[str, Any]) -> None:
        course = self.course(pod)
        if course == "image":
            waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
            status: dict[str, Any] = {"phase": "Pending"}
            state: dict[str, Any] = {"waiting": waiting}
        else:
            status, state = {"phase": "Running"}, {"running": {}}
        if course == "":
            stamp = self.now.isoformat()
            status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": stamp}]
        started = course == ""
        container = {"name": "engine", "restartCount": 0, "started": started, "state": state}
        status["containerStatuses"] = [container]
        if pod["status"] != status:
            pod["status"] = status
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

    def _versions(self) -> dict[Place, str]:
        return {place: body["metadata"]["resourceVersion"] for place, body in self.objects.items()}

    def formations(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """Pods by resource and group."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for pod in self.pods.values():
            group = _group_of(pod)
            if group is not None:
                found.setdefault(group, []).append(pod)
        return dict(sorted(found.items()))


def gpus_of(pod: dict[str, Any]) -> int:
    """GPUs that a pod asks for."""
    limits = (c.get("resources", {}).get("limits", {}) for c in pod["spec"]["containers"])
    return sum(int(limit.get(GPU_RESOURCE, 0)) for limit in limits)


def _group_of(pod: dict[str, Any]) -> tuple[str, str] | None:
    labels = pod["metadata"].get("labels", {})
    if Label.DEPLOYMENT not in labels:
        return None
    return labels[Label.DEPLOYMENT], labels[Label.GROUP_INDEX]


def _set_of(pod: dict[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences") or ({},)
    return str(owners[0].get("name", ""))
