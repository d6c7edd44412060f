"""What stands for a group at each gang scheduler, and how its pods name it."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from shardwright_operator.api.gang import GANG_APIS, Gang
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.gang import gang_object
from shardwright_operator.build.gang_wish import GangWish
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.revision import Revision, RevisionError, from_manifest, named, to_manifest
from shardwright_operator.build.stateful_set import leader_set, worker_set
from shardwright_planner.plan import Plan

GOLDEN = Path(__file__).parent / "golden" / "gangs.yaml"
MODEL = {"name": "meta-llama/Llama-3.1-405B-Instruct"}

Make = Callable[[dict[str, object]], Revision]


@pytest.fixture
def revision_of(
    owner: Owner, pool: PoolSelection, two_nodes: Plan, make_revision: Callable[..., Revision]
) -> Make:
    """The revision of a 405B over two nodes with this ``spec.scheduling``."""

    def make(scheduling: dict[str, object]) -> Revision:
        spec: dict[str, object] = {"model": MODEL, "scheduling": scheduling}
        return make_revision(spec, two_nodes, owner, pool)

    return make


def test_objects_and_references_are_as_reviewed(owner: Owner, revision_of: Make) -> None:
    documents = []
    packed = {"topologyKey": "topology.kubernetes.io/block", "priorityClassName": "serving"}
    for gang in Gang:
        queue = {} if gang is Gang.KUBERNETES else {"queueName": "team-a"}
        revision = revision_of({"gang": gang.value, **queue, **packed})
        found = gang_object(owner, revision, 0)
        assert found is not None
        for pod_set in found["spec"].get("podSets", ()):
            # The pods themselves stand in other reviewed files.
            assert "affinity" in pod_set["template"]["spec"]
            pod_set["template"]["spec"] = "..."
        pods = [
            leader_set(owner, revision, 0, replicas=1, annotations={})["spec"]["template"],
            worker_set(owner, revision, 0, replicas=1)["spec"]["template"],
        ]
        shown = ("schedulerName", "schedulingGroup", "priorityClassName")
        references = [
            {"metadata": pod["metadata"], "spec": {k: v for k, v in pod["spec"].items() if k in shown}}
            for pod in pods
        ]
        documents.append({"gang": gang.value, "object": found, "pods": references})
    documents = json.loads(json.dumps(documents))
    text = yaml.safe_dump_all(documents, sort_keys=False, width=110, default_flow_style=False)
    if os.environ.get("SHARDWRIGHT_UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text


def test_without_the_wish_there_is_no_object_and_the_pods_are_as_they_were(
    owner: Owner, revision_of: Make
) -> None:
    revision = revision_of({})
    assert gang_object(owner, revision, 0) is None
    template = leader_set(owner, revision, 0, replicas=1, annotations={})["spec"]["template"]
    assert template["spec"].keys() == revision.leader_template["spec"].keys()
    assert "gang" not in to_manifest(revision, owner)["data"]


@pytest.mark.parametrize("given", ["volcano-batch", None])
def test_a_scheduler_of_another_name_is_the_users_to_choose(given: str | None, revision_of: Make) -> None:
    scheduling: dict[str, object] = {"gang": "Volcano"}
    if given:
        scheduling["schedulerName"] = given
    assert revision_of(scheduling).leader_template["spec"]["schedulerName"] == (given or "volcano")


@pytest.mark.parametrize("gang", [gang.value for gang in Gang])
def test_a_revision_keeps_the_wish(gang: str, owner: Owner, revision_of: Make) -> None:
    scheduling: dict[str, object] = {"gang": gang, "topologyKey": "rack"}
    if gang != "Kubernetes":
        scheduling["queueName"] = "team-a"
    revision = named(revision_of(scheduling), owner)
    assert from_manifest(to_manifest(revision, owner)) == revision
    assert revision.pods_hash != revision_of({"topologyKey": "rack"}).pods_hash


def test_a_scheduler_of_a_newer_operator_makes_a_revision_unreadable(owner: Owner, revision_of: Make) -> None:
    manifest = to_manifest(named(revision_of({"gang": "Kubernetes"}), owner), owner)
    manifest["data"]["gang"]["scheduler"] = "Slurm"
    with pytest.raises(RevisionError, match="Slurm"):
        from_manifest(manifest)


def test_every_choice_has_its_api() -> None:
    assert set(GANG_APIS) == set(Gang)
    assert len({api.kind for api in GANG_APIS.values()}) == len(Gang)


def test_the_wish_is_that_of_the_spec() -> None:
    spec = parse_spec(
        {"model": MODEL, "scheduling": {"gang": "Kueue", "queueName": "q", "priorityClassName": "p"}}
    )
    assert GangWish.of(spec.scheduling) == GangWish(gang=Gang.KUEUE, queue="q", priority_class="p")
