"""One pass: what is written in which order, and what becomes of every kind of failure."""

from typing import Any

import pytest

from shardwright_operator.api.constants import API_VERSION, KIND, Annotation, Label
from shardwright_operator.api.pod_spec import SchedulingSpec
from shardwright_operator.apply.retry import RetryLaterError
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.cluster import (
    ClusterError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from shardwright_operator.decide.decision import (
    Decision,
    Delete,
    Event,
    EventType,
    PodClaim,
    ResourceClaim,
)
from shardwright_operator.observe.need import Need
from shardwright_operator.observe.observed import Demand
from shardwright_operator.observe.views import ChildKind, ClaimState, ClaimView, Key

KEY = Key("models", "llama")
PLANNED = Event(type=EventType.NORMAL, reason="Planned", message="TP 8")


async def test_a_resource_that_is_gone_needs_no_decision(world) -> None:
    assert await world.reconciler.reconcile(KEY) is None
    assert world.observed == []
    assert world.cluster.calls == []


async def test_stages_then_status_then_events(world, make_service, make_apply) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    world.decide = lambda _observed: Decision(
        stages=(
            (make_apply(make_service("first", uid)),),
            (make_apply(make_service("second", uid)), make_apply(make_service("third", uid))),
        ),
        status={"observedGeneration": 1},
        events=(PLANNED,),
        requeue_after_s=7.0,
    )
    assert await world.reconciler.reconcile(KEY) == 7.0
    kinds = [(verb, name if verb == "apply" else kind) for verb, kind, name in world.cluster.writes()]
    assert kinds == [
        ("apply", "first"),
        ("apply", "second"),
        ("apply", "third"),
        ("status", "ModelDeployment"),
        ("create", "Event"),
    ]


async def test_answers_are_known_to_the_next_pass(world, make_service, make_apply) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    world.decide = lambda _observed: Decision(
        stages=((make_apply(make_service("llama", uid)),),), status={"observedGeneration": 1}
    )
    await world.reconciler.reconcile(KEY)
    world.decide = lambda _observed: Decision()
    await world.reconciler.reconcile(KEY)
    seen = world.observed[-1]
    assert seen.children[ChildKind.SERVICE, "llama"].owner_uid == uid
    assert seen.resource.status == {"observedGeneration": 1}


async def test_a_failing_stage_keeps_later_ones_and_the_status_from_being_written(
    world, make_service, make_apply
) -> None:
    world.make_resource()
    world.cluster.fail = lambda _verb, _kind, name: UnavailableError("busy") if name == "first" else None
    world.decide = lambda _observed: Decision(
        stages=(
            (make_apply(make_service("first")), make_apply(make_service("beside"))),
            (make_apply(make_service("later")),),
        ),
        status={},
        events=(PLANNED,),
    )
    with pytest.raises(RetryLaterError, match="busy") as caught:
        await world.reconciler.reconcile(KEY)
    assert caught.value.error == "Unavailable"
    writes = world.cluster.writes()
    assert [name for _verb, kind, name in writes if kind != "Event"] == ["first", "beside"]
    # The next pass would find the first write done and not know any more what it was done for.
    assert [kind for _verb, kind, _name in writes].count("Event") == 1


@pytest.mark.parametrize(
    ("error", "want"),
    [
        pytest.param(UnavailableError("busy", retry_after_s=17.0), ("Unavailable", 17.0), id="Retry-After"),
        pytest.param(ForbiddenError("no right"), ("Forbidden", 10.0), id="a right is missing"),
        pytest.param(NotFoundError("no namespace"), ("NotFound", 0.0), id="the namespace is gone"),
    ],
)
async def test_errors_of_reads_become_delays(world, error: ClusterError, want: tuple[str, float]) -> None:
    world.make_resource(model={"source": {"persistentVolumeClaim": {"claimName": "weights"}}})

    def fail(verb: str, kind: str, _name: str) -> ClusterError | None:
        return (
            error
            if (verb, kind) in {("get", "PersistentVolumeClaim"), ("status", "ModelDeployment")}
            else None
        )

    world.cluster.fail = fail
    if isinstance(error, NotFoundError):
        assert await world.reconciler.reconcile(KEY) is None
        assert world.observed[-1].claim == ClaimView(name="weights", state=ClaimState.MISSING)
        return
    with pytest.raises(RetryLaterError) as caught:
        await world.reconciler.reconcile(KEY)
    assert (caught.value.error, caught.value.at_least_s) == want


async def test_a_claim_is_read_once_and_again_after_a_while(world) -> None:
    world.make_resource(model={"source": {"persistentVolumeClaim": {"claimName": "weights"}}})
    world.cluster.seed(
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "models", "name": "weights"},
            "spec": {"accessModes": ["ReadOnlyMany"]},
        }
    )
    for _ in range(3):
        await world.reconciler.reconcile(KEY)
    assert world.observed[-1].claim == ClaimView(
        name="weights", state=ClaimState.FOUND, access_modes=("ReadOnlyMany",)
    )
    assert len(world.cluster.calls) == 1
    world.advance(61)
    await world.reconciler.reconcile(KEY)
    assert len(world.cluster.calls) == 2


async def test_a_claim_without_a_volume_is_read_again_soon_and_its_class_is_seen(world) -> None:
    world.make_resource(model={"source": {"persistentVolumeClaim": {"claimName": "weights"}}})
    world.cluster.seed(
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "models", "name": "weights"},
            "spec": {"accessModes": ["ReadOnlyMany"], "storageClassName": "nfs"},
            "status": {"phase": "Pending"},
        }
    )
    await world.reconciler.reconcile(KEY)
    found = world.observed[-1].claim
    assert (found.phase, found.storage_class) == ("Pending", "nfs")
    world.advance(6)
    await world.reconciler.reconcile(KEY)
    assert len(world.cluster.calls) == 2


async def test_who_waits_for_gpus_hears_of_a_status_by_which_another_stops_to_wait(world) -> None:
    """As in a namespace on its way out: what it held back can no longer be made, and it says so."""
    world.store.replace_strangers((), version=0)
    plan = {"gpu": "H100-SXM-80GB", "nodes": 2, "gpusPerNode": 8}
    waiting = {"plan": plan, "groups": [{"index": 0, "phase": "Pending", "reason": "WaitingForCapacity"}]}
    other = Key("elsewhere", "mistral")
    metadata = {"namespace": other.namespace, "name": other.name}
    held = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {}, "status": waiting}
    world.store.put(world.cluster.seed(held), deleted=False)
    world.make_resource()
    world.decide = lambda _observed: Decision(status=waiting)
    await world.reconciler.reconcile(KEY)
    world.store.observe(other)
    assert world.woken == []

    refused = {"plan": plan, "groups": [{"index": 0, "phase": "Pending", "reason": "WriteRefused"}]}
    world.decide = lambda _observed: Decision(status=refused)
    await world.reconciler.reconcile(KEY)
    assert world.woken == [other]


def pod(uid: str, **metadata: Any) -> dict[str, Any]:
    labels = {Label.DEPLOYMENT: "llama", Label.GROUP_INDEX: "0", Label.ROLE: "worker"}
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": "models",
            "name": "llama-0-worker-1",
            "uid": uid,
            "labels": labels,
            **metadata,
        },
    }


@pytest.mark.parametrize(
    ("live", "holds"),
    [
        pytest.param(None, True, id="gone"),
        pytest.param(pod("new"), True, id="another one"),
        pytest.param(pod("old", deletionTimestamp="2030-01-01T00:00:00Z"), True, id="going"),
        pytest.param(pod("old"), False, id="still there"),
    ],
)
async def test_a_destructive_step_rests_on_confirmed_beliefs(
    world, make_service, make_apply, live: dict[str, Any] | None, holds: bool
) -> None:
    world.make_resource()
    if live is not None:
        world.cluster.seed(live)
    world.decide = lambda _observed: Decision(
        confirm=(PodClaim(name="llama-0-worker-1", uid="old"),),
        stages=((make_apply(make_service()),),),
    )
    if holds:
        await world.reconciler.reconcile(KEY)
        assert len(world.cluster.writes()) == 1
    else:
        with pytest.raises(RetryLaterError, match="still there"):
            await world.reconciler.reconcile(KEY)
        assert world.cluster.writes() == []
        assert [p.uid for p in world.store.observe(KEY).pods] == ["old"]


@pytest.mark.parametrize("holds", [pytest.param(True, id="the same"), pytest.param(False, id="made anew")])
async def test_what_an_earlier_resource_left_goes_only_if_that_is_gone(world, *, holds: bool) -> None:
    """To an operator that has missed a change of resources, the children of today's would look like that."""
    live = world.make_resource()["metadata"]["uid"]
    left = Delete(kind=ChildKind.SERVICE, name="llama", uid="s", why="left behind")
    believed = live if holds else "another"
    world.decide = lambda _observed: Decision(
        confirm=(ResourceClaim(name="llama", uid=believed),), stages=((left,),)
    )
    if holds:
        await world.reconciler.reconcile(KEY)
    else:
        with pytest.raises(RetryLaterError, match="another one by now"):
            await world.reconciler.reconcile(KEY)
    assert (KIND in world.distrusted) is not holds


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda body: body.update(spec={"replicas": 2}), id="spec"),
        pytest.param(lambda body: body["metadata"].update(annotations={Annotation.RETRY: "now"}), id="retry"),
        pytest.param(
            lambda body: body["metadata"].update(deletionTimestamp="2030-01-01T00:00:00Z"), id="end"
        ),
    ],
)
async def test_an_edit_that_came_with_the_answer_to_a_status_is_looked_at(world, edit) -> None:
    world.make_resource()
    world.cluster.alter = edit
    world.decide = lambda _observed: Decision(status={"observedGeneration": 1})
    await world.reconciler.reconcile(KEY)

    late = world.cluster.objects[KIND, KEY.namespace, KEY.name]
    assert world.store.put(late, deleted=False) == frozenset(), "to the watch it is no news"
    assert world.woken == [KEY]


async def test_a_status_alone_is_no_reason_to_look_again(world) -> None:
    world.make_resource(replicas=1)
    world.decide = lambda _observed: Decision(status={"observedGeneration": 1})
    await world.reconciler.reconcile(KEY)
    assert world.woken == []


async def test_status_of_a_resource_that_was_made_anew_is_not_written(world) -> None:
    world.make_resource()
    place = ("ModelDeployment", "models", "llama")
    world.cluster.objects[place]["metadata"]["uid"] = "another"
    world.decide = lambda _observed: Decision(status={})
    with pytest.raises(RetryLaterError, match="anew"):
        await world.reconciler.reconcile(KEY)
    assert world.distrusted == ["ModelDeployment"]


async def test_a_status_that_the_server_refuses_is_not_retried_hotly(world) -> None:
    world.make_resource()
    world.cluster.fail = lambda verb, _kind, _name: (
        InvalidError("status.x: wrong") if verb == "status" else None
    )
    world.decide = lambda _observed: Decision(status={"x": 1})
    with pytest.raises(RetryLaterError) as caught:
        await world.reconciler.reconcile(KEY)
    assert (caught.value.error, caught.value.at_least_s) == ("StatusRefused", 10.0)


async def test_the_same_event_is_posted_once_in_ten_minutes_and_its_loss_is_no_failure(world) -> None:
    world.make_resource()
    world.decide = lambda _observed: Decision(events=(PLANNED,))
    for _ in range(3):
        await world.reconciler.reconcile(KEY)
    assert len(world.cluster.writes()) == 1
    world.advance(601)
    world.cluster.fail = lambda _verb, kind, _name: ForbiddenError("no") if kind == "Event" else None
    await world.reconciler.reconcile(KEY)
    assert len(world.cluster.writes()) == 2
    (event,) = (body for (kind, _, _), body in world.cluster.objects.items() if kind == "Event")
    assert (event["reason"], event["type"], event["involvedObject"]["name"]) == ("Planned", "Normal", "llama")


async def test_a_status_that_an_older_crd_cuts_is_written_once(world) -> None:
    world.make_resource()
    world.cluster.alter = lambda body: body["status"].pop("new", None)
    world.decide = lambda _observed: Decision(status={"old": 1, "new": 1})
    for _ in range(3):
        await world.reconciler.reconcile(KEY)
    assert world.cluster.calls == [("status", "ModelDeployment", "llama")]

    world.decide = lambda _observed: Decision(status={"old": 2, "new": 1})
    await world.reconciler.reconcile(KEY)
    assert len(world.cluster.calls) == 2


async def test_a_cut_status_that_somebody_changes_is_written_again(world) -> None:
    body = world.make_resource()
    world.cluster.alter = lambda body: body["status"].pop("new", None)
    world.decide = lambda _observed: Decision(status={"old": 1, "new": 1})
    await world.reconciler.reconcile(KEY)
    world.store.put(world.cluster.seed({**body, "status": {"old": 7}}), deleted=False)
    await world.reconciler.reconcile(KEY)
    assert len(world.cluster.calls) == 2


async def test_what_a_pass_is_about_to_make_counts_for_others_until_it_is_done(
    world, make_service, make_apply
) -> None:
    uid = world.make_resource()["metadata"]["uid"]
    need = Need(pods=2, pod_gpus=8, pool=PoolSelection(), scheduling=SchedulingSpec())
    coming = Demand(key=KEY, group=0, created_at=world.now, need=need, admitted=True)
    seen = []

    def look(_verb: str, _kind: str, _name: str) -> None:
        seen.append(world.store.observe(Key("models", "other")).capacity.demands)

    world.store.replace_strangers((), version=0)
    world.cluster.fail = look
    write = make_apply(make_service("llama", uid))
    world.decide = lambda _observed: Decision(stages=((write,),), starts=(coming,))
    await world.reconciler.reconcile(KEY)
    assert (coming,) in seen
    assert world.store.observe(KEY).capacity.demands == ()
