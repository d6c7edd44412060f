"""What Kubernetes misses to collect of a resource that was made again is removed, and nothing else is."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from control_plane.audit import now, read_audit
from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.plane import ControlPlane
from deployed import LLAMA_8B, LLAMA_405B, Deployed, OperatorSwitch, switch, wait_collected
from operator_process import MDEP, OperatorAccount, crd, operator_account
from shardwright_operator.decide import obstacles

__all__ = ["crd", "operator_account", "switch"]

pytestmark = pytest.mark.cluster

Nodes = Callable[..., tuple[str, ...]]
H100 = "H100-SXM-80GB"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose API server may be down."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane) -> Cluster:
    return plane.cluster


@pytest.fixture(scope="module", autouse=True)
def collected(plane: ControlPlane, api: Client, crd: None) -> None:
    """The garbage collector knows the kind: a new one looks at once, the old one in up to 30 s."""
    plane.restart("kube-controller-manager")
    wait_collected(api)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes has two seconds to collect, and not a minute."""
    monkeypatch.setattr(obstacles, "COLLECTED_WITHIN", timedelta(seconds=2))


def owner_reference(owner: Json, *, controller: bool) -> Json:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": controller,
    }


def labelled(api: Client, namespace: str, name: str, *owners: Json) -> Json:
    """A Service that is labelled as one of llama's, under a name that is none of llama's."""
    labels = {"app.kubernetes.io/managed-by": "shardwright", "shardwright.dev/model-deployment": "llama"}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": list(owners)}
    spec = {"ports": [{"name": "mine", "port": 1}]}
    return api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})


def uids(objects: list[Json]) -> set[str]:
    return {str(found["metadata"]["uid"]) for found in objects}


def test_what_the_collector_missed_is_removed_and_nothing_that_lives(
    *,
    plane: ControlPlane,
    api: Client,
    cluster: Cluster,
    make_namespace: Callable[..., str],
    gpu_nodes: Nodes,
    switch: OperatorSwitch,
    operator_account: OperatorAccount,
    impatient: None,
) -> None:
    """The collector's watch breaks, and the resource is deleted and made again before it is back."""
    gpu_nodes(H100, 4)
    namespace, elsewhere = make_namespace(), make_namespace()
    llama = Deployed(api, namespace, LLAMA_405B).create()
    living = [
        Deployed(api, namespace, LLAMA_8B, name="llama-0").create(),
        Deployed(api, elsewhere, LLAMA_8B).create(),
    ]
    for deployed in (llama, *living):
        deployed.wait_ready()
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": namespace}}
    owner = api.create(config)
    namesake = {**llama.live, "apiVersion": "models.example.com/v1"}
    left = {(child["metadata"]["name"], child["metadata"]["uid"]) for child in llama.children()}
    switch.down()
    strangers = [
        labelled(api, namespace, "of-another-kind", owner_reference(owner, controller=True)),
        labelled(api, namespace, "of-another-group", owner_reference(namesake, controller=True)),
    ]
    standing = {
        *uids([child for deployed in living for child in (*deployed.children(), *deployed.pods())]),
        *uids(strangers),
    }

    with plane.behind_all_watches() as unseen:
        unseen.delete(MDEP, "llama", namespace, propagation="Background")
        Deployed(unseen, namespace, LLAMA_405B).create()
    # The collector sees ends of this kind again. It has been told of everything else, and leaves these.
    wait_collected(api)
    assert left <= {(child["metadata"]["name"], child["metadata"]["uid"]) for child in llama.children()}

    since = now()
    switch.up()
    llama.wait("Ready", "False", "NameConflict")
    llama.wait_ready()
    assert cluster.audit_log is not None
    deleted = [
        event.name
        for event in read_audit(
            cluster.audit_log, user=operator_account.user, since=since, verbs={"delete", "deletecollection"}
        )
        if event.resource != "pods"
    ]
    assert sorted(deleted) == sorted(name for name, _ in left)
    assert uids(llama.children()).isdisjoint(uid for _, uid in left)
    found = [child for deployed in living for child in (*deployed.children(), *deployed.pods())]
    found += [api.get("services", stranger["metadata"]["name"], namespace) for stranger in strangers]
    assert uids(found) == standing
