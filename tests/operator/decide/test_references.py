"""A missing Secret or ConfigMap is told before GPUs are taken, and nothing else holds groups back."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from simulated_world import SimulatedWorld

NAMED: dict[str, Any] = {
    "model": {
        "name": "meta-llama/Llama-3.1-8B-Instruct",
        "source": {"huggingFace": {"tokenSecretRef": {"name": "hub"}}},
    },
}
MISSING = {"reason": "CreateContainerConfigError", "message": 'secret "hub" not found'}


def make_world(spec: dict[str, Any] = NAMED, *, image: str = "shardwright:1") -> SimulatedWorld:
    found = SimulatedWorld(spec)
    found.settings = replace(found.settings, check_image=image)
    found.settle()
    return found


@pytest.fixture
def world() -> SimulatedWorld:
    """A resource whose Secret is looked for."""
    return make_world()


def report(world: SimulatedWorld, type_: str) -> None:
    """How the Job ends, by its controller."""
    world.report_job(conditions=[{"type": type_, "status": "True"}])


def show_pod(
    world: SimulatedWorld,
    *,
    version: int = 999_999,
    phase: str = "Pending",
    gone: bool = False,
    **state: Any,
) -> None:
    status = {"phase": phase, "containerStatuses": [{"name": "check", "state": state}]}
    world.show_job_pod(status, version=version, deleted=gone)


def stages(world: SimulatedWorld) -> set[str]:
    return {kind for kind in ("Job", "StatefulSet") if world.of_kind(kind)}


def test_no_group_before_the_answer_and_no_job_after_the_start(world: SimulatedWorld) -> None:
    assert stages(world) == {"Job"}
    assert world.condition("Ready") == ("False", "CheckingReferences")
    assert world.condition("Stalled") is None

    report(world, "Complete")
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert stages(world) == {"StatefulSet"}, "the pods tell by themselves now"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        pytest.param('secret "hub" not found', "SecretMissing", id="no Secret"),
        pytest.param("couldn't find key token in Secret serving/hub", "SecretMissing", id="no key in it"),
        pytest.param('configmap "tuning" not found', "ConfigRejected", id="no ConfigMap"),
    ],
)
def test_what_is_missing_is_told_for_as_long_as_it_takes(
    world: SimulatedWorld, words: str, reason: str
) -> None:
    show_pod(world, waiting={"reason": "CreateContainerConfigError", "message": words})
    world.now += timedelta(hours=10)
    world.settle()

    assert world.condition("Ready") == ("False", reason)
    assert world.condition("Stalled") is None, "the kubelet goes on by itself when it is there"
    ready = next(c for c in world.status["conditions"] if c["type"] == "Ready")
    assert ready["message"].startswith(f"{words} (pod llama-check-")
    assert stages(world) == {"Job"}

    report(world, "Complete")
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


@pytest.mark.parametrize(
    "waiting",
    [
        pytest.param({"reason": "ErrImagePull", "message": "no such image"}, id="the check's image"),
        pytest.param(
            {"reason": "CreateContainerConfigError", "message": "image will run as root"}, id="its user"
        ),
    ],
)
def test_what_hinders_only_the_check_holds_nobody_back(
    world: SimulatedWorld, waiting: dict[str, str]
) -> None:
    show_pod(world, waiting=waiting)
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


def test_a_check_that_fails_holds_nobody_back(world: SimulatedWorld) -> None:
    report(world, "Failed")
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(lambda world: show_pod(world, gone=True), id="its pod goes, and its Job has not heard"),
        pytest.param(lambda world: report(world, "Failed"), id="its Job hears first"),
        pytest.param(
            lambda world: show_pod(world, version=1_000_000, phase="Failed"), id="its pod is evicted"
        ),
    ],
)
def test_a_check_that_is_lost_after_it_told_of_something_missing_is_made_once_more(
    world: SimulatedWorld, lose: Callable[[SimulatedWorld], None]
) -> None:
    # Its pod is named in the message, and somebody deleted it, or a drain did: the Job failed with it, and
    # the groups took their GPUs for a Secret that was as missing as before.
    show_pod(world, waiting=MISSING)
    world.settle()
    (before,) = world.of_kind("Job").values()
    lose(world)
    world.settle()

    (after,) = world.of_kind("Job").values()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert world.condition("Ready") == ("False", "CheckingReferences")
    assert stages(world) == {"Job"}

    report(world, "Failed")
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady"), "that one told of nothing"


def test_a_pod_that_an_earlier_check_left_behind_says_nothing_of_what_is_missing_now(
    world: SimulatedWorld,
) -> None:
    # Its node is lost, so that it stays in the API as it was last seen: each new check was held by its word.
    show_pod(world, waiting=MISSING)
    world.settle()
    report(world, "Failed")
    world.now += timedelta(seconds=5)
    world.settle()
    assert world.condition("Ready") == ("False", "CheckingReferences")


def test_a_check_that_says_nothing_is_waited_for_half_a_minute(world: SimulatedWorld) -> None:
    assert world.decision().requeue_after_s == pytest.approx(30, abs=5), "no event would tell that it is over"
    world.now += timedelta(seconds=31)
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


@pytest.mark.parametrize(
    ("spec", "image"),
    [
        pytest.param(NAMED, "", id="no image to do it with"),
        pytest.param({"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}, "shardwright:1", id="no names"),
    ],
)
def test_nobody_is_asked(spec: dict[str, Any], image: str) -> None:
    world = make_world(spec, image=image)
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert not any("Job" in write for write in world.writes)


def test_an_edit_that_names_another_secret_takes_nothing_down_before_that_is_there(
    world: SimulatedWorld,
) -> None:
    report(world, "Complete")
    world.settle()
    before = {name: pod["metadata"]["uid"] for name, pod in world.pods.items()}

    world.edit(lambda spec: spec["model"]["source"]["huggingFace"]["tokenSecretRef"].update(name="other"))
    world.settle()
    show_pod(world, waiting={"reason": "CreateContainerConfigError", "message": 'secret "other" not found'})
    world.settle()
    assert {name: pod["metadata"]["uid"] for name, pod in world.pods.items()} == before
    assert world.condition("Available") == ("True", "GroupsReady")
    # "No pod is made that would hold GPUs" was said while groups of the former spec were made for a scale-up.
    ready = next(c for c in world.status["conditions"] if c["type"] == "Ready")
    assert ready["message"].endswith("; until then no group starts from this spec")

    report(world, "Complete")
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")
    assert {pod["metadata"]["uid"] for pod in world.pods.values()}.isdisjoint(before.values())


def test_a_group_that_breaks_comes_back_without_a_check(world: SimulatedWorld) -> None:
    report(world, "Complete")
    world.settle()
    world.writes.clear()
    (name,) = world.pods
    world.delete_pod(name, grace_s=0)
    world.settle()

    assert world.condition("Ready") == ("True", "GroupsReady")
    assert not any("Job" in write for write in world.writes)


def test_an_upgrade_asks_nothing_of_groups_that_run() -> None:
    world = make_world(image="")
    world.settings = replace(world.settings, check_image="shardwright:2")
    world.writes.clear()
    world.settle()
    assert world.writes == []
