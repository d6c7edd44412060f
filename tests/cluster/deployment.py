"""One ModelDeployment on a real cluster, as the tests look at it: by what the API server says of it."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from control_plane.audit import WRITE_VERBS, AuditEvent, read_audit
from control_plane.client import ApiError, Client, Json
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for

MDEP = "modeldeployments.shardwright.dev"
SETS = "statefulsets.apps"
POLICIES = "networkpolicies.networking.k8s.io"
BUDGETS = "poddisruptionbudgets.policy"
REVISIONS = "controllerrevisions.apps"
PREFIX = "shardwright.dev"

PATIENCE_S = 60.0
"""All of this takes a second or two; the rest is for a machine that is busy with other things."""

LLAMA_405B: Json = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "slo": {"concurrency": 32, "timePerOutputToken": "150ms", "timeToFirstToken": "30s"},
}
LLAMA_8B: Json = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}
NCCL_DEBUG: Json = {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}


@pytest.fixture
def leave_no_demand(api: Client, namespace: str, gpu_nodes: object) -> Iterator[None]:
    """After a test its resources go at once, before their nodes do.

    A namespace takes its time to go, and meanwhile a resource in it that lost its nodes would be the first in
    the queue for those of the next test.
    """
    yield
    for resource in api.list(MDEP, namespace):
        with contextlib.suppress(ApiError):
            api.delete(MDEP, resource["metadata"]["name"], namespace)


class Deployment:
    """A ModelDeployment by namespace and name. Nothing is cached: each look is a request."""

    def __init__(self, api: Client, namespace: str, name: str = "llama") -> None:
        self.api = api
        self.namespace = namespace
        self.name = name

    def create(self, spec: Json) -> "Deployment":
        metadata = {"namespace": self.namespace, "name": self.name}
        self.api.create(
            {
                "apiVersion": f"{PREFIX}/v1alpha1",
                "kind": "ModelDeployment",
                "metadata": metadata,
                "spec": spec,
            }
        )
        return self

    def edit(self, spec: Json) -> None:
        """Merge a change into the spec; None removes a field."""
        self.api.patch(MDEP, self.name, {"spec": spec}, self.namespace)

    @property
    def resource(self) -> Json:
        return self.api.get(MDEP, self.name, self.namespace)

    @property
    def status(self) -> Json:
        return dict(self.resource.get("status") or {})

    @property
    def plan(self) -> Json:
        return dict(self.status["plan"])

    def condition(self, type_: str) -> tuple[str, str] | None:
        """Status and reason of a condition, None when it is absent."""
        return conditions(self.status).get(type_)

    def message(self, type_: str) -> str:
        found = (c["message"] for c in self.status.get("conditions") or () if c["type"] == type_)
        return str(next(found, ""))

    def wait(self, predicate: Callable[[Json], object], what: str, *, timeout_s: float = PATIENCE_S) -> Json:
        """Wait until the status tells of the current spec and satisfies ``predicate``; return it."""

        def look() -> Json | None:
            resource = self.resource
            status = dict(resource.get("status") or {})
            current = status.get("observedGeneration") == resource["metadata"]["generation"]
            return status if current and predicate(status) else None

        return wait_for(look, what, timeout_s=timeout_s, detail=self.describe)

    def wait_ready(self, *, timeout_s: float = PATIENCE_S) -> Json:
        """Wait until it is Ready for its current spec."""
        return self.wait(
            lambda status: conditions(status).get("Ready", ("", ""))[0] == "True",
            f"{self.name} is Ready",
            timeout_s=timeout_s,
        )

    def wait_reason(self, type_: str, reason: str, *, timeout_s: float = PATIENCE_S) -> Json:
        """Wait until a condition has a reason."""
        return self.wait(
            lambda status: conditions(status).get(type_, ("", ""))[1] == reason,
            f"{type_} of {self.name} says {reason}",
            timeout_s=timeout_s,
        )

    def objects(self, resource: str) -> dict[str, Json]:
        """Its children of a kind, by name; of ControllerRevisions only its own."""
        selector = f"{PREFIX}/model-deployment={self.name}"
        if resource == REVISIONS:
            selector += f",!{PREFIX}/group-index"
        found = self.api.list(resource, self.namespace, labels=selector)
        return {item["metadata"]["name"]: item for item in found}

    def pods(self) -> dict[str, Json]:
        return self.objects("pods")

    def pod_uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def events(self) -> list[Json]:
        """Events on it, oldest first; equal seconds in the order in which the server stored them."""
        found = self.api.list("events", self.namespace, fields=f"involvedObject.name={self.name}")
        mine = [e for e in found if e["involvedObject"]["kind"] == "ModelDeployment"]
        return sorted(mine, key=lambda e: int(e["metadata"]["resourceVersion"]))

    def reasons(self) -> list[str]:
        return [str(event["reason"]) for event in self.events()]

    def describe(self) -> str:
        """What a person would look at first when a wait has failed."""
        sets = {n: (s["spec"]["replicas"], s.get("status")) for n, s in self.objects(SETS).items()}
        pods = {n: (p["spec"].get("nodeName"), p["status"].get("phase")) for n, p in self.pods().items()}
        status = {k: v for k, v in self.status.items() if k != "plan"}
        return "\n".join(json.dumps(part, indent=1) for part in (status, sets, pods, self.reasons()))


def conditions(status: Json) -> dict[str, tuple[str, str]]:
    """Status and reason of all conditions, by type."""
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions") or ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """A pod came or went."""

    added: bool
    name: str
    uid: str
    group: str
    pods_hash: str


class PodTrace:
    """What happened to the pods of a namespace since this was made, as the API server remembers it."""

    def __init__(self, api: Client, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        answer = api.request("GET", self._path, query={"limit": "500"})
        self._version = str(answer["metadata"]["resourceVersion"])
        self._before = [_pod_event(pod, added=True) for pod in answer["items"]]

    def events(self) -> list[PodEvent]:
        """Pods that came and went, in order."""
        query = {"watch": "true", "resourceVersion": self._version, "timeoutSeconds": "1"}
        answer = self._api.request("GET", self._path, query=query)
        # One event is an object, several are lines; the client hands over what is no JSON as text.
        raw = (
            [answer]
            if "type" in answer
            else [json.loads(line) for line in answer.get("message", "").splitlines()]
        )
        found = [e for e in raw if e["type"] in {"ADDED", "DELETED"}]
        return [_pod_event(e["object"], added=e["type"] == "ADDED") for e in found]

    def generations(self, group: str = "0") -> list[set[str]]:
        """UIDs of the pods of a group that lived together, one set for each time that the group was whole.

        Raises an AssertionError when a pod came while one of another revision was still there, or after the
        group had begun to go down and before all of it was gone: this is the barrier.
        """
        alive = {e.uid: e for e in self._before if e.group == group}
        lives = [set(alive)] if alive else []
        going = False
        for event in (e for e in self.events() if e.group == group):
            if event.added:
                assert not (alive and going), f"{event} came while {list(alive.values())} were still there"
                assert {e.pods_hash for e in alive.values()} <= {event.pods_hash}, f"{event} met {alive}"
                if not alive:
                    lives.append(set())
                    going = False
                alive[event.uid] = event
                lives[-1].add(event.uid)
            else:
                del alive[event.uid]
                going = True
        return lives


def _pod_event(pod: Json, *, added: bool) -> PodEvent:
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    return PodEvent(
        added=added,
        name=metadata["name"],
        uid=metadata["uid"],
        group=labels.get(f"{PREFIX}/group-index", ""),
        pods_hash=labels.get(f"{PREFIX}/pods", ""),
    )


def writes_of(cluster: Cluster, user: str, since: datetime, namespace: str | None = None) -> list[AuditEvent]:
    """Requests of a user that change something, by the audit log; the Lease apart."""
    if cluster.audit_log is None:
        pytest.skip("the given cluster's audit log cannot be read")
    return read_audit(
        cluster.audit_log, user=user, since=since, namespace=namespace, verbs=WRITE_VERBS, leases=False
    )


def described(events: Iterable[AuditEvent]) -> list[str]:
    """Requests in short, for comparisons and failures."""
    return [f"{event.verb} {event.full_resource} {event.name}" for event in events]


def gone(find: Callable[[], Any]) -> bool:
    """Whether a look at an object answers that there is none."""
    try:
        return find() is None
    except ApiError as error:
        if error.reason == "NotFound":
            return True
        raise
