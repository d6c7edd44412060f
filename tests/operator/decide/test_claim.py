"""The claim with the model after a plan was accepted: replaced, gone for a while, wanted by more pods."""

from typing import Any

import pytest

from shardwright_operator.observe.views import ClaimState, ClaimView
from simulated_world import SimulatedWorld

WEIGHTS: dict[str, Any] = {"source": {"persistentVolumeClaim": {"claimName": "weights"}}}
LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct", **WEIGHTS},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
}
LLAMA_8B: dict[str, Any] = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct", **WEIGHTS}}
MISSING = ClaimView(name="weights", state=ClaimState.MISSING)


def claim(*modes: str, created: str = "", name: str = "weights", **fields: str) -> ClaimView:
    return ClaimView(name=name, state=ClaimState.FOUND, access_modes=modes, created=created, **fields)


def running(spec: dict[str, Any], found: ClaimView) -> SimulatedWorld:
    world = SimulatedWorld(spec)
    world.claim = found
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")
    world.writes.clear()
    return world


@pytest.mark.parametrize(
    "found", [pytest.param(MISSING, id="gone"), pytest.param(claim("ReadWriteOnce"), id="another")]
)
def test_groups_that_run_keep_what_they_have_mounted(found: ClaimView) -> None:
    world = running(LLAMA_405B, claim("ReadWriteMany"))
    world.claim = found
    world.settle()
    assert (world.writes, world.condition("Ready")) == ([], ("True", "GroupsReady"))


@pytest.mark.parametrize(
    ("found", "reason", "stalled", "text"),
    [
        pytest.param(
            MISSING,
            "WaitingForVolume",
            None,
            "the PersistentVolumeClaim 'weights' of spec.model.source.persistentVolumeClaim does not exist; "
            "create it in this namespace, with access mode ReadOnlyMany or ReadWriteMany",
            id="gone",
        ),
        pytest.param(
            claim("ReadWriteOnce"),
            "VolumeNotShared",
            ("True", "VolumeNotShared"),
            "its access modes are ReadWriteOnce and 2 pods on 2 nodes need it",
            id="made anew for one node",
        ),
    ],
)
def test_a_broken_group_waits_for_a_claim_that_it_can_mount(
    found: ClaimView, reason: str, stalled: tuple[str, str] | None, text: str
) -> None:
    world = running(LLAMA_405B, claim("ReadWriteMany"))
    world.claim = found
    world.delete_pod("llama-0-worker-1")
    world.run_for(60)
    assert world.condition("Ready") == ("False", reason)
    assert world.condition("Stalled") == stalled
    assert world.condition("PlanAccepted") == ("True", "Planned")
    assert text in world.status["groups"][0]["message"]
    assert world.of_kind("Pod") == {}
    again_s = world.decision().requeue_after_s
    assert again_s is not None
    assert again_s <= 15

    world.claim = claim("ReadWriteMany")
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


UNBOUND = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param(
            claim("ReadWriteMany", phase="Pending", storage_class="nfs"),
            "PersistentVolumeClaim 'weights' (StorageClass 'nfs') is not bound to a volume; see that the "
            "class exists and can make a volume, or create a PersistentVolume for it: kubectl describe pvc "
            "weights has the reason",
            id="no volume of its class",
        ),
        pytest.param(
            claim("ReadWriteMany", phase="Pending"),
            "PersistentVolumeClaim 'weights' (no StorageClass) is not bound to a volume; create a "
            "PersistentVolume for it, or a claim that names a StorageClass: kubectl describe pvc weights has "
            "the reason",
            id="no class",
        ),
        pytest.param(
            claim("ReadWriteMany", phase="Bound", storage_class="zonal"),
            "PersistentVolumeClaim 'weights' (StorageClass 'zonal') is Bound; its volume must be within "
            "reach of nodes with free GPUs: kubectl describe pvc weights",
            id="a volume elsewhere",
        ),
    ],
)
def test_a_pod_that_waits_for_its_volume_names_the_claim_its_class_and_what_to_do(
    found: ClaimView, told: str
) -> None:
    # The scheduler names neither: whoever read its words had to look for the claim first.
    world = SimulatedWorld(LLAMA_8B)
    world.claim = found
    world.refuses = lambda _pod: UNBOUND
    world.run_for(5)
    assert world.condition("Ready") == ("False", "WaitingForVolume")
    expected = f"rank 0 (llama-0-leader-0) fits no node: {UNBOUND}; {told}"
    assert world.status["groups"][0]["message"] == expected


def test_the_claim_is_not_blamed_for_other_wants() -> None:
    world = SimulatedWorld(LLAMA_8B)
    world.claim = claim("ReadWriteMany", phase="Bound", storage_class="nfs")
    world.refuses = lambda _pod: "0/2 nodes are available: 2 Insufficient memory."
    world.run_for(5)
    assert world.condition("Ready") == ("False", "WaitingForCapacity")
    assert "weights" not in world.status["groups"][0]["message"]


def test_more_groups_than_the_claim_can_serve() -> None:
    world = running(LLAMA_8B, claim("ReadWriteOnce"))
    world.edit(lambda spec: spec.update(replicas=2))
    world.run_for(60)
    assert world.condition("Ready") == ("False", "VolumeNotShared")
    assert world.condition("Stalled") == ("True", "VolumeNotShared")
    assert world.status["ready"] == "1/2"
    assert list(world.of_kind("StatefulSet")) == ["llama-0-leader"]

    world.edit(lambda spec: spec.update(replicas=1))
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


def test_a_cache_that_was_made_anew_is_filled_again() -> None:
    cached = {
        "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
        "storage": {"modelCache": {"claimName": "c"}},
    }
    world = SimulatedWorld(cached)
    world.claim = claim("ReadWriteMany", name="c", created="2026-01-01T00:00:00Z")
    world.settle()
    complete(world)
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")
    (first,) = world.of_kind("Job").values()

    pods = world.of_kind("Pod")
    world.claim = claim("ReadWriteMany", name="c", created="2026-01-01T02:00:00Z")
    world.settle()
    (second,) = world.of_kind("Job").values()
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert world.condition("ModelDownloaded") == ("False", "Downloading")
    assert world.condition("Available") == ("True", "GroupsReady")
    assert world.of_kind("Pod") == pods


def complete(world: SimulatedWorld) -> None:
    """What the Job's controller writes at the end."""
    (job,) = world.of_kind("Job").values()
    ended = {"conditions": [{"type": "Complete", "status": "True"}], "completionTime": "2026-01-01T01:00:00Z"}
    job["status"] = {"startTime": "2026-01-01T00:00:10Z", "succeeded": 1, **ended}
    world.touch(job)
