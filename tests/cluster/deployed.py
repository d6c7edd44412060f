"""A ModelDeployment under test, and an operator that can be stopped and started under it."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from operator_process import MDEP, OperatorAccount, running_operator
from shardwright_operator.threaded import ThreadedOperator

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

CHILD_RESOURCES = (
    "controllerrevisions.apps",
    "statefulsets.apps",
    "services",
    "networkpolicies.networking.k8s.io",
    "poddisruptionbudgets.policy",
    "configmaps",
    "jobs.batch",
)
LEADER, WORKER = "llama-0-leader-0", "llama-0-worker-1"


class Deployed:
    """One ModelDeployment named ``llama``."""

    def __init__(self, api: Client, namespace: str, spec: Json, *, name: str = "llama") -> None:
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

    def edit(self, **spec: Any) -> None:
        """Merge into the spec."""
        self.api.patch(MDEP, self.name, {"spec": spec}, self.namespace)

    @property
    def live(self) -> Json:
        return self.api.get(MDEP, self.name, self.namespace)

    @property
    def status(self) -> Json:
        return dict(self.live.get("status") or {})

    @property
    def group(self) -> Json:
        return dict((self.status.get("groups") or [{}])[0])

    def condition(self, type_: str) -> tuple[str, str]:
        """Status and reason of a condition, or two empty texts."""
        found = self._condition(type_)
        return str(found.get("status", "")), str(found.get("reason", ""))

    def message(self, type_: str) -> str:
        return str(self._condition(type_).get("message", ""))

    def wait(self, type_: str, status: str, reason: str, *, timeout_s: float = 30.0) -> str:
        """Wait for a condition of the spec as it now stands; returns its message."""
        generation = self.live["metadata"]["generation"]

        def stands() -> bool:
            found = self._condition(type_)
            return (found.get("status"), found.get("reason"), found.get("observedGeneration")) == (
                status,
                reason,
                generation,
            )

        wait_for(
            stands, f"{type_} is {status}, {reason}", timeout_s=timeout_s, detail=lambda: _words(self.status)
        )
        return self.message(type_)

    def wait_ready(self, *, timeout_s: float = 30.0) -> list[Json]:
        """Wait until it is Ready; returns the pods."""
        self.wait("Ready", "True", "GroupsReady", timeout_s=timeout_s)
        return self.pods()

    def wait_replaced(self, old: list[Json], *, timeout_s: float = 30.0) -> list[Json]:
        """Wait until it is Ready with pods none of which is one of the old ones; returns them."""
        gone = {pod["metadata"]["uid"] for pod in old}

        def whole() -> bool:
            uids = [pod["metadata"]["uid"] for pod in self.pods()]
            # The sets' controller may replace a lost pod before the operator takes the group down: those do
            # not count, and only what the leader set records tells them apart.
            formed = self.leader_notes().get("members", "").split(",") == uids
            return formed and gone.isdisjoint(uids) and self.condition("Ready")[0] == "True"

        wait_for(whole, "the group came back whole", timeout_s=timeout_s, detail=lambda: _words(self.status))
        return self.pods()

    def pods(self) -> list[Json]:
        """The groups' pods by name; those that are going away too. Pods of a download are none of them."""
        chosen = f"shardwright.dev/model-deployment={self.name},shardwright.dev/group-index"
        pods = self.api.list("pods", self.namespace, labels=chosen)
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def uids(self) -> dict[str, str]:
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

    def children(self) -> list[Json]:
        """What stands of the operator's own objects; the sets' controller keeps revisions of its own."""
        selector = f"shardwright.dev/model-deployment={self.name}"
        return [
            child
            for resource in CHILD_RESOURCES
            for child in self.api.list(resource, self.namespace, labels=selector)
            if all(o["kind"] != "StatefulSet" for o in child["metadata"].get("ownerReferences") or ())
        ]

    def wait_gone(self, *, timeout_s: float = 30.0) -> None:
        """Wait until neither children nor pods are left."""
        wait_for(
            lambda: not self.children() and not self.pods(),
            "nothing is left",
            timeout_s=timeout_s,
            detail=lambda: [c["metadata"]["name"] for c in (*self.children(), *self.pods())],
        )

    def _condition(self, type_: str) -> Json:
        return next((dict(c) for c in self.status.get("conditions") or () if c["type"] == type_), {})


def _words(status: Json) -> str:
    conditions = [
        f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in status.get("conditions", ())
    ]
    groups = [
        f"group {g['index']}: {g['phase']} {g['reason']}: {g['message']}" for g in status.get("groups", ())
    ]
    return "\n".join([*conditions, *groups])


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
