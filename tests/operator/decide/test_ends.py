"""In which order a broken group is taken down, and why the pods' end does not wait for their sets.

A kubelet runs a preStop hook to its end, whatever grace a later deletion gives: pods that their set lets go
first take the set's grace, which for workers is 40 s and more (seen on a kubelet of Kubernetes 1.36).
"""

from typing import Any

from simulated_world import SimulatedWorld

LLAMA_405B: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
}
LEADER, WORKER = "llama-0-leader-0", "llama-0-worker-1"


def _broken() -> SimulatedWorld:
    world = SimulatedWorld(LLAMA_405B)
    world.settle()
    world.writes.clear()
    world.restart_container(LEADER, exit_code=137, reason="Error")
    return world


def test_the_record_is_written_then_the_pods_end_then_their_set_lets_go() -> None:
    world = _broken()
    world.reconcile()
    assert [write for write in world.writes if write != "status"] == [
        "apply StatefulSet llama-0-leader",
        f"delete Pod {LEADER}",
        f"delete Pod {WORKER}",
        "apply StatefulSet llama-0-worker",
    ]


def test_the_pods_of_a_broken_group_get_a_short_grace() -> None:
    deletions = [
        write for stage in _broken().decision().stages for write in stage if hasattr(write, "grace_period_s")
    ]
    assert {write.name: write.grace_period_s for write in deletions} == {LEADER: 2, WORKER: 2}
