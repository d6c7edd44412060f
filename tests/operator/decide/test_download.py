"""A cached model: one Job before any GPU is taken, and every way in which it does not get there."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright_operator.api.constants import Annotation
from shardwright_operator.observe.views import ClaimState, ClaimView
from simulated_world import SimulatedWorld

CACHED: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-8B-Instruct", "revision": "v1"},
    "storage": {"modelCache": {"claimName": "models"}},
}


@pytest.fixture
def world() -> SimulatedWorld:
    """A resource whose download is under way."""
    found = SimulatedWorld(CACHED)
    found.settle()
    return found


def report(world: SimulatedWorld, **status: Any) -> None:
    """What the Job's controller writes of a download that has begun."""
    world.report_job(startTime="2026-01-01T00:00:10Z", **status)


def ended(type_: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": "True", "message": message}]}


def show_pod(world: SimulatedWorld, *, version: int = 999_999, **status: Any) -> None:
    world.show_job_pod(status, version=version)


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "download", "state": state}]}


def test_no_group_before_the_model_is_there(world: SimulatedWorld) -> None:
    assert world.of_kind("StatefulSet") == {}
    assert world.condition("ModelDownloaded") == ("False", "Downloading")
    assert world.condition("Ready") == ("False", "Downloading")
    assert world.status["model"]["download"]["phase"] == "Pending"
    assert world.status["groups"][0]["phase"] == "Pending"

    report(world, ready=1, active=1)
    world.settle()
    download = world.status["model"]["download"]
    assert (download["phase"], download["startTime"]) == ("Running", "2026-01-01T00:00:10Z")
    assert "downloading 15 GiB since 2026-01-01T00:00:10Z" in download["message"]
    assert world.of_kind("StatefulSet") == {}

    report(world, succeeded=1, completionTime="2026-01-01T01:00:00Z", **ended("Complete"))
    world.settle()
    assert world.condition("ModelDownloaded") == ("True", "Downloaded")
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert world.status["model"] == {
        "source": "Cache",
        "trustRemoteCode": False,
        "download": {
            "job": world.job["metadata"]["name"],
            "phase": "Complete",
            "bytes": world.status["plan"]["weightsBytes"],
            "startTime": "2026-01-01T00:00:10Z",
            "completionTime": "2026-01-01T01:00:00Z",
            "reason": "Downloaded",
            "message": "the model is on the shared claim",
        },
    }


def test_progress_is_told_and_is_no_event(world: SimulatedWorld) -> None:
    planned = world.status["plan"]["weightsBytes"]
    report(world, ready=1, active=1)
    show_pod(world, phase="Running", podIP="10.0.0.7", **container(running={}))
    world.settle()
    (pod,) = world.store.telling_loaders()
    assert (pod.address, pod.progress_port) == ("10.0.0.7", 29610)
    assert "percent" not in world.status["model"]["download"], "it has not been asked yet"

    events = len(world.events)
    seen = []
    for there in (0, planned // 4, planned + 2**30):
        assert world.store.loaded(world.key, pod.uid, there)
        assert not world.store.loaded(world.key, pod.uid, there), "no news twice"
        world.settle()
        download = world.status["model"]["download"]
        seen.append((download["bytes"], download["bytesDownloaded"], download["percent"]))
    assert seen == [(planned, 0, 0), (planned, planned // 4, 25), (planned, planned + 2**30, 99)]
    assert "downloading 15 GiB, of which 16.0 (99 %) are there, since 2026-" in download["message"]
    assert len(world.events) == events

    show_pod(world, version=1_000_000, phase="Failed", **container(terminated={"exitCode": 1}))
    world.settle()
    assert list(world.store.telling_loaders()) == []
    assert world.status["model"]["download"]["percent"] == 99, "the next attempt goes on from there"


def test_user_ids_are_left_to_the_cluster() -> None:
    """As OpenShift's restricted-v2 demands: of the download's pod and of the engine's."""
    other = SimulatedWorld(CACHED)
    other.settings = replace(other.settings, user_id=None)
    other.settle()
    report(other, succeeded=1, **ended("Complete"))
    other.settle()
    pods = [other.job, *other.of_kind("StatefulSet").values()]
    secured = [pod["spec"]["template"]["spec"]["securityContext"] for pod in pods]
    assert secured == 2 * [{"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}]


def test_nothing_is_written_twice(world: SimulatedWorld) -> None:
    report(world, ready=1)
    world.settle()
    world.writes.clear()
    for _ in range(3):
        world.reconcile()

    assert world.writes == []


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        pytest.param(
            container(waiting={"reason": "CreateContainerConfigError", "message": 'secret "hub" not found'}),
            "SecretMissing",
            'secret "hub" not found',
            id="no Secret",
        ),
        pytest.param(
            container(
                waiting={
                    "reason": "CreateContainerConfigError",
                    "message": "couldn't find key token in Secret serving/hub",
                }
            ),
            "SecretMissing",
            "couldn't find key token",
            id="no key in the Secret",
        ),
        pytest.param(
            container(waiting={"reason": "ImagePullBackOff", "message": "no such image"}),
            "ImagePull",
            "no such image",
            id="no image",
        ),
        pytest.param(
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "volume node affinity conflict",
                    }
                ]
            },
            "Downloading",
            "fits no node: volume node affinity conflict",
            id="no node for the claim",
        ),
    ],
)
def test_what_keeps_the_download_from_starting(
    world: SimulatedWorld, status: dict[str, Any], reason: str, text: str
) -> None:
    report(world, active=1)
    show_pod(world, phase="Pending", **status)
    world.settle()

    assert world.condition("Ready") == ("False", reason)
    assert world.condition("Stalled") is None, "the kubelet goes on by itself when it is there"
    assert text in world.status["model"]["download"]["message"]
    assert world.of_kind("StatefulSet") == {}


def test_a_download_that_waits_for_its_volume_names_the_claim_and_its_class(world: SimulatedWorld) -> None:
    world.claim = ClaimView(name="models", state=ClaimState.FOUND, phase="Pending", storage_class="nfs")
    report(world, active=1)
    words = "pod has unbound immediate PersistentVolumeClaims"
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    show_pod(world, phase="Pending", conditions=[unscheduled])
    world.reconcile()

    message = world.status["model"]["download"]["message"]
    assert (
        f"fits no node: {words}; PersistentVolumeClaim 'models' (StorageClass 'nfs') is not bound" in message
    )


def test_pod_that_a_list_lacks_is_forgotten(world: SimulatedWorld) -> None:
    report(world, active=1)
    show_pod(world, phase="Pending", **container(waiting={"reason": "ErrImagePull", "message": "no"}))
    world.settle()
    assert world.condition("Ready") == ("False", "ImagePull")

    assert world.store.prune("Pod", (), version=10**7) == {world.key}
    world.settle()
    assert world.condition("Ready") == ("False", "Downloading")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        pytest.param(
            "shardwright: ModelNotFound: the engine ended with exit code 1: Error: Model 'a' not found.",
            "ModelNotFound",
            id="launcher",
        ),
        pytest.param(
            "Error: Access denied. Model 'meta-llama/x' requires approval.", "AccessDenied", id="bare"
        ),
        pytest.param("OSError: [Errno 28] No space left on device", "DownloadFailed", id="no known cause"),
    ],
)
def test_failed_download_is_stalled_until_the_wish_changes(
    world: SimulatedWorld, words: str, reason: str
) -> None:
    report(world, failed=1, **ended("Failed", "Container download failed with exit code 66"))
    show_pod(world, phase="Failed", **container(terminated={"exitCode": 66, "message": words}))
    world.settle()

    assert world.condition("Stalled") == ("True", reason)
    assert world.condition("ModelDownloaded") == ("False", reason)
    assert words.split(": ", 2)[-1] in world.status["model"]["download"]["message"]
    first = world.job["metadata"]["uid"]

    world.resource["metadata"].setdefault("annotations", {})[Annotation.RETRY] = "again"
    world.touch(world.resource)
    world.settle()
    assert world.job["metadata"]["uid"] != first
    assert world.condition("Stalled") is None


def test_a_corrected_image_begins_a_failing_download_anew(world: SimulatedWorld) -> None:
    first = world.job["metadata"]
    report(world, active=1)
    world.settle()
    world.edit(lambda spec: spec.update(engine={"image": "mirror/vllm:v0.32.0"}))
    world.settle()

    assert (world.job["metadata"]["name"], world.job["metadata"]["uid"] == first["uid"]) == (
        first["name"],
        False,
    )


def test_a_done_download_is_not_done_again_for_another_image(world: SimulatedWorld) -> None:
    report(world, **ended("Complete"))
    world.settle()
    first = world.job["metadata"]["uid"]
    world.edit(lambda spec: spec.update(engine={"image": "mirror/vllm:v0.32.0"}))
    world.settle()

    assert world.job["metadata"]["uid"] == first
    assert world.condition("Ready") == ("True", "GroupsReady")


def test_groups_serve_on_while_another_model_is_on_the_way(world: SimulatedWorld) -> None:
    report(world, **ended("Complete"))
    world.settle()
    pods = {name: pod["metadata"]["uid"] for name, pod in world.pods.items()}
    world.edit(lambda spec: spec["model"].update(revision="v2"))
    world.settle()

    assert {name: pod["metadata"]["uid"] for name, pod in world.pods.items()} == pods
    assert world.condition("Ready") == ("False", "Downloading")
    assert world.condition("Available") == ("True", "GroupsReady")
    assert len(world.of_kind("Job")) == 2, "the one before is the record that its files are there"

    newest = max(world.of_kind("Job").values(), key=lambda job: int(job["metadata"]["resourceVersion"]))
    newest["status"] = ended("Complete")
    world.touch(newest)
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert {name: pod["metadata"]["uid"] for name, pod in world.pods.items()} != pods


def test_a_superseded_download_goes(world: SimulatedWorld) -> None:
    report(world, active=1)
    world.edit(lambda spec: spec["model"].update(revision="v2"))
    world.settle()

    (job,) = world.of_kind("Job").values()
    assert "v2" in job["spec"]["template"]["spec"]["containers"][0]["args"]


def test_loss_of_a_done_job_takes_no_group_down(world: SimulatedWorld) -> None:
    report(world, **ended("Complete"))
    world.settle()
    pods = {pod["metadata"]["uid"] for pod in world.pods.values()}
    world.remove("Job", world.job["metadata"]["name"])
    world.settle()

    assert {pod["metadata"]["uid"] for pod in world.pods.values()} == pods
    assert world.job, "it looks again whether all files are there"


def test_without_a_cache_there_is_neither_job_nor_condition() -> None:
    world = SimulatedWorld({"model": {"name": "meta-llama/Llama-3.1-8B-Instruct", "trustRemoteCode": True}})
    world.settle()

    assert world.of_kind("Job") == {}
    assert world.condition("ModelDownloaded") is None
    assert world.status["model"] == {"source": "Hub", "trustRemoteCode": True}


def test_launcher_of_a_standing_revision_comes_back_when_it_is_deleted() -> None:
    world = SimulatedWorld({"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}})
    world.settle()
    (name,) = world.of_kind("ConfigMap")
    world.remove("ConfigMap", name)
    world.settle()

    assert list(world.of_kind("ConfigMap")) == [name]
