"""The children as far as golden files do not say why: selectors, replicas, policies, placement."""

from collections.abc import Callable

import pytest

from shardwright_operator.api.constants import Label, Role
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.network_policy import network_policy
from shardwright_operator.build.owner import Owner, labels, selector, selector_text
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.revision import Revision
from shardwright_operator.build.scheduling import placement
from shardwright_operator.build.service import client_service, ranks_service
from shardwright_operator.build.stateful_set import leader_set, worker_set
from shardwright_planner.plan import Plan

MODEL = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}


@pytest.fixture
def revision(
    owner: Owner, pool: PoolSelection, two_nodes: Plan, make_revision: Callable[..., Revision]
) -> Revision:
    return make_revision(MODEL, two_nodes, owner, pool)


def test_selectors_select_exactly_their_pods(revision: Revision, owner: Owner) -> None:
    """By the labels that the templates really carry: one group's leader and worker, and a second group's."""
    sets = [leader_set(owner, revision, group, replicas=1, annotations={}) for group in (1, 11)]
    sets += [worker_set(owner, revision, group, replicas=1) for group in (1, 11)]
    pods = {made["metadata"]["name"]: made["spec"]["template"]["metadata"]["labels"] for made in sets}

    def selected(wanted: dict[str, str]) -> set[str]:
        return {name for name, own in pods.items() if wanted.items() <= own.items()}

    for made in sets:
        assert selected(made["spec"]["selector"]["matchLabels"]) == {made["metadata"]["name"]}
    assert selected(client_service(owner)["spec"]["selector"]) == {"llama-1-leader", "llama-11-leader"}
    assert selected(ranks_service(owner, 1)["spec"]["selector"]) == {"llama-1-leader", "llama-1-worker"}


def test_immutable_selector_holds_nothing_of_the_revision(revision: Revision, owner: Owner) -> None:
    made = leader_set(owner, revision, 0, replicas=0, annotations={})
    assert Label.PODS not in made["spec"]["selector"]["matchLabels"]
    assert made["spec"]["template"]["metadata"]["labels"][Label.PODS] == revision.pods_hash
    assert made["spec"]["replicas"] == 0


def test_annotations_stand_in_one_order(revision: Revision, owner: Owner) -> None:
    made = leader_set(owner, revision, 0, replicas=1, annotations={"b": "2", "a": "1"})
    assert list(made["metadata"]["annotations"]) == ["a", "b"]


def test_no_workers_in_a_group_of_one(
    owner: Owner, pool: PoolSelection, make_plan: Callable[..., Plan], make_revision: Callable[..., Revision]
) -> None:
    with pytest.raises(ValueError, match="groups of one pod"):
        worker_set(owner, make_revision(MODEL, make_plan(), owner, pool), 0, replicas=0)


def test_scale_selector_counts_leaders(owner: Owner) -> None:
    assert selector_text(owner) == "shardwright.dev/model-deployment=llama,shardwright.dev/role=leader"


def test_labels_hold_every_selector(owner: Owner) -> None:
    assert selector(owner, 3, Role.WORKER).items() <= labels(owner, 3, Role.WORKER).items()


@pytest.mark.parametrize(
    ("clients", "api"),
    [
        pytest.param(None, [{"ports": [{"port": "http", "protocol": "TCP"}]}], id="open to all by default"),
        pytest.param([], [], id="an empty list is nobody"),
        pytest.param(
            [{"podSelector": {"matchLabels": {"b": "2", "a": "1"}}}, {"namespaceSelector": {}}],
            [
                {
                    "ports": [{"port": "http", "protocol": "TCP"}],
                    "from": [
                        {"podSelector": {"matchLabels": {"a": "1", "b": "2"}}},
                        {"namespaceSelector": {}},
                    ],
                }
            ],
            id="pods here, and every namespace",
        ),
    ],
)
def test_who_reaches_the_api(clients: list[object] | None, api: list[object], owner: Owner) -> None:
    network = {} if clients is None else {"clients": clients}
    spec = parse_spec({**MODEL, "network": network})
    assert network_policy(owner, 0, spec.network)["spec"]["ingress"][1:] == api


def test_users_toleration_replaces_ours_of_the_same_taint(owner: Owner) -> None:
    own = [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "h100", "effect": "NoSchedule"},
        {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 5,
        },
    ]
    spec = parse_spec({**MODEL, "scheduling": {"tolerations": own}})
    found = placement(spec.scheduling, PoolSelection(), owner, members=1)
    assert found == {
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 60,
            },
            *own,
        ]
    }
