"""Whether Kubernetes collects what deleted resources leave: a storm's end cannot be judged without that.

The collector of kube-controller-manager follows objects by watches of its own. When one breaks, and a
resource is deleted and made again under its name before it is back, the new watch shows one object that has
changed, and what the old one left stays until the controller-manager starts anew. In three storms everything
that such a resource left, made long before its end, was collected in the seconds after that start, up to
192 s late (Kubernetes 1.36, ``garbagecollector/graph_builder.go``: an update is never seen as an end).
"""

import uuid

from control_plane.client import Client
from control_plane.waiting import wait_for

COLLECTED_S = 120.0


def wait_for_collector(api: Client, namespace: str) -> None:
    """Leave an object whose owner never was, and wait until it is collected.

    Raises AssertionError when it stays: then it is Kubernetes that does not collect.
    """
    name = f"left-{uuid.uuid4().hex[:8]}"
    owner = {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "name": name,
        "uid": str(uuid.uuid4()),
        "controller": True,
    }
    metadata = {"name": name, "namespace": namespace, "ownerReferences": [owner]}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    wait_for(
        lambda: api.find("configmaps", name, namespace) is None,
        "the garbage collector works",
        timeout_s=COLLECTED_S,
    )
