"""Simulated GPU nodes: made, cordoned, tainted, lost, brought back and removed.

A node is only an API object; kwok keeps its lease and its conditions. What happens to its pods is what the
real scheduler and the real node controller make of it.
"""

import contextlib
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from control_plane.client import STRATEGIC, ApiError, Client, Json
from control_plane.faults import PLAY
from control_plane.gpus import NodeGpu, node_gpu
from control_plane.waiting import wait_for

Taint = Mapping[str, str]
"""``key``, ``effect`` and perhaps ``value``."""

NotReady = Literal["False", "Unknown"]
"""``False``: the kubelet reports trouble; ``Unknown``: it is silent, as after a power cut."""


def make_nodes(
    client: Client,
    gpu: str | None = "H100-SXM-80GB",
    count: int = 2,
    *,
    gpus_per_node: int | None = None,
    prefix: str | None = None,
    zone: str = "zone-a",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    discovery_labels: bool = True,
    wait: bool = True,
) -> tuple[str, ...]:
    """Create ``count`` nodes of a catalogue GPU and return their names.

    ``gpu=None`` makes nodes without GPUs. Without ``discovery_labels`` the nodes lack what GPU feature
    discovery writes (clouds label theirs in their own way: pass those as ``labels``). With ``wait`` the nodes
    are Ready on return. Raises KeyError for an unknown GPU.
    """
    kind = None if gpu is None else node_gpu(gpu)
    base = prefix or f"{(gpu or 'cpu').lower()}-{uuid.uuid4().hex[:5]}"
    names = tuple(f"{base}-{index}" for index in range(count))
    for name in names:
        node = _node(name, kind, gpus_per_node, zone)
        if kind is not None and not discovery_labels:
            for key in kind.labels(0):
                del node["metadata"]["labels"][key]
        node["metadata"]["labels"].update(labels or {})
        if taints:
            node["spec"]["taints"] = [dict(taint) for taint in taints]
        client.create(node)
    if wait:
        wait_for(lambda: all(is_ready(client, name) for name in names), f"nodes {base}-* are Ready")
    return names


def _node(name: str, gpu: NodeGpu | None, gpus: int | None, zone: str) -> Json:
    count = 0 if gpu is None else gpu.per_node if gpus is None else gpus
    allocatable = {
        "cpu": str(gpu.cpus if gpu else 32),
        "memory": f"{gpu.memory_gib if gpu else 128}Gi",
        "ephemeral-storage": "4Ti",
        "pods": "250",
    }
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": zone,
    }
    if gpu is not None:
        allocatable["nvidia.com/gpu"] = str(count)
        labels |= gpu.labels(count)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        # A kwok that runs inside a given cluster manages only nodes with this annotation.
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {},
        "status": {"allocatable": allocatable, "capacity": allocatable, "addresses": _addresses(name)},
    }


def _addresses(name: str) -> list[Json]:
    # Any address will do as nothing is sent there, but nodes differ in it.
    digest = hashlib.sha256(name.encode()).digest()
    return [
        {"type": "InternalIP", "address": f"10.{128 + digest[0] % 64}.{digest[1]}.{digest[2]}"},
        {"type": "Hostname", "address": name},
    ]


def is_ready(client: Client, name: str) -> bool:
    """Tell whether a node is Ready and has lost the taints of its first moments."""
    node = client.get("nodes", name)
    ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in _conditions(node))
    taints = node["spec"].get("taints") or ()
    return ready and not any(taint["key"].startswith("node.kubernetes.io/not-ready") for taint in taints)


def cordon(client: Client, name: str, *, unschedulable: bool = True) -> None:
    """Cordon a node, or take the cordon away."""
    client.patch("nodes", name, {"spec": {"unschedulable": unschedulable}})


def taint(client: Client, name: str, key: str, effect: str, value: str = "") -> None:
    """Add a taint, or change the value of one with the same key and effect."""
    node = client.get("nodes", name)
    others = [
        entry
        for entry in node["spec"].get("taints") or ()
        if (entry["key"], entry["effect"]) != (key, effect)
    ]
    added = {"key": key, "effect": effect, "value": value}
    client.patch("nodes", name, {"spec": {"taints": [*others, added]}})


def untaint(client: Client, name: str, key: str) -> None:
    """Remove all taints of a key."""
    node = client.get("nodes", name)
    rest = [entry for entry in node["spec"].get("taints") or () if entry["key"] != key]
    client.patch("nodes", name, {"spec": {"taints": rest}})


def lose_node(client: Client, name: str, *, ready: NotReady = "Unknown") -> None:
    """Play the loss of a node: it goes NotReady and nobody confirms the end of its pods any more.

    The node controller taints the node and deletes its pods after their ``tolerationSeconds``; they stay
    Terminating until somebody forces them or the node is back. Pods of a silent node turn not ready at once:
    the node controller would do that after 50 s, and only when it has noticed the silence by itself.
    """
    for pod in pods_on(client, name):
        metadata = pod["metadata"]
        client.annotate("pods", metadata["name"], {f"{PLAY}/terminates-after": "24h"}, metadata["namespace"])
    client.annotate("nodes", name, {f"{PLAY}/ready": ready})
    wait_for(lambda: not is_ready(client, name), f"node {name} is not Ready")
    if ready == "Unknown":
        for pod in pods_on(client, name):
            _set_pod_ready(client, pod, "False")


def restore_node(client: Client, name: str) -> None:
    """Bring a lost node back: Ready, with its pods ready again and terminating ones gone."""
    client.annotate("nodes", name, {f"{PLAY}/ready": None})
    wait_for(lambda: is_ready(client, name), f"node {name} is Ready again")
    for pod in pods_on(client, name):
        metadata = pod["metadata"]
        with _may_be_gone():
            client.annotate(
                "pods", metadata["name"], {f"{PLAY}/terminates-after": None}, metadata["namespace"]
            )
            statuses = pod["status"].get("containerStatuses", ())
            if statuses and all(status["ready"] for status in statuses):
                _set_pod_ready(client, pod, "True")


def _set_pod_ready(client: Client, pod: Json, status: str) -> None:
    metadata = pod["metadata"]
    body = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    with _may_be_gone():
        client.patch(
            "pods",
            metadata["name"],
            body,
            metadata["namespace"],
            subresource="status",
            content_type=STRATEGIC,
        )


@contextlib.contextmanager
def _may_be_gone() -> Iterator[None]:
    """Pass over objects that vanish between being listed and being written."""
    try:
        yield
    except ApiError as error:
        if error.reason != "NotFound":
            raise


def delete_nodes(client: Client, names: Iterable[str]) -> None:
    """Remove nodes with their pods, at once.

    Without the node nobody would confirm the pods' end: they would stay Terminating, and their namespace
    with them, until the pod garbage collector comes by.
    """
    for name in names:
        if client.find("nodes", name) is None:
            continue
        cordon(client, name)
        for pod in pods_on(client, name):
            metadata = pod["metadata"]
            with _may_be_gone():
                client.delete("pods", metadata["name"], metadata["namespace"], grace_s=0)
        client.delete("nodes", name)


def pods_on(client: Client, name: str) -> list[Json]:
    """List the pods of all namespaces that are bound to a node."""
    return client.list("pods", fields=f"spec.nodeName={name}")


def _conditions(node: Json) -> Sequence[Json]:
    return node.get("status", {}).get("conditions") or ()
