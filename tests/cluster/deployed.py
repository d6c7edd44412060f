"""A ModelDeployment under test, and an operator that can be stopped and started under it."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from control_plane.client import ApiError, Client, Json
from control_plane.cluster import Cluster
from control_plane.waiting import PATIENCE_S, wait_for
from operator_process import MDEP, OperatorAccount, running_operator
from threaded_operator import ThreadedOperator

SETS = "statefulsets.apps"
POLICIES = "networkpolicies.networking.k8s.io"
BUDGETS = "poddisruptionbudgets.policy"
REVISIONS = "controllerrevisions.apps"

LLAMA_405B: Json = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
    "recovery": {"backoff": "1s", "maxBackoff": "2s"},
}
"""Two pods on two nodes of eight GPUs, which come back after a second."""

LLAMA_8B: Json = {
    "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 1},
    "recovery": {"backoff": "1s", "maxBackoff": "2s"},
}
"""One pod with one GPU."""

FOUND_405B: Json = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "slo": {"concurrency": 32, "timePerOutputToken": "150ms", "timeToFirstToken": "30s"},
}
"""With a service level, on nodes that the operator finds."""

FOUND_8B: Json = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}
NCCL_DEBUG: Json = {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}
"""An engine's section that alters pods and no plan."""

CHILD_RESOURCES = (REVISIONS, SETS, "services", POLICIES, BUDGETS, "configmaps", "jobs.batch")
LEADER, WORKER = "llama-0-leader-0", "llama-0-worker-1"


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


class Deployed:
    """One ModelDeployment, as the tests look at it: by what the API server says. Each look is a request."""

    def __init__(self, api: Client, namespace: str, spec: Json, *, name: str = "llama") -> None:
        """``spec`` is what ``create`` sends; it does not count for a resource that somebody else applies."""
        self.api = api
        self.namespace = namespace
        self.name = name
        self.spec = spec
        self.created: Json = {}

    def create(self) -> "Deployed":
        manifest = {
            "apiVersion": "shardwright.dev/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self.spec,
        }
        self.created = self.api.create(manifest)
        return self

    def create_ready(self) -> "Deployed":
        """Create it and wait until it is Ready."""
        self.create().wait_ready()
        return self

    def edit(self, **spec: Any) -> None:
        """Merge into the spec; None removes a field."""
        self.api.patch(MDEP, self.name, {"spec": spec}, self.namespace)

    @property
    def live(self) -> Json:
        return self.api.get(MDEP, self.name, self.namespace)

    @property
    def status(self) -> Json:
        return dict(self.live.get("status") or {})

    @property
    def plan(self) -> Json:
        return dict(self.status["plan"])

    @property
    def group(self) -> Json:
        return dict((self.status.get("groups") or [{}])[0])

    def condition(self, type_: str) -> tuple[str, str]:
        """Status and reason of a condition, or two empty texts."""
        found = self._condition(type_)
        return str(found.get("status", "")), str(found.get("reason", ""))

    def message(self, type_: str) -> str:
        return str(self._condition(type_).get("message", ""))

    def wait(self, type_: str, status: str, reason: str, *, timeout_s: float = PATIENCE_S) -> str:
        """Wait for a condition of the spec as it now stands; returns its message."""
        self.wait_status(
            lambda found: conditions(found).get(type_) == (status, reason),
            f"{type_} of {self.name} is {status}, {reason}",
            timeout_s=timeout_s,
        )
        return self.message(type_)

    def wait_status(
        self, predicate: Callable[[Json], object], what: str, *, timeout_s: float = PATIENCE_S
    ) -> Json:
        """Wait until the status tells of the current spec and satisfies ``predicate``; returns it."""

        def look() -> Json | None:
            live = self.live
            status = dict(live.get("status") or {})
            current = status.get("observedGeneration") == live["metadata"]["generation"]
            return status if current and predicate(status) else None

        return wait_for(look, what, timeout_s=timeout_s, detail=self.describe)

    def wait_ready(self, *, timeout_s: float = PATIENCE_S) -> Json:
        """Wait until it is Ready for its current spec; returns the status."""
        return self.wait_status(
            lambda status: conditions(status).get("Ready", ("", ""))[0] == "True",
            f"{self.name} is Ready",
            timeout_s=timeout_s,
        )

    def wait_replaced(self, old: list[Json], *, timeout_s: float = PATIENCE_S) -> list[Json]:
        """Wait until it is Ready with pods none of which is one of the old ones; returns them."""
        gone = {pod["metadata"]["uid"] for pod in old}

        def whole() -> bool:
            uids = [pod["metadata"]["uid"] for pod in self.pods()]
            # The sets' controller may replace a lost pod before the operator takes the group down: those do
            # not count, and only what the leader set records tells them apart.
            formed = self.leader_notes().get("members", "").split(",") == uids
            return formed and gone.isdisjoint(uids) and self.condition("Ready")[0] == "True"

        wait_for(whole, "the group came back whole", timeout_s=timeout_s, detail=self.describe)
        return self.pods()

    def pods(self) -> list[Json]:
        """The groups' pods by name; those that are going away too. Pods of a download are none of them."""
        chosen = f"shardwright.dev/model-deployment={self.name},shardwright.dev/group-index"
        pods = self.api.list("pods", self.namespace, labels=chosen)
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def uids(self) -> dict[str, str]:
        """UIDs of the pods, by name."""
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}

    def leader_notes(self) -> dict[str, str]:
        """Our annotations of the leader set, without their prefix."""
        body = self.api.get("statefulsets.apps", f"{self.name}-0-leader", self.namespace)
        notes = body["metadata"].get("annotations") or {}
        return {
            k.removeprefix("shardwright.dev/"): v
            for k, v in notes.items()
            if k.startswith("shardwright.dev/")
        }

    def evidence(self) -> Json:
        return dict(json.loads(self.leader_notes().get("first-failure", "{}")))

    def objects(self, resource: str) -> dict[str, Json]:
        """The operator's own objects of a kind, by name; the sets' controller keeps revisions of its own."""
        selector = f"shardwright.dev/model-deployment={self.name}"
        return {
            str(found["metadata"]["name"]): found
            for found in self.api.list(resource, self.namespace, labels=selector)
            if all(o["kind"] != "StatefulSet" for o in found["metadata"].get("ownerReferences") or ())
        }

    def children(self) -> list[Json]:
        """What stands of the operator's own objects."""
        return [child for resource in CHILD_RESOURCES for child in self.objects(resource).values()]

    def events(self) -> list[Json]:
        """Events on it, oldest first; equal seconds in the order in which the server stored them."""
        found = self.api.list("events", self.namespace, fields=f"involvedObject.name={self.name}")
        mine = [e for e in found if e["involvedObject"]["kind"] == "ModelDeployment"]
        return sorted(mine, key=lambda e: int(e["metadata"]["resourceVersion"]))

    def reasons(self) -> list[str]:
        """Reasons of the Events on it."""
        return [str(event["reason"]) for event in self.events()]

    def describe(self) -> str:
        """What a person would look at first when a wait has failed."""
        status = self.status
        told = [
            *(
                f"{c['type']}={c['status']} {c['reason']}: {c['message']}"
                for c in status.get("conditions", ())
            ),
            *(
                f"group {g['index']}: {g['phase']} {g['reason']}: {g['message']}"
                for g in status.get("groups", ())
            ),
        ]
        sets = {n: (s["spec"]["replicas"], s.get("status")) for n, s in self.objects(SETS).items()}
        pods = [
            (p["metadata"]["name"], p["spec"].get("nodeName"), p["status"].get("phase")) for p in self.pods()
        ]
        return "\n".join([*told, *(json.dumps(part) for part in (sets, pods, self.reasons()))])

    def wait_gone(self, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until neither children nor pods are left."""
        wait_for(
            lambda: not self.children() and not self.pods(),
            "nothing is left",
            timeout_s=timeout_s,
            detail=lambda: [c["metadata"]["name"] for c in (*self.children(), *self.pods())],
        )

    def _condition(self, type_: str) -> Json:
        return next((dict(c) for c in self.status.get("conditions") or () if c["type"] == type_), {})


def conditions(status: Json) -> dict[str, tuple[str, str]]:
    """Status and reason of all conditions, by type."""
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions") or ()}


def wait_collected(api: Client) -> None:
    """Wait until the garbage collector knows the kind: it looks for new ones every 30 s only.

    What belongs to an object of a kind that it never knew stays for good when the kind goes.
    """
    owner = Deployed(api, "default", LLAMA_405B, name=f"gc-{uuid.uuid4().hex[:8]}").create().created
    reference = {name: owner[name] for name in ("apiVersion", "kind")} | {
        name: owner["metadata"][name] for name in ("name", "uid")
    }
    name = owner["metadata"]["name"]
    metadata = {"name": name, "namespace": "default", "ownerReferences": [reference]}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    api.delete(MDEP, name, "default")
    wait_for(
        lambda: api.find("configmaps", name, "default") is None,
        "the garbage collector knows the kind",
        timeout_s=90,
    )


@pytest.fixture(scope="module")
def collected(api: Client, crd: None) -> None:
    """The garbage collector knows the kind, as in any cluster that is older than half a minute."""
    wait_collected(api)


class OperatorSwitch:
    """The one operator of a module, which a test may stop and must leave running."""

    def __init__(self, cluster: Cluster, account: OperatorAccount) -> None:
        self._start: Callable[[], ThreadedOperator] = lambda: running_operator(
            cluster, kubeconfig=account.kubeconfig, **account.lease
        )
        self._running: ThreadedOperator | None = None

    def up(self) -> None:
        """Start it, unless it runs."""
        if self._running is None:
            self._running = self._start().__enter__()

    def down(self) -> None:
        """Stop it, if it runs."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Inside the block it does not run."""
        self.down()
        try:
            yield
        finally:
            self.up()


@pytest.fixture(scope="module")
def switch(cluster: Cluster, operator_account: OperatorAccount) -> Iterator[OperatorSwitch]:
    """The operator of this module, which runs from its first test on."""
    switch = OperatorSwitch(cluster, operator_account)
    switch.up()
    yield switch
    switch.down()
