"""What a storm rages on: the resources, the nodes, and all through which it can strike."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.nodes import cordon, make_nodes, restore_node
from control_plane.plane import ControlPlane
from git_tool import GitTool
from loopback_proxy import LoopbackProxy
from operator_keeper import OperatorKeeper
from operator_process import MDEP

NODES = 14
GPU = "H100-SXM-80GB"

_LLAMA_405B: Json = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "hardware": {"gpu": GPU, "gpusPerNode": 8, "maxNodes": 2},
}
_LLAMA_8B: Json = {
    "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
    "hardware": {"gpu": GPU, "gpusPerNode": 8, "maxNodes": 1},
}
_RECOVERY: Json = {"backoff": "1s", "maxBackoff": "3s", "maxRestarts": 1000}
_SOON_LOST: Json = {
    "tolerations": [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 2,
        }
        for condition in ("not-ready", "unreachable")
    ]
}

SPECS: Mapping[str, Json] = {
    "healed": {**_LLAMA_405B, "replicas": 2, "recovery": _RECOVERY},
    "surging": {
        **_LLAMA_405B,
        "replicas": 1,
        "recovery": _RECOVERY,
        "rollout": {"maxUnavailable": 0, "maxSurge": 1},
    },
    "pair": {
        **_LLAMA_405B,
        "replicas": 1,
        "recovery": _RECOVERY,
        "scheduling": _SOON_LOST,
        # It is asked, before its groups, whether that is there.
        "engine": {"apiKeySecretRef": {"name": "door", "key": "api"}},
    },
    "small": {**_LLAMA_8B, "replicas": 3, "recovery": _RECOVERY, "rollout": {"maxSurge": 1}},
}
"""What stands at the beginning and is asked for again at the end.

It fits with a surge group of each, also when each small pod has taken a node of its own.
"""

IN_GIT = "healed"
"""Name of the resource that a GitOps tool applies again and again."""


def manifest(name: str, namespace: str, spec: Json) -> Json:
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


@dataclass(slots=True, kw_only=True)
class Grounds:
    """One cluster in a storm."""

    plane: ControlPlane
    api: Client
    namespace: str
    proxy: LoopbackProxy
    keeper: OperatorKeeper
    git: GitTool
    cordoned: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    deleted: int = 0
    """Nodes that are gone, and to be made anew under other names."""
    made: int = 0
    outages: list[tuple[float, float]] = field(default_factory=list)

    @property
    def cluster(self) -> Cluster:
        return self.plane.cluster

    def resources(self) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.api.list(MDEP, self.namespace))

    def edit(self, name: str, spec: Json) -> None:
        """Merge into the spec, by kubectl."""
        body = json.dumps({"spec": spec})
        self.cluster.kubectl("patch", "mdep", name, "-n", self.namespace, "--type=merge", "-p", body)

    def apply(self, name: str, spec: Json) -> None:
        """Apply the whole resource as it is at the beginning, over everything that was edited."""
        live = self.api.find(MDEP, name, self.namespace)
        wanted = manifest(name, self.namespace, spec)
        if live is None:
            self.api.create(wanted)
        else:
            self.api.replace({**live, "spec": spec})

    def nodes(self) -> list[str]:
        """Nodes that nothing has befallen."""
        away = {*self.cordoned, *self.lost}
        return sorted(n for n in (i["metadata"]["name"] for i in self.api.list("nodes")) if n not in away)

    @property
    def away(self) -> int:
        return len(self.cordoned) + len(self.lost) + self.deleted

    def make_nodes(self, count: int) -> None:
        self.made += 1
        make_nodes(self.api, GPU, count, prefix=f"gpu-{self.made}")

    def bring_nodes_back(self) -> str:
        """Uncordon, restore and replace nodes until as many serve as at the beginning."""
        told = (
            f"{len(self.cordoned)} cordoned, {len(self.lost)} lost and {self.deleted} deleted nodes are back"
        )
        while self.cordoned:
            cordon(self.api, self.cordoned[-1], unschedulable=False)
            self.cordoned.pop()
        while self.lost:
            restore_node(self.api, self.lost[-1])
            self.lost.pop()
        if self.deleted:
            self.make_nodes(self.deleted)
            self.deleted = 0
        return told

    def pick(self, rng: random.Random, resource: str) -> Json | None:
        """One object of a kind that the operator owns, or a pod of it; None if there is none."""
        labels = "shardwright.dev/model-deployment"
        found = [
            item
            for item in self.api.list(resource, self.namespace, labels=labels)
            if resource != "controllerrevisions.apps" or not _is_a_set_s(item)
        ]
        return rng.choice(sorted(found, key=lambda item: str(item["metadata"]["name"]))) if found else None


def _is_a_set_s(item: Json) -> bool:
    return any(owner["kind"] == "StatefulSet" for owner in item["metadata"].get("ownerReferences") or ())
