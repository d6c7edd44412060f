"""Faults that people reported from operators of multi-node engines, and what should have happened.

Each of them as a whole sequence; what only a real API server shows stands with the cluster's tests.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from shardwright_operator.api.constants import KIND, MAX_NAME_LENGTH, Annotation, Label
from simulated_world import SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "recovery": {"backoff": "10s", "maxRestarts": 2},
}
LLAMA_8B: dict[str, Any] = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
HASH_SUFFIX = 11
"""The StatefulSet controller labels pods with the set's name, a dash and up to ten characters."""


def end(world: SimulatedWorld, name: str, words: str, *, restarts: int = 1) -> None:
    """The engine in a pod ends with these words, and its kubelet starts it again, not to be ready soon."""
    pod = world.get("Pod", name)
    pod["status"]["conditions"] = []
    container = pod["status"]["containerStatuses"][0]
    container.update(restartCount=restarts, started=False)
    container["lastState"] = {
        "terminated": {
            "exitCode": 1,
            "reason": "Error",
            "message": words,
            "finishedAt": world.now.isoformat(),
        }
    }
    container["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}
    world.touch(pod)


# Ready=True was said of pods that crashed (kaito 931 and 1493, kserve 1859).


def test_a_wrong_model_is_never_ready_and_names_its_cause() -> None:
    world = SimulatedWorld({**LLAMA_405B, "recovery": {"backoff": "10s", "maxRestarts": 1}})
    world.course = lambda _pod: "unready"
    said = set()
    for _ in range(40):
        world.run_for(5)
        said.add(world.condition("Ready"))
        for name, pod in world.pods.items():
            if pod["status"].get("phase") == "Running" and name.endswith("leader-0"):
                end(world, name, "shardwright: ModelNotFound: no repository meta-llama/Llama-405B")
    assert {status for status, _ in filter(None, said)} == {"False"}
    assert world.condition("Stalled") == ("True", "RestartLimit")
    assert world.status["groups"][0]["firstFailure"]["reason"] == "ModelNotFound"


def test_a_leader_that_crashes_is_not_ready_at_once_nor_ready_again_before_its_probe() -> None:
    world = SimulatedWorld(LLAMA_8B)
    world.settle()
    said = set()
    world.course = lambda _pod: "unready"
    for crash in range(1, 4):
        end(world, "llama-0-leader-0", "torch.OutOfMemoryError: CUDA out of memory", restarts=crash)
        world.reconcile()
        said.add(world.condition("Ready"))
        world.run_for(30)
        said.add(world.condition("Ready"))
    assert {status for status, _ in filter(None, said)} == {"False"}
    assert world.status["groups"][0]["firstFailure"]["reason"] == "OutOfMemory"
    assert world.status["observedGeneration"] == world.resource["metadata"]["generation"]
    world.course = lambda _pod: ""
    world.delete_pod("llama-0-leader-0")
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")


# A leader was killed twice in each update, because the controller took its own deletions for failures
# (kubernetes-sigs/lws 291 and 804).


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_update_makes_each_pod_once_and_counts_no_failure(replicas: int) -> None:
    world = SimulatedWorld({**LLAMA_405B, "replicas": replicas}, nodes=2 * replicas)
    world.settle()
    world.trace.clear()
    world.events.clear()
    world.edit(lambda spec: spec.update(engine={"env": [{"name": "A", "value": "b"}]}))
    world.settle()
    names = sorted(line.split()[0] for line in world.trace)
    assert names == sorted(world.pods)
    assert [event.message for event in world.events if event.type == "Warning"] == []
    notes = [s["metadata"].get("annotations", {}) for s in world.of_kind("StatefulSet").values()]
    assert not [note for note in notes if Annotation.ATTEMPT in note]


def test_a_scale_in_and_a_drain_count_no_failure() -> None:
    world = SimulatedWorld({**LLAMA_405B, "replicas": 2}, nodes=6)
    world.settle()
    world.events.clear()
    world.cordon("node-0")
    world.settle()
    world.edit(lambda spec: spec.update(replicas=1))
    world.settle()
    assert [event.message for event in world.events if event.type == "Warning"] == []
    assert [group["restarts"] for group in world.status["groups"]] == [0]


# Names were cut in one place and not in another, and model names ended in labels (lws 410, kueue 10032,
# llm-d-model-service 72 and 77, llm-d-deployer 313, kserve 5415).


@pytest.fixture
def world() -> SimulatedWorld:
    """With the longest name, and a model whose name is neither a label's value nor a DNS name."""
    longest = "a" * MAX_NAME_LENGTH
    world = SimulatedWorld(
        {**LLAMA_405B, "replicas": 2, "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"}},
        name=longest,
        nodes=4,
    )
    world.settle()
    assert world.status["ready"] == "2/2"
    return world


def test_every_name_and_label_is_one_that_kubernetes_takes(world: SimulatedWorld) -> None:
    ours = {place: body for place, body in world.objects.items() if place[0] not in {"Node", KIND}}
    assert {name for _, name in ours if not DNS_LABEL.fullmatch(name)} == set()
    labels = {value for body in ours.values() for value in body["metadata"].get("labels", {}).values()}
    assert {value for value in labels if not LABEL_VALUE.fullmatch(value)} == set()
    assert max(map(len, world.of_kind("StatefulSet"))) + HASH_SUFFIX <= 63


def test_whatever_is_referred_to_by_name_is_there(world: SimulatedWorld) -> None:
    services = set(world.of_kind("Service"))
    for name, group_set in world.of_kind("StatefulSet").items():
        assert group_set["spec"]["serviceName"] in services
        pod = group_set["spec"]["template"]["spec"]
        maps = {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v}
        assert maps <= set(world.of_kind("ConfigMap")), name
        env = {e["name"]: e.get("value", "") for e in pod["containers"][0]["env"]}
        index = group_set["metadata"]["labels"][Label.GROUP_INDEX]
        leader, service, *_ = env["LEADER_ADDRESS"].replace("$(GROUP_INDEX)", index).split(".")
        assert leader in world.pods
        assert service in services


def test_whatever_selects_by_labels_finds_its_pods(world: SimulatedWorld) -> None:
    """A selector and the pods' labels that differ by one value leak pods (aibrix 1423)."""
    for kind, name, wanted in selectors(world):
        found = {
            pod: body["metadata"]["labels"][Label.GROUP_INDEX]
            for pod, body in world.pods.items()
            if wanted.items() <= body["metadata"]["labels"].items()
        }
        assert found, f"{kind} {name} selects nothing"
        of_one_group = kind != "Service" or name.endswith("-ranks")
        assert len(set(found.values())) == (1 if of_one_group else 2), f"{kind} {name}: {found}"


def selectors(world: SimulatedWorld) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Kind, name and labels of everything that selects pods."""
    for name, service in world.of_kind("Service").items():
        yield "Service", name, service["spec"]["selector"]
    for name, policy in world.of_kind("NetworkPolicy").items():
        yield "NetworkPolicy", name, policy["spec"]["podSelector"]["matchLabels"]
    for kind in ("StatefulSet", "PodDisruptionBudget"):
        for name, body in world.of_kind(kind).items():
            yield kind, name, body["spec"]["selector"]["matchLabels"]


# The operator and an autoscaler fought over replicas, also at each restart of the operator (LLMKube 484,
# semantic-router 4058, jaeger-operator 963).


def test_the_number_that_an_autoscaler_set_outlives_the_operator() -> None:
    world = SimulatedWorld(LLAMA_405B, nodes=6)
    world.settle()
    world.edit(lambda spec: spec.update(replicas=3))
    world.settle()
    for _ in range(3):
        world.writes.clear()
        world.restart_operator()
        world.run_for(120)
        assert world.writes == []
    assert (world.resource["spec"]["replicas"], world.status["ready"]) == (3, "3/3")


def test_members_of_a_group_are_no_replicas() -> None:
    """The scale subresource counts and selects leaders: one for each group, whatever it spans."""
    world = SimulatedWorld({**LLAMA_405B, "replicas": 2}, nodes=4)
    world.settle()
    wanted = dict(part.split("=") for part in world.status["selector"].split(","))
    selected = [n for n, p in world.pods.items() if wanted.items() <= p["metadata"]["labels"].items()]
    assert (selected, world.status["replicas"]) == (["llama-0-leader-0", "llama-1-leader-0"], 2)


# An operator that started anew fired everything a second time (crate-operator 48, kopf pull request 105).


def test_twenty_resources_and_a_new_operator_need_no_write() -> None:
    world = SimulatedWorld(LLAMA_8B, nodes=6)
    for number in range(19):
        world.add_resource(f"more-{number}", LLAMA_8B)
    world.settle()
    pods = {body["metadata"]["uid"] for body in world.pods.values()}
    world.writes.clear()
    world.restart_operator()
    world.run_for(300)
    assert world.writes == []
    assert {body["metadata"]["uid"] for body in world.pods.values()} == pods
    assert len(pods) == 20


# Workers were never made while their head waited for them (production-stack 653).


def test_all_members_are_made_before_any_is_ready() -> None:
    world = SimulatedWorld(LLAMA_405B)
    world.course = lambda _pod: "unready"
    world.reconcile()
    world.controllers()
    assert sorted(world.pods) == ["llama-0-leader-0", "llama-0-worker-1"]


# Updates waited for GPUs that did not exist, one of them begun by the operator's own upgrade (airunway 400,
# LLMKube 192, kserve pull request 4188).


def test_the_group_goes_first_where_all_gpus_are_taken() -> None:
    world = SimulatedWorld(LLAMA_405B, nodes=2)
    world.settle()
    world.edit(lambda spec: spec.update(engine={"image": "vllm/vllm-openai:v0.32.1"}))
    world.settle()
    assert world.condition("Ready") == ("True", "GroupsReady")
    images = {p["spec"]["containers"][0]["image"] for p in world.pods.values()}
    assert images == {"vllm/vllm-openai:v0.32.1"}
