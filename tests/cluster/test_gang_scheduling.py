"""Gang schedulers on a real API server: Kubernetes' own at work, of Volcano and Kueue the published CRDs.

The control plane is one of its own, with the feature gates that Kubernetes 1.36 keeps off.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterator

import pytest

from control_plane.audit import AuditEvent, now, read_audit, rights_used
from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.plane import ControlPlane, Settings
from control_plane.waiting import wait_for
from deployed import LLAMA_405B, WORKER, Deployed, collected, conditions
from operator_process import OperatorAccount, crd, grant_account, running_operator
from published_crds import kueue_workload, volcano_pod_group
from shardwright_operator.api.constants import Annotation
from shardwright_operator.api.gang import GANG_APIS, Gang
from threaded_operator import ThreadedOperator

__all__ = ["collected", "crd"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("collected")]

Nodes = Callable[..., tuple[str, ...]]
Start = Callable[..., ThreadedOperator]

GATES = "GenericWorkload=true"
BY_KUBERNETES: Json = {**LLAMA_405B, "scheduling": {"gang": "Kubernetes"}}
RACK = "topology.example/rack"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A control plane with Kubernetes' gang scheduling on."""
    settings = Settings(
        api_server_arguments=(
            f"--feature-gates={GATES},TopologyAwareWorkloadScheduling=true",
            "--runtime-config=scheduling.k8s.io/v1alpha2=true",
        ),
        controller_manager_arguments=(f"--feature-gates={GATES}",),
        scheduler_arguments=(
            f"--feature-gates={GATES},GangScheduling=true,TopologyAwareWorkloadScheduling=true",
        ),
    )
    with ControlPlane(settings=settings) as plane:
        yield plane.cluster


@pytest.fixture
def namespace(api: Client, make_namespace: Callable[..., str]) -> Iterator[str]:
    """A fresh namespace. Its pods are gone at the end: they would take nodes of the next test."""
    name = make_namespace()
    yield name
    api.request("DELETE", f"/apis/shardwright.dev/v1alpha1/namespaces/{name}/modeldeployments")
    wait_for(lambda: not api.list("pods", name), "no pod is left", timeout_s=60)


@pytest.fixture(scope="module")
def account(cluster: Cluster, api: Client, crd: None) -> OperatorAccount:
    """The chart's identity with all gang schedulers switched on."""
    namespace = f"operator-{uuid.uuid4().hex[:8]}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    return grant_account(cluster, api, namespace, switches=tuple(f"gang.{gang.lower()}" for gang in Gang))


@pytest.fixture
def start(cluster: Cluster, account: OperatorAccount) -> Start:
    """``start(Gang.KUBERNETES)`` is an operator for these gang schedulers, as a context manager."""

    def start(*gangs: Gang, **settings: object) -> ThreadedOperator:
        return running_operator(
            cluster, kubeconfig=account.kubeconfig, gangs=gangs, **account.lease, **settings
        )

    return start


@pytest.fixture
def published(cluster: Cluster, api: Client) -> Iterator[Callable[[Json], None]]:
    """``published(definition)`` installs a CustomResourceDefinition, which is gone after the test."""
    made: list[str] = []

    def install(definition: Json) -> None:
        made.append(definition["metadata"]["name"])
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(definition))
        spec = definition["spec"]
        for version in spec["versions"]:
            base, plural = f"/apis/{spec['group']}/{version['name']}", spec["names"]["plural"]
            # Discovery tells of it a moment before or after the first list is answered.
            wait_for(
                lambda base=base, plural=plural: (  # type: ignore[misc]
                    any(r["name"] == plural for r in api.request("GET", base)["resources"])
                    and api.request("GET", f"{base}/{plural}")
                ),
                f"{base}/{plural} is served",
            )

    yield install
    for name in made:
        api.delete("customresourcedefinitions.apiextensions.k8s.io", name)


def gangs(api: Client, namespace: str, gang: Gang = Gang.KUBERNETES) -> dict[str, Json]:
    """What stands for groups at a gang scheduler, by name."""
    kind = GANG_APIS[gang]
    answer = api.request("GET", f"/apis/{kind.api_version}/namespaces/{namespace}/{kind.plural}")
    return {item["metadata"]["name"]: item for item in answer["items"]}


def uids(api: Client, namespace: str, gang: Gang) -> set[str]:
    return {body["metadata"]["uid"] for body in gangs(api, namespace, gang).values()}


def nodes_of(deployed: Deployed) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in deployed.pods()]


def bound(cluster: Cluster, namespace: str, since: object) -> set[str]:
    """Resources of which the scheduler has bound any pod to a node."""
    assert cluster.audit_log is not None
    seen = read_audit(cluster.audit_log, since=since, namespace=namespace, resource="pods", verbs=["create"])  # type: ignore[arg-type]
    return {event.name.split("-")[0] for event in seen if event.subresource == "binding"}


def first_made(events: list[AuditEvent], resource: str, name: str) -> int:
    """Place in the log of the request that made an object."""
    return next(
        place
        for place, event in enumerate(events)
        if (event.resource, event.name, event.code) == (resource, name, 201)
    )


@pytest.mark.parametrize(
    ("nodes", "missing"),
    [
        pytest.param(2, "0 found, 16 GPUs are missing", id="two nodes"),
        pytest.param(3, "1 found, 8 GPUs are missing", id="and one on which a half could sit"),
    ],
)
def test_of_two_that_want_the_same_two_nodes_one_runs_whole_and_the_other_waits_whole(
    *,
    nodes: int,
    missing: str,
    cluster: Cluster,
    api: Client,
    namespace: str,
    gpu_nodes: Nodes,
    start: Start,
    account: OperatorAccount,
) -> None:
    gpu_nodes("H100-SXM-80GB", nodes)
    began = now()
    both = [Deployed(api, namespace, BY_KUBERNETES, name=name) for name in ("alpha", "beta")]
    with start(Gang.KUBERNETES):
        for deployed in both:
            deployed.create()
        outcome = {("True", "GroupsReady"), ("False", "WaitingForCapacity")}
        wait_for(
            lambda: {d.condition("Ready") for d in both} == outcome,
            "one runs and one waits",
            detail=lambda: [d.message("Ready") for d in both],
        )
        winner, loser = sorted(both, key=lambda d: d.condition("Ready")[0] != "True")
        # The count follows at the next look where the scheduler's word came before the news of the winner.
        wait_for(
            lambda: missing in loser.message("Ready"),
            missing,
            timeout_s=60,
            detail=lambda: loser.message("Ready"),
        )
        # Of a rank that finds a node the scheduler says no more than that it waits for the rest of its group.
        told = rf"{nodes} nodes are available|for minCount pods from a gang"
        assert re.search(told, loser.message("Ready"))
        # Nobody was held back: all pods are there for the scheduler to see.
        assert [len(d.pods()) for d in both] == [2, 2]
        assert nodes_of(loser) == ["", ""]
        assert bound(cluster, namespace, began) == {winner.name}

        winner.edit(replicas=0)
        loser.wait_ready()
        assert all(nodes_of(loser))

    assert cluster.audit_log is not None
    seen = read_audit(cluster.audit_log, user=account.user, since=began, namespace=namespace)
    for name in ("alpha-0", "beta-0"):
        group = first_made(seen, "podgroups", name)
        assert group < first_made(seen, "statefulsets", f"{name}-leader")
        assert group < first_made(seen, "statefulsets", f"{name}-worker")


def test_a_group_that_breaks_comes_back_with_an_object_of_its_own_and_both_go_with_the_resource(
    api: Client, namespace: str, gpu_nodes: Nodes, start: Start
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    with start(Gang.KUBERNETES):
        llama = Deployed(api, namespace, BY_KUBERNETES).create_ready()
        before = llama.pods()
        first = gangs(api, namespace)["llama-0"]["metadata"]["uid"]
        api.delete("pods", WORKER, namespace)
        llama.wait_replaced(before)
        (second,) = gangs(api, namespace).values()
        assert second["metadata"]["uid"] != first
        llama.edit(replicas=0)
        llama.wait("Ready", "True", "ScaledToZero")
        wait_for(lambda: not gangs(api, namespace), "the object is gone with its group")


def test_a_group_is_packed_into_the_one_rack_that_holds_all_of_it(
    api: Client, namespace: str, gpu_nodes: Nodes, start: Start
) -> None:
    # Emptier racks come first where pods are placed one by one: the first pod would go to a rack of one node.
    small = [gpu_nodes("H100-SXM-80GB", 1, labels={RACK: f"small-{i}"})[0] for i in range(3)]
    large = gpu_nodes("H100-SXM-80GB", 2, labels={RACK: "large"})
    scheduling = {"gang": "Kubernetes", "topologyKey": RACK}
    with start(Gang.KUBERNETES):
        llama = Deployed(api, namespace, {**LLAMA_405B, "scheduling": scheduling}).create_ready()
        assert sorted(nodes_of(llama)) == sorted(large)
        assert llama.condition("FieldsOverridden") == ("", "")
    assert not set(small) & set(nodes_of(llama))


def test_an_unchanged_group_needs_no_write(
    cluster: Cluster, api: Client, namespace: str, gpu_nodes: Nodes, start: Start, account: OperatorAccount
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    with start(Gang.KUBERNETES):
        Deployed(api, namespace, BY_KUBERNETES).create_ready()
    began = now()
    with start(Gang.KUBERNETES):
        # Its waiting is told in a pass that came after one over the group.
        Deployed(api, namespace, LLAMA_405B, name="witness").create().wait(
            "Ready", "False", "WaitingForCapacity"
        )
    assert cluster.audit_log is not None
    seen = read_audit(cluster.audit_log, user=account.user, since=began, namespace=namespace, leases=False)
    assert [e.uri for e in seen if e.is_write and "llama" in e.name] == []


def _members(api: Client, namespace: str) -> str:
    leader_set = api.get("statefulsets.apps", "llama-0-leader", namespace)
    return str(leader_set["metadata"]["annotations"].get(Annotation.MEMBERS, ""))


PUBLISHED = [
    pytest.param(Gang.VOLCANO, volcano_pod_group, {"gang": "Volcano", "queueName": "team-a"}, id="Volcano"),
    pytest.param(Gang.KUEUE, kueue_workload, {"gang": "Kueue", "queueName": "team-a"}, id="Kueue"),
]


@pytest.mark.parametrize(("gang", "definition", "scheduling"), PUBLISHED)
def test_the_published_definition_takes_the_object_as_it_is_rendered(
    *,
    gang: Gang,
    definition: Callable[[], Json],
    scheduling: Json,
    api: Client,
    namespace: str,
    gpu_nodes: Nodes,
    start: Start,
    published: Callable[[Json], None],
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    published(definition())
    spec = {**LLAMA_405B, "scheduling": {**scheduling, "priorityClassName": "system-cluster-critical"}}
    with start(gang):
        llama = Deployed(api, namespace, spec).create()
        wait_for(lambda: len(llama.pods()) == 2, "the pods are made", detail=lambda: llama.message("Ready"))
        assert list(gangs(api, namespace, gang)) == ["llama-0"]
        # A field that the definition does not have would be cut out, and the operator would say so.
        assert llama.condition("FieldsOverridden") == ("", "")
        before = uids(api, namespace, gang)
        # A pod that was never seen is no loss, and Volcano's own scheduler is not here to run any.
        wait_for(lambda: _members(api, namespace), "the group's members are recorded")
        api.delete("pods", WORKER, namespace)
        wait_for(lambda: len(uids(api, namespace, gang) - before) == 1, "another attempt has another object")
        llama.edit(replicas=0)
        llama.wait("Ready", "True", "ScaledToZero")
        assert gangs(api, namespace, gang) == {}


def test_a_scheduler_that_is_not_there_is_one_condition_until_it_is(
    api: Client,
    namespace: str,
    gpu_nodes: Nodes,
    start: Start,
    published: Callable[[Json], None],
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    scheduling = {"gang": "Volcano"}
    with start(Gang.VOLCANO, resync_interval_s=1) as running:
        llama = Deployed(api, namespace, {**LLAMA_405B, "scheduling": scheduling}).create()
        message = llama.wait("Stalled", "True", "GangUnavailable")
        assert message == (
            "spec.scheduling.gang is Volcano, but the cluster does not serve PodGroup "
            "(scheduling.volcano.sh/v1beta1): install Volcano"
        )
        assert llama.pods() == []
        published(volcano_pod_group())
        wait_for(lambda: running.exit_code == 0, "it ends in order, to be started anew by its kubelet")
    with start(Gang.VOLCANO):
        wait_for(lambda: len(llama.pods()) == 2, "the pods are made", detail=lambda: llama.message("Ready"))
        # The status is the last write of the pass that made their sets.
        llama.wait_status(lambda found: "Stalled" not in conditions(found), "nobody is needed any more")


def test_a_scheduler_that_is_not_switched_on_is_one_condition(
    api: Client, namespace: str, gpu_nodes: Nodes, start: Start
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    with start():
        llama = Deployed(api, namespace, BY_KUBERNETES).create()
        message = llama.wait("Ready", "False", "GangUnavailable")
    assert "install it with gang.kubernetes=true (chart)" in message


def test_rights_of_the_switch_are_used_and_no_request_was_refused(
    cluster: Cluster, api: Client, namespace: str, gpu_nodes: Nodes, start: Start, account: OperatorAccount
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    began = now()
    with start(Gang.KUBERNETES):
        llama = Deployed(api, namespace, BY_KUBERNETES).create_ready()
        llama.edit(replicas=0)
        llama.wait("Ready", "True", "ScaledToZero")
    assert cluster.audit_log is not None
    seen = read_audit(cluster.audit_log, user=account.user, since=began)
    verbs = {right.verb for right in rights_used(seen) if right[:2] == ("scheduling.k8s.io", "podgroups")}
    assert verbs == {"list", "watch", "create", "patch", "delete"}
    assert [event.uri for event in seen if event.code == 403 and event.namespace in {"", namespace}] == []
