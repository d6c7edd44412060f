"""The judge is judged: each broken promise, in a history made by hand, is found, and a clean one passes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from control_plane.audit import AuditEvent
from ending import leaked, remains, unsettled
from history import audit_lines, judge
from replay import World, world_after
from rules_of_conduct import writes_in_quiet
from sights import LEADER, WORKER, Child, Deployment, GroupKey, GroupSet, Node, Pod, Sight, Thing
from violations import Violation

GROUP = GroupKey("llama", "0")
BEGINNING = datetime(2030, 1, 1, tzinfo=UTC)


class History:
    """Sights a second apart, unless time passes."""

    def __init__(self) -> None:
        self.sights: list[Sight] = []
        self._at = BEGINNING.timestamp()

    def see(self, *things: Thing) -> "History":
        for thing in things:
            self._add(thing, gone=False)
        return self

    def lose(self, *things: Thing) -> "History":
        for thing in things:
            self._add(thing, gone=True)
        return self

    def wait(self, seconds: float) -> "History":
        self._at += seconds
        return self

    def _add(self, thing: Thing, *, gone: bool) -> None:
        self._at += 1
        self.sights.append(Sight(at=self._at, version=len(self.sights) + 1, thing=thing, gone=gone))


def deployment(**changes: object) -> Deployment:
    whole = Deployment(
        name="llama", uid="d", generation=1, replicas=1, said_generation=1, said_ready=1, ready=True
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def leader(wanted: int, *, group: GroupKey = GROUP, **changes: object) -> GroupSet:
    name = f"{group.resource}-{group.index}-leader"
    whole = GroupSet(name=name, uid=name, group=group, role=LEADER, wanted=wanted, pod_gpus=8, pods_hash="a")
    return replace(whole, **changes)  # type: ignore[arg-type]


def worker(wanted: int, *, group: GroupKey = GROUP, **changes: object) -> GroupSet:
    name = f"{group.resource}-{group.index}-worker"
    return replace(leader(wanted, group=group), name=name, uid=name, role=WORKER, **changes)  # type: ignore[arg-type]


def pod(rank: int, life: int = 1, *, group: GroupKey = GROUP, **changes: object) -> Pod:
    role = "worker" if rank else "leader"
    name = f"{group.resource}-{group.index}-{role}-{rank}"
    whole = Pod(
        name=name, uid=f"{name} {life}", group=group, pods_hash="a", node=f"n{rank}", gpus=8, ready=True
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def node(index: int, **changes: object) -> Node:
    return replace(Node(name=f"n{index}", uid=f"n{index}", gpus=8), **changes)  # type: ignore[arg-type]


def child(**changes: object) -> Child:
    whole = Child(kind="Service", name="llama-0-ranks", uid="s", resource="llama", owner_uid="d", group="0")
    return replace(whole, **changes)  # type: ignore[arg-type]


def running() -> History:
    """A group of two pods that serves, on two nodes."""
    unsaid = deployment(said_ready=0, ready=False)
    return History().see(node(0), node(1), unsaid, leader(1), worker(1), pod(0), pod(1), deployment())


def replaced(history: History, life: int = 1) -> History:
    """The group loses a worker and comes back behind the barrier."""
    gone = pod(1, life, going=True, ready=False)
    return (
        history.see(gone, leader(0), worker(0), deployment(said_ready=0, ready=False))
        .lose(gone, pod(0, life))
        .see(leader(1), worker(1), pod(0, life + 1), pod(1, life + 1), deployment())
    )


def rolled(history: History) -> History:
    """An edit leads to pods of another revision, and an edit of replicas to a second group and back."""
    second = GroupKey("llama", "1")
    edited = deployment(generation=2, said_generation=2)
    unsaid = replace(edited, said_ready=0, ready=False)
    two = replace(edited, generation=3, replicas=2)
    new = {"pods_hash": "b"}
    return (
        history.see(edited, leader(0), worker(0), unsaid)
        .lose(pod(0), pod(1))
        .see(leader(1, **new), worker(1, **new), pod(0, 2, **new), pod(1, 2, **new), edited)
        .see(two, node(2), node(3), leader(1, group=second), worker(1, group=second))
        .see(pod(0, group=second, node="n2"), pod(1, group=second, node="n3"))
        .see(replace(two, said_generation=3, said_ready=2))
        .see(replace(edited, generation=4, said_ready=2), leader(0, group=second), worker(0, group=second))
        .see(replace(edited, generation=4, said_generation=4))
        .lose(pod(0, group=second), pod(1, group=second), leader(0, group=second), worker(0, group=second))
    )


def waiting_while_a_node_is_gone() -> History:
    other = GroupKey("other", "0")
    history = running().see(replace(deployment(), name="other", uid="o", said_ready=0)).lose(node(1)).wait(60)
    history.see(leader(1, group=other), worker(1, group=other))
    return history.see(*(pod(rank, group=other, node="", ready=False) for rank in (0, 1)))


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(running, id="comes up"),
        pytest.param(lambda: replaced(running()), id="is replaced"),
        pytest.param(lambda: rolled(running()), id="is rolled and scaled"),
        pytest.param(lambda: replaced(replaced(running()), 2), id="is replaced twice"),
        pytest.param(waiting_while_a_node_is_gone, id="a group waits while a node is gone"),
    ],
)
def test_a_clean_history_passes(history: Callable[[], History]) -> None:
    assert judge(history().wait(60).see(node(9)).sights, [], []) == []


def beside_a_worker_that_still_goes() -> History:
    going = pod(1, going=True, ready=False)
    return running().see(going, leader(0), worker(0)).lose(pod(0)).see(leader(1))


def beside_a_pod_of_a_set_that_was_deleted() -> History:
    return running().lose(leader(1)).see(leader(1, uid="another"))


def of_another_revision() -> History:
    return running().see(pod(1, going=True)).lose(pod(1)).see(pod(1, 2, pods_hash="b"))


def workers_alone() -> History:
    return running().see(pod(0, restarts=1), leader(0), worker(0)).lose(pod(0), pod(1)).see(worker(1))


def one_group_too_many() -> History:
    return running().see(leader(1, group=GroupKey("llama", "1")))


def scaled_down_long_ago() -> History:
    history = running().see(deployment(replicas=2, generation=2)).see(deployment(generation=3))
    return history.wait(60).see(leader(1, group=GroupKey("llama", "1")))


def started_without_a_resource() -> History:
    history = running().lose(deployment(), leader(1), worker(1), pod(0), pod(1))
    return history.wait(60).see(leader(1))


def two_groups_beyond_the_pool() -> History:
    others = [GroupKey("other", index) for index in "01"]
    history = running().see(replace(deployment(), name="other", uid="o", replicas=2, said_ready=0))
    for group in others:
        history.see(leader(1, group=group), worker(1, group=group))
        history.see(pod(0, group=group, node=""), pod(1, group=group, node=""))
    return history


def taken_down_whole() -> History:
    return running().wait(60).see(leader(0), worker(0))


def said_ready_for_long() -> History:
    return running().see(pod(1, ready=False)).wait(60).see(node(9))


def made_for_a_resource_long_gone() -> History:
    history = running().lose(deployment(), leader(1), worker(1), pod(0), pod(1))
    return history.wait(60).see(child())


def never_said_ready() -> History:
    return running().see(deployment(said_ready=0)).wait(60).see(node(9))


BROKEN: dict[Callable[[], History], list[tuple[str, str]]] = {
    beside_a_worker_that_still_goes: [("a group starts beside its old pods", "llama/0")],
    beside_a_pod_of_a_set_that_was_deleted: [("a group starts beside its old pods", "llama/0")],
    of_another_revision: [("pods of two revisions side by side", "llama/0")],
    workers_alone: [("workers start without a leader", "llama/0")],
    one_group_too_many: [("more groups than asked for", "llama")],
    scaled_down_long_ago: [("more groups than asked for", "llama")],
    started_without_a_resource: [("more groups than asked for", "llama")],
    two_groups_beyond_the_pool: [
        ("more GPUs than there are", "other/1"),
        ("more GPUs than there are", "other/1"),
    ],
    made_for_a_resource_long_gone: [("a child of a resource that is gone", "llama")],
    taken_down_whole: [("a group is taken down for nothing", "llama/0")],
    said_ready_for_long: [("a status that is not true", "llama")],
    never_said_ready: [("a status that is not true", "llama")],
}


@pytest.mark.parametrize("history", [pytest.param(each, id=each.__name__) for each in BROKEN])
def test_a_broken_promise_is_found_with_its_evidence(history: Callable[[], History]) -> None:
    found = judge(history().sights, [], [])
    assert [(violation.rule, violation.about) for violation in found] == BROKEN[history]
    assert all(violation.evidence for violation in found)


def test_evidence_names_set_and_pods() -> None:
    (violation,) = judge(beside_a_worker_that_still_goes().sights, [], [])
    assert violation.evidence == (
        "llama-0-leader (llama-0-) wants 1, pods a, at version 13",
        "llama-0-worker-1 (llama-0-) of pods a on n1: going",
    )


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param([pod(1, restarts=1)], id="container restarted"),
        pytest.param([pod(1, ended=True)], id="container ended"),
        pytest.param([pod(1, finished=True)], id="pod failed"),
        pytest.param([pod(1, going=True)], id="pod deleted"),
        pytest.param([node(1, cordoned=True)], id="node cordoned"),
        pytest.param([node(1, ready=False)], id="node not ready"),
        pytest.param([worker(1, going=True)], id="set deleted"),
        pytest.param([worker(0, ours=False), worker(1)], id="set scaled by hand"),
        pytest.param([deployment(generation=2)], id="spec edited"),
    ],
)
def test_a_group_may_be_taken_down_for_a_cause(trouble: Sequence[Thing]) -> None:
    assert judge(running().wait(60).see(*trouble).see(leader(0), worker(0)).sights, [], []) == []


def test_a_status_may_lag_while_nobody_can_write_it() -> None:
    sights = said_ready_for_long().sights
    assert judge(sights, [], [(sights[0].at, sights[-1].at)]) == []


def request(
    number: int, verb: str, resource: str, *, every_s: float, name: str = "llama-0-leader"
) -> AuditEvent:
    whole, _, subresource = resource.partition("/")
    return AuditEvent(
        received=BEGINNING + timedelta(seconds=number * every_s),
        user="operator",
        verb=verb,
        group="apps",
        resource=whole,
        subresource=subresource,
        namespace="storm",
        name=name,
        code=200,
        uri="",
        user_agent="",
    )


@pytest.mark.parametrize(
    ("verb", "resource", "every_s", "found"),
    [
        pytest.param(
            "patch", "statefulsets", 0.1, ["patch statefulsets storm/llama-0-leader"], id="hot loop"
        ),
        pytest.param("patch", "statefulsets", 1.0, [], id="a write a second"),
        pytest.param("delete", "pods", 0.2, ["delete pods storm/llama-0-leader"], id="deletions"),
        pytest.param("patch", "modeldeployments/status", 0.4, [], id="a status now and then"),
        pytest.param(
            "patch",
            "modeldeployments/status",
            0.05,
            ["patch modeldeployments/status storm/llama-0-leader"],
            id="statuses",
        ),
        pytest.param("list", "pods", 0.1, ["list pods"], id="lists"),
        pytest.param("patch", "leases", 0.01, [], id="the Lease"),
    ],
)
def test_requests_may_not_come_in_storms(verb: str, resource: str, every_s: float, found: list[str]) -> None:
    group = "coordination.k8s.io" if resource == "leases" else "apps"
    requests = [replace(request(n, verb, resource, every_s=every_s), group=group) for n in range(300)]
    violations = judge([], requests, [])
    assert [(v.rule, v.about) for v in violations] == [("a storm of requests", about) for about in found]


def test_any_write_in_quiet_is_too_many() -> None:
    lease = replace(request(1, "update", "leases", every_s=1), group="coordination.k8s.io")
    write = request(3, "patch", "services", every_s=1, name="llama")
    assert list(writes_in_quiet([lease, request(2, "list", "pods", every_s=1)])) == []
    assert list(writes_in_quiet([lease, write])) == [
        Violation(
            rule="writes though nothing changes",
            about="1 requests",
            at=write.received.timestamp(),
            evidence=("patch services llama: 200",),
        )
    ]


def test_audit_lines_are_those_of_the_object_at_that_time() -> None:
    violation = Violation(rule="", about="llama/0", at=BEGINNING.timestamp(), evidence=())
    requests = [
        request(1, "patch", "statefulsets", every_s=1),
        request(2, "patch", "statefulsets", every_s=1, name="other-0-leader"),
        request(9, "patch", "statefulsets", every_s=1),
    ]
    assert audit_lines(violation, requests) == ["00:00:01.000 patch statefulsets llama-0-leader: 200"]


def test_a_settled_world_is_that() -> None:
    world = world_after(running().sights)
    assert (list(unsettled(world)), list(leaked(world))) == ([], [])
    assert list(remains(world_after([]))) == []


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        pytest.param(deployment(replicas=2), "llama: 1 groups are up, 2 are asked for", id="too few"),
        pytest.param(deployment(replicas=0), "llama: 1 groups are up, 0 are asked for", id="too many"),
        pytest.param(
            pod(1, ready=False),
            "group llama/0 does not serve: llama-0-leader-0 ready on n0, llama-0-worker-1 on n1",
            id="not ready",
        ),
        pytest.param(
            pod(1, going=True),
            "group llama/0 does not serve: llama-0-leader-0 ready on n0, llama-0-worker-1 going ready on n1",
            id="going",
        ),
        pytest.param(
            leader(0, group=GroupKey("llama", "7")), "llama: sets of groups 7 are left", id="a set is left"
        ),
        pytest.param(
            pod(1, node="n9"), "llama: the nodes of llama-0-worker-1 are gone", id="a node that is gone"
        ),
        pytest.param(pod(1, pods_hash="b"), "llama: pods of 2 revisions run", id="two revisions"),
        pytest.param(
            deployment(generation=2), "llama: the status tells of generation 1 of 2", id="an old status"
        ),
        pytest.param(
            deployment(ready=False, words="X: y"), "llama: not Ready and settled: X: y", id="not Ready"
        ),
        pytest.param(
            deployment(reconciling=True, words="X: y"), "llama: not Ready and settled: X: y", id="under way"
        ),
        pytest.param(
            deployment(overridden=True),
            "llama: a child that somebody changed is still told of",
            id="an override that is still told",
        ),
        pytest.param(deployment(said_ready=0), "llama: readyReplicas 0 of 1", id="a wrong number"),
    ],
)
def test_what_is_unsettled_is_told(thing: Thing, words: str) -> None:
    assert words in list(unsettled(world_after(running().see(thing).sights)))


@pytest.mark.parametrize(
    ("things", "words"),
    [
        pytest.param([child()], [], id="in use"),
        pytest.param([child(group="")], [], id="of the resource"),
        pytest.param(
            [child(owner_uid="x")], ["Service llama-0-ranks has no owner that is there"], id="another's"
        ),
        pytest.param(
            [child(resource="x")], ["Service llama-0-ranks has no owner that is there"], id="nobody's"
        ),
        pytest.param(
            [child(group="5")], ["Service llama-0-ranks is of group 5, which is not there"], id="of no group"
        ),
        pytest.param(
            [child(kind="ControllerRevision", uid=str(number), group="") for number in range(13)],
            ["13 revisions of llama are kept"],
            id="history without end",
        ),
    ],
)
def test_what_has_leaked_is_told(things: Sequence[Thing], words: list[str]) -> None:
    assert list(leaked(world_after(running().see(*things).sights))) == words


@pytest.mark.parametrize(
    ("history", "words"),
    [
        pytest.param(running().see(child()).lose(deployment()), "1.0 s before", id="left to the collector"),
        pytest.param(running().lose(deployment()).see(child()), "1.0 s after", id="made too late"),
    ],
)
def test_what_has_leaked_tells_whether_it_is_older_than_the_end_of_its_owner(
    history: History, words: str
) -> None:
    (told,) = leaked(world_after(history.see(deployment(uid="e")).sights))
    assert told.startswith(
        f"Service llama-0-ranks has no owner that is there: it was made {words} its owner went"
    )


def test_all_that_remains_is_told() -> None:
    world: World = world_after(running().see(child()).sights)
    assert list(remains(world)) == [
        "ModelDeployment llama",
        "StatefulSet llama-0-leader",
        "StatefulSet llama-0-worker",
        "Pod llama-0-leader-0",
        "Pod llama-0-worker-1",
        "Service llama-0-ranks",
    ]
