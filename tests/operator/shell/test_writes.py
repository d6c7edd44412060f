"""One write: refused, altered, undone or too late, and what is remembered of it."""

import asyncio
from typing import Any

import pytest

from shardwright_operator.apply.batch import AT_ONCE
from shardwright_operator.apply.retry import RetryLaterError
from shardwright_operator.cluster import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from shardwright_operator.decide.decision import Decision, Delete
from shardwright_operator.observe.views import ChildKind, Key

KEY = Key("models", "llama")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(InvalidError("spec.ports: Required value"), id="invalid"),
        pytest.param(ForbiddenError("exceeded quota"), id="forbidden"),
    ],
)
async def test_a_refused_write_leaves_a_note_and_waits_longer_each_time(
    world, make_service, make_apply, error: ClusterError
) -> None:
    world.make_resource()
    world.cluster.fail = lambda verb, _kind, _name: error if verb == "apply" else None
    write = make_apply(make_service())
    world.decide = lambda _observed: Decision(stages=((write,),), status={})
    delays = []
    for _ in range(7):
        with pytest.raises(RetryLaterError) as caught:
            await world.reconciler.reconcile(KEY)
        assert caught.value.error == ""
        note = world.ledger.of(KEY)[ChildKind.SERVICE, "llama"]
        assert (note.refused, note.foreign, note.digest) == (error.message, False, write.digest)
        delays.append((note.retry_at - world.now).total_seconds())
    assert delays == [10, 20, 40, 80, 160, 300, 300]
    assert ("status", "ModelDeployment", "llama") not in world.cluster.calls


async def test_a_kind_whose_definition_somebody_removed_is_asked_for_ever_more_slowly(
    world, make_apply
) -> None:
    world.make_resource()
    missing = NotFoundError("the server could not find the requested resource", status=404)
    world.cluster.fail = lambda verb, _kind, _name: missing if verb == "apply" else None
    metadata = {"namespace": KEY.namespace, "name": "llama-0"}
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata}
    world.decide = lambda _observed: Decision(stages=((make_apply(group),),))
    for delay in (10, 20):
        with pytest.raises(RetryLaterError) as caught:
            await world.reconciler.reconcile(KEY)
        assert caught.value.error == ""
        note = world.ledger.of(KEY)[ChildKind.VOLCANO_POD_GROUP, "llama-0"]
        assert note.refused == f"{missing.message}; is its API still installed?"
        assert (note.retry_at - world.now).total_seconds() == delay


async def test_a_foreign_object_is_told_from_a_stale_view(world, make_service, make_apply) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    world.cluster.seed(make_service("theirs", "another-uid"), foreign=True)
    world.cluster.seed(make_service("ours", uid), foreign=True)

    world.decide = lambda _observed: Decision(stages=((make_apply(make_service("theirs", uid)),),))
    with pytest.raises(RetryLaterError):
        await world.reconciler.reconcile(KEY)
    note = world.ledger.of(KEY)[ChildKind.SERVICE, "theirs"]
    assert note.foreign
    assert note.refused.startswith("it has another controller")

    world.decide = lambda _observed: Decision(stages=((make_apply(make_service("ours", uid)),),))
    with pytest.raises(RetryLaterError):
        await world.reconciler.reconcile(KEY)
    assert (ChildKind.SERVICE, "ours") not in world.ledger.of(KEY)
    world.decide = lambda _observed: Decision()
    await world.reconciler.reconcile(KEY)
    assert (ChildKind.SERVICE, "ours") in world.observed[-1].children


async def test_what_is_written_once_is_created_and_never_merges_into_what_stands(
    world, make_service, make_apply
) -> None:
    uid = world.make_resource()["metadata"]["uid"]

    def config(name: str, owner: str) -> dict[str, Any]:
        return {**make_service(name, owner), "kind": "ConfigMap"}

    world.cluster.seed(config("theirs", "another-uid"))
    world.cluster.seed(config("ours", uid))
    for name in ("new", "theirs", "ours"):
        write = make_apply(config(name, uid))
        world.decide = lambda _observed, write=write: Decision(stages=((write,),))
        if name == "new":
            await world.reconciler.reconcile(KEY)
            continue
        with pytest.raises(RetryLaterError):
            await world.reconciler.reconcile(KEY)
    assert world.cluster.writes() == [("create", "ConfigMap", name) for name in ("new", "theirs", "ours")]
    assert {name for (_, name), note in world.ledger.of(KEY).items() if note.foreign} == {"theirs"}
    world.decide = lambda _observed: Decision()
    await world.reconciler.reconcile(KEY)
    assert set(world.observed[-1].children) == {(ChildKind.CONFIG_MAP, name) for name in ("new", "ours")}


async def test_a_write_to_an_object_that_was_made_anew_repairs_the_store(
    world, make_service, make_apply
) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    world.store.put(world.cluster.seed(make_service("llama", uid, a=1)), deleted=False)
    world.cluster.seed(make_service("llama", uid, a=2))
    write = make_apply(make_service("llama", uid, a=3), owned=True, uid="of-an-earlier-one")
    world.decide = lambda _observed: Decision(stages=((write,),))
    with pytest.raises(RetryLaterError) as caught:
        await world.reconciler.reconcile(KEY)
    assert caught.value.error == ""
    world.decide = lambda _observed: Decision()
    await world.reconciler.reconcile(KEY)
    assert world.observed[-1].children[ChildKind.SERVICE, "llama"].body["spec"] == {"a": 2}


async def test_a_conflict_over_an_object_that_is_gone_asks_for_a_list(
    world, make_service, make_apply
) -> None:
    world.make_resource()
    write = make_apply(make_service(), owned=True, uid="gone")
    world.decide = lambda _observed: Decision(stages=((write,),))
    with pytest.raises(RetryLaterError):
        await world.reconciler.reconcile(KEY)
    assert world.distrusted == ["Service"]


async def test_a_write_that_a_webhook_alters_is_noted_with_its_answer(
    world, make_service, make_apply
) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    write = make_apply(make_service("llama", uid, a=1))

    def alter(body: dict[str, Any]) -> None:
        body["spec"]["a"] = 9

    world.cluster.alter = alter
    world.decide = lambda _observed: Decision(stages=((write,),))
    await world.reconciler.reconcile(KEY)
    note = world.ledger.of(KEY)[ChildKind.SERVICE, "llama"]
    assert note.altered == "spec.a: wanted 1, found 9"
    assert note.answer
    assert note.retry_at is None


async def test_a_write_that_somebody_undoes_is_repeated_ever_more_slowly(
    world, make_service, make_apply
) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    write = make_apply(make_service("llama", uid), owned=True)
    world.decide = lambda _observed: Decision(stages=((write,),))
    delays = []
    for _ in range(4):
        await world.reconciler.reconcile(KEY)
        note = world.ledger.of(KEY).get((ChildKind.SERVICE, "llama"))
        delays.append((note.retry_at - world.now).total_seconds() if note and note.retry_at else None)
    assert delays == [None, 10, 20, 40]
    world.advance(601)
    await world.reconciler.reconcile(KEY)
    assert world.ledger.of(KEY) == {}


async def test_delete_takes_the_child_out_of_the_store_and_forgets_its_notes(
    world, make_service, make_apply
) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    write = make_apply(make_service("llama", uid), owned=True)
    world.decide = lambda _observed: Decision(stages=((write,),))
    await world.reconciler.reconcile(KEY)
    await world.reconciler.reconcile(KEY)
    child = world.store.observe(KEY).children[ChildKind.SERVICE, "llama"]
    gone = Delete(kind=ChildKind.SERVICE, name="llama", uid=child.uid, why="not wanted")
    world.decide = lambda _observed: Decision(stages=((gone,),))
    await world.reconciler.reconcile(KEY)
    assert world.store.observe(KEY).children == {}
    assert world.ledger.of(KEY) == {}


@pytest.mark.parametrize(
    ("kind", "error", "distrusted", "retries"),
    [
        pytest.param(None, NotFoundError("gone"), ["Pod"], False, id="a pod that is gone"),
        pytest.param(None, ConflictError("another UID"), ["Pod"], False, id="a pod that is another by now"),
        pytest.param(
            ChildKind.SERVICE, ConflictError("another UID"), ["Service"], True, id="a child that is another"
        ),
    ],
)
async def test_delete_of_what_is_not_there(
    world, kind: ChildKind | None, error: ClusterError, distrusted: list[str], retries: bool
) -> None:
    world.make_resource()
    world.cluster.fail = lambda verb, _kind, _name: error if verb == "delete" else None
    gone = Delete(kind=kind, name="llama-0-leader-0", uid="u", why="broken", grace_period_s=1)
    world.decide = lambda _observed: Decision(stages=((gone,),))
    if retries:
        with pytest.raises(RetryLaterError):
            await world.reconciler.reconcile(KEY)
    else:
        await world.reconciler.reconcile(KEY)
    assert world.distrusted == distrusted


async def test_a_name_that_somebody_held_is_looked_at_again_until_it_is_free(
    world, make_service, make_apply
) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    place = (ChildKind.SERVICE, "llama")
    world.cluster.seed(make_service("llama", "another-uid"), foreign=True)
    world.decide = lambda _observed: Decision(stages=((make_apply(make_service("llama", uid)),),))
    with pytest.raises(RetryLaterError):
        await world.reconciler.reconcile(KEY)

    world.decide = lambda _observed: Decision()
    delays = []
    for _ in range(4):
        note = world.ledger.of(KEY)[place]
        delays.append((note.retry_at - world.now).total_seconds())
        world.now = note.retry_at
        await world.reconciler.reconcile(KEY)
    assert delays == [10, 20, 40, 60]

    del world.cluster.objects["Service", "models", "llama"]
    world.advance(60)
    await world.reconciler.reconcile(KEY)
    assert world.ledger.of(KEY) == {}


async def test_a_first_write_that_merged_into_an_older_object_is_taken_back(
    world, make_service, make_apply
) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    world.cluster.alter = lambda body: body["metadata"].update(
        managedFields=[{"manager": "somebody"}, {"manager": "shardwright"}]
    )
    world.decide = lambda _observed: Decision(stages=((make_apply(make_service("llama", uid, a=1)),),))
    with pytest.raises(RetryLaterError):
        await world.reconciler.reconcile(KEY)
    assert world.ledger.of(KEY)[ChildKind.SERVICE, "llama"].foreign
    taken_back = world.cluster.objects["Service", "models", "llama"]
    assert "spec" not in taken_back
    assert "ownerReferences" not in taken_back["metadata"]
    assert world.store.observe(KEY).children == {}


async def test_a_resource_of_many_groups_leaves_connections_to_the_others(
    world, make_service, make_apply
) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    names = [f"llama-{index}-ranks" for index in range(5 * AT_ONCE)]
    world.decide = lambda _observed: Decision(
        stages=(tuple(make_apply(make_service(name, uid)) for name in names),)
    )
    apply, under_way, most = world.cluster.apply, 0, 0

    async def slow(*args: Any, **options: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await apply(*args, **options)

    world.cluster.apply = slow
    await world.reconciler.reconcile(KEY)
    assert most == AT_ONCE
    assert {name for verb, _kind, name in world.cluster.calls if verb == "apply"} == set(names)
