"""Groups that compete for nodes: halves never wait for each other, and who waits says for what."""

from typing import Any

import pytest

from invariants import Invariants
from shardwright_operator.decide.admission import LOOK_AGAIN_S, RELEASE_S
from shardwright_operator.observe.views import Key
from simulated_world import NAMESPACE, SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
}
LLAMA_8B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 1},
}
CREATE: dict[str, Any] = {"scheduling": {"admission": "Create"}}


def two(nodes: int, **more: Any) -> SimulatedWorld:
    """``alpha`` and ``beta`` are made in the same moment, and each wants two nodes."""
    world = SimulatedWorld({**LLAMA_405B, **more}, name="alpha", nodes=nodes)
    world.add_resource("beta", {**LLAMA_405B, **more})
    return world


def ready(world: SimulatedWorld) -> list[str]:
    names = sorted(body["metadata"]["name"] for body in world.of_kind("ModelDeployment").values())
    return [name for name in names if world.condition("Ready", name) == ("True", "GroupsReady")]


def message_of(world: SimulatedWorld, name: str) -> str:
    return str(world.resource_named(name)["status"]["conditions"][0]["message"])


def placed(world: SimulatedWorld) -> dict[str, int]:
    """Pods that have a node, by resource."""
    return {
        name: sum("nodeName" in pod["spec"] for pod in pods) for (name, _), pods in world.formations().items()
    }


def test_both_run_where_both_fit() -> None:
    world = two(4)
    world.settle(check=Invariants(world))
    assert ready(world) == ["alpha", "beta"]


def test_of_two_that_want_the_same_nodes_one_runs_and_the_other_says_what_is_missing() -> None:
    world = two(3)
    world.settle(check=Invariants(world))
    assert ready(world) == ["alpha"]
    # Beta is first in the queue now: its pods show an autoscaler what is missing.
    assert placed(world) == {"alpha": 2, "beta": 1}
    assert world.condition("Ready", "beta") == ("False", "WaitingForCapacity")
    assert message_of(world, "beta") == (
        "group 0: needs 1 node with 8 free GPUs (H100-SXM-80GB); 0 found, 8 GPUs are missing; "
        "rank 1 (beta-0-worker-1) fits no node: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    )
    world.add_node("node-9")
    world.settle(check=Invariants(world))
    assert ready(world) == ["alpha", "beta"]


def test_what_is_missing_is_counted_anew_where_no_event_tells() -> None:
    """The word of the scheduler came before the news of whom it had given the nodes to."""
    world = SimulatedWorld(LLAMA_405B, nodes=2)
    world.refuses = lambda _pod: "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    world.settle()
    assert "missing" not in message_of(world, "llama")
    for number in range(2):
        world.occupy(f"node-{number}", name=f"late-{number}")
    decision = world.decision()
    assert decision.requeue_after_s == LOOK_AGAIN_S
    world.reconcile()
    assert "; 0 found, 16 GPUs are missing; rank 0" in message_of(world, "llama")


def test_what_is_missing_besides_gpus_is_told_in_the_schedulers_words() -> None:
    world = SimulatedWorld(LLAMA_405B, nodes=2)
    world.refuses = lambda _pod: "0/2 nodes are available: 2 Insufficient memory."
    world.settle()
    assert world.condition("Ready") == ("False", "WaitingForCapacity")
    assert message_of(world, "llama") == (
        "group 0: rank 0 (llama-0-leader-0) fits no node: 0/2 nodes are available: 2 Insufficient memory."
    )


def test_pods_that_lack_memory_hold_others_off_their_gpus_for_a_time_only() -> None:
    world = SimulatedWorld(LLAMA_405B, name="alpha", nodes=2)
    world.refuses = lambda pod: (
        "0/2 nodes are available: 2 Insufficient memory." if pod["metadata"]["name"][0] == "a" else ""
    )
    world.settle()
    world.add_resource("beta", LLAMA_405B)
    world.run_for(60)
    assert sorted(world.of_kind("StatefulSet")) == ["alpha-0-leader", "alpha-0-worker"]
    world.run_for(RELEASE_S, check=Invariants(world))
    assert ready(world) == ["beta"]


def test_while_the_first_is_not_placed_the_second_holds_nothing() -> None:
    world = two(3)
    for name in ("alpha", "beta"):
        world.reconcile(Key(NAMESPACE, name))
    assert sorted(world.of_kind("StatefulSet")) == ["alpha-0-leader", "alpha-0-worker"]
    group = world.resource_named("beta")["status"]["groups"][0]
    assert (group["phase"], group["reason"]) == ("Pending", "WaitingForCapacity")
    assert group["message"] == (
        "waits for 2 nodes with 8 free GPUs (H100-SXM-80GB) each; 1 found, 8 GPUs are missing; "
        "models/alpha comes first"
    )


def test_without_an_account_of_gpus_halves_wait_for_each_other_as_they_would_without_us() -> None:
    world = SimulatedWorld(LLAMA_405B, name="alpha", nodes=3, sees_gpus=False)
    world.add_resource("beta", LLAMA_405B)
    world.settle()
    assert sorted(placed(world).values()) == [1, 2]


def test_groups_of_one_resource_compete_as_well() -> None:
    world = SimulatedWorld({**LLAMA_405B, "replicas": 3}, nodes=4)
    world.settle(check=Invariants(world))
    assert world.status["ready"] == "2/3"
    third = world.status["groups"][2]
    assert (third["phase"], third["reason"]) == ("Pending", "WaitingForCapacity")


def test_the_first_in_the_queue_is_made_so_that_an_autoscaler_sees_it() -> None:
    world = SimulatedWorld(LLAMA_405B, nodes=0)
    world.settle()
    assert sorted(world.pods) == ["llama-0-leader-0", "llama-0-worker-1"]
    assert world.condition("Ready") == ("False", "WaitingForCapacity")
    assert "16 GPUs are missing" in message_of(world, "llama")


def test_create_makes_the_pods_of_all_at_once() -> None:
    world = two(0, **CREATE)
    world.settle()
    assert len(world.pods) == 4
    for name in range(4):
        world.add_node(f"node-{name}")
    world.settle()
    assert ready(world) == ["alpha", "beta"]


def test_two_halves_that_were_made_at_once_do_not_wait_for_ever() -> None:
    world = two(2, **CREATE)
    world.run_for(60)
    assert placed(world) == {"alpha": 1, "beta": 1}
    check = Invariants(world)
    world.run_for(2 * RELEASE_S, check=check)
    assert len(ready(world)) == 1
    loser = next(name for name in ("alpha", "beta") if name not in ready(world))
    assert placed(world).get(loser, 0) == 0
    assert world.condition("Ready", loser) == ("False", "WaitingForCapacity")
    assert [e.reason for e in world.events if "gives its nodes back" in e.message] == ["WaitingForCapacity"]
    # When the other goes, its nodes are taken.
    world.edit(lambda spec: spec.update(replicas=0), name=ready(world)[0])
    world.run_for(2 * RELEASE_S, check=check)
    assert loser in ready(world)


def test_a_half_that_helps_nobody_is_kept() -> None:
    world = SimulatedWorld(LLAMA_405B, name="alpha", nodes=1)
    world.run_for(3 * RELEASE_S)
    assert placed(world) == {"alpha": 1}
    world.add_resource("beta", LLAMA_405B)
    world.run_for(3 * RELEASE_S)
    assert placed(world) == {"alpha": 1}
    assert len(world.trace) == 2


def test_a_half_gives_way_to_a_smaller_one_that_fits() -> None:
    world = SimulatedWorld(LLAMA_405B, name="alpha", nodes=1)
    world.run_for(60)
    world.add_resource("beta", LLAMA_8B)
    world.run_for(30)
    assert ready(world) == []
    world.run_for(2 * RELEASE_S, check=Invariants(world))
    assert ready(world) == ["beta"]
    world.add_node("node-8")
    world.add_node("node-9")
    world.run_for(2 * RELEASE_S)
    assert ready(world) == ["alpha", "beta"]


def test_other_pools_are_no_competition() -> None:
    world = SimulatedWorld(LLAMA_405B, name="alpha", nodes=0)
    world.settle()
    for name in ("h200-0", "h200-1"):
        world.add_node(name, "NVIDIA-H200")
    hardware = {"gpu": "H200-SXM-141GB", "gpusPerNode": 8, "maxNodes": 2}
    world.add_resource("beta", {**LLAMA_405B, "hardware": hardware})
    world.settle(check=Invariants(world))
    assert ready(world) == ["beta"]


def test_a_group_that_broke_does_not_take_half_of_what_another_was_given() -> None:
    world = two(4)
    world.settle()
    world.add_resource("gamma", LLAMA_405B)
    world.settle()
    world.restart_container("alpha-0-worker-1", exit_code=1, reason="Error")
    check = Invariants(world)
    world.run_for(4 * RELEASE_S, check=check)
    assert len(ready(world)) == 2
    assert 1 not in placed(world).values()


def test_strangers_count() -> None:
    world = SimulatedWorld(LLAMA_405B, name="alpha", nodes=4)
    world.occupy("node-2", name="one")
    world.occupy("node-3", name="two")
    world.add_resource("beta", LLAMA_405B)
    world.settle(check=Invariants(world))
    assert ready(world) == ["alpha"]
    world.remove("Pod", "one")
    world.remove("Pod", "two")
    world.settle()
    assert ready(world) == ["alpha", "beta"]


@pytest.mark.parametrize("count", [5, 9])
def test_many_that_compete_fill_the_pool_with_whole_groups(count: int) -> None:
    world = SimulatedWorld(LLAMA_405B, name="m0", nodes=7)
    for number in range(1, count):
        world.add_resource(f"m{number}", LLAMA_405B)
    world.settle(check=Invariants(world), limit=200)
    assert len(ready(world)) == 3
    halves = [pods for pods in placed(world).values() if pods == 1]
    # The first of those that wait holds the seventh node; the others hold nothing.
    assert len(halves) <= 1
    made = sorted(name for name in world.of_kind("StatefulSet") if name.endswith("leader"))
    assert len(made) == 4
