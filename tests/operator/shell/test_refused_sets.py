"""A set that the server refuses, over many tries: what is written meanwhile, and that nothing comes and goes.

The decisions are the real ones.
"""

from typing import Any

import pytest

from fake_cluster import FakeCluster
from shardwright_operator.apply.notes import WriteLedger
from shardwright_operator.apply.retry import RetryLaterError
from shardwright_operator.cluster import ClusterError, ForbiddenError, InvalidError
from shardwright_operator.decide import DecideSettings, decide
from shardwright_operator.observe.views import ChildKind, Key

KEY = Key("models", "llama")
SETTINGS = DecideSettings(operator_version="1.0.0")
LLAMA_405B: dict[str, Any] = {
    "replicas": 1,
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
}
LEADER, WORKER = "llama-0-leader", "llama-0-worker"
ASK = f"ask: {WORKER}"
MOST_PASSES = 20


@pytest.fixture
def refusing(world) -> set[str]:
    """Names of the sets that the server refuses; a test alters it."""
    names: set[str] = set()

    def refusal(verb: str, kind: str, name: str) -> ForbiddenError | None:
        refused = verb in {"apply", "rehearse"} and kind == "StatefulSet" and name in names
        return ForbiddenError("denied by a policy", status=403) if refused else None

    world.cluster.fail = refusal
    world.decide = lambda observed: decide(observed, world.now, SETTINGS)
    world.make_resource(**LLAMA_405B)
    return names


async def rest(world) -> float:
    """Passes until nothing but time is waited for; returns the seconds."""
    for _ in range(MOST_PASSES):
        try:
            wait_s = await world.reconciler.reconcile(KEY)
        except RetryLaterError:
            continue
        if wait_s is None or wait_s > 0.1:
            return wait_s or 0.0
    raise AssertionError(f"never comes to rest: {sets_tried(world.cluster)}")


async def tries(world, times: int) -> list[float]:
    """Let the time of the next try come so often; returns the waits before each."""
    waits = []
    for _ in range(times):
        waits.append(await rest(world))
        world.advance(waits[-1])
    return waits


def sets_tried(cluster: FakeCluster) -> list[str]:
    """Names of the sets that were written, and of those that the server was asked about, in order."""
    told = {"apply": "", "rehearse": "ask: "}
    return [
        f"{told[verb]}{name}" for verb, kind, name in cluster.calls if kind == "StatefulSet" and verb in told
    ]


def events_of(cluster: FakeCluster) -> int:
    return sum((verb, kind) == ("create", "Event") for verb, kind, _ in cluster.calls)


def sets_that_stand(cluster: FakeCluster) -> dict[str, int]:
    return {
        name: body["spec"]["replicas"]
        for (kind, _, name), body in cluster.objects.items()
        if kind == "StatefulSet"
    }


async def test_a_leader_set_is_made_and_parked_once_however_often_its_worker_set_is_refused(
    world, refusing: set[str]
) -> None:
    refusing.add(WORKER)
    waits = await tries(world, 6)
    assert waits == [10, 20, 40, 80, 160, 300]
    assert sets_tried(world.cluster) == [LEADER, WORKER, LEADER, *[ASK] * 5]
    assert sets_that_stand(world.cluster) == {LEADER: 0}
    events = events_of(world.cluster)

    await tries(world, 3)
    assert sets_tried(world.cluster)[8:] == [ASK] * 3
    assert events_of(world.cluster) == events
    status = world.cluster.objects["ModelDeployment", "models", "llama"]["status"]
    (group,) = status["groups"]
    assert (group["phase"], group["reason"]) == ("Pending", "WriteRefused")
    assert group["message"] == "waits: StatefulSet llama-0-worker is refused"


async def test_a_group_starts_leader_set_first_when_its_worker_set_would_be_taken(
    world, refusing: set[str]
) -> None:
    """An operator that dies between the two leaves a group that comes up, however often it does."""
    refusing.add(WORKER)
    await tries(world, 3)
    world.cluster.calls.clear()
    refusing.clear()
    await rest(world)
    assert sets_tried(world.cluster) == [ASK, LEADER, WORKER]
    assert sets_that_stand(world.cluster) == {LEADER: 1, WORKER: 1}


async def test_an_operator_that_starts_anew_knows_of_the_refusal_by_the_record(
    world, refusing: set[str]
) -> None:
    refusing.add(WORKER)
    await tries(world, 2)
    world.cluster.calls.clear()
    world.ledger._entries.clear()
    assert world.ledger.of(KEY) == WriteLedger().of(KEY)
    await tries(world, 2)
    assert sets_tried(world.cluster) == [ASK] * 2
    assert sets_that_stand(world.cluster) == {LEADER: 0}


async def test_a_refused_leader_set_is_tried_ever_more_slowly_and_no_worker_set_before_it(
    world, refusing: set[str]
) -> None:
    """Its record holds the time of its start: no two tries are of the same content."""
    refusing.add(LEADER)
    assert await tries(world, 6) == [10, 20, 40, 80, 160, 300]
    assert sets_tried(world.cluster) == [LEADER] * 6
    assert sets_that_stand(world.cluster) == {}


async def test_no_half_is_made_when_the_leader_set_is_refused_after_the_worker_set_was(
    world, refusing: set[str]
) -> None:
    refusing.add(WORKER)
    await tries(world, 1)
    refusing.add(LEADER)
    refusing.discard(WORKER)
    await tries(world, 4)
    assert sets_that_stand(world.cluster) == {LEADER: 0}
    assert sets_tried(world.cluster)[-2:] == [ASK, LEADER]


async def test_where_a_webhook_cannot_be_asked_the_write_itself_tells(world, refusing: set[str]) -> None:
    refusing.add(WORKER)
    refuse = world.cluster.fail
    words = 'admission webhook "sets.example.com" does not support dry run'

    def refusal(verb: str, kind: str, name: str) -> ClusterError | None:
        return InvalidError(words, status=400) if verb == "rehearse" else refuse(verb, kind, name)

    world.cluster.fail = refusal
    await tries(world, 3)
    assert sets_that_stand(world.cluster) == {LEADER: 0}
    refusing.clear()
    await rest(world)
    assert sets_that_stand(world.cluster) == {LEADER: 1, WORKER: 1}


async def test_a_corrected_spec_is_tried_at_once(world, refusing: set[str]) -> None:
    refusing.add(WORKER)
    await tries(world, 5)
    await rest(world)
    world.cluster.calls.clear()
    body = world.cluster.objects["ModelDeployment", "models", "llama"]
    spec = {**body["spec"], "engine": {"env": [{"name": "TEAM", "value": "serving"}]}}
    metadata = {**body["metadata"], "generation": 2}
    world.store.put(world.cluster.seed({**body, "metadata": metadata, "spec": spec}), deleted=False)
    refusing.clear()
    await rest(world)
    assert sets_tried(world.cluster) == [ASK, LEADER, WORKER]
    assert sets_that_stand(world.cluster) == {LEADER: 1, WORKER: 1}
    assert (ChildKind.STATEFUL_SET, WORKER) not in world.ledger.of(KEY)
