"""Taking a group down and holding it there: the barrier that keeps old and new pods from ever meeting.

A StatefulSet would recreate a lost worker at once, while a terminating leader is still published and a
starting one ignores SIGTERM, and the two would join. So the whole group goes: leader set first, because that
one apply also carries the attempt's record, then the workers; and only when every pod is gone, and the
back-off is over, do both sets go up again.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from shardwright_operator.api.constants import Annotation, GroupPhase, Reason
from shardwright_operator.build.revision import Revision
from shardwright_operator.decide.decision import Delete, Event, EventType
from shardwright_operator.decide.failure import (
    NODE_GONE,
    Failure,
    next_attempt,
    read_evidence,
    restart_delay_s,
)
from shardwright_operator.decide.record import Record
from shardwright_operator.decide.scene import GroupStep
from shardwright_operator.decide.standing import Standing
from shardwright_operator.observe.views import PodView
from shardwright_operator.status.conditions import rfc3339

BROKEN_GRACE_S = 2
"""Grace of the pods of a broken group. Their requests are lost anyway, and a starting leader ignores SIGTERM:
with the pod's own grace it took 31.5 s to go (seen on vLLM 0.32)."""

LOST_NODE_GRACE_S = 30
"""How long past its own deadline a pod may stay on a node that is gone before its record is removed by force.
A StatefulSet never does that, and the group would wait for ever."""


def fail(group: Standing, revision: Revision, failure: Failure) -> GroupStep:
    """Take a broken group down, and write what broke it in the same apply."""
    scene = group.scene
    leader_pod = group.leader_pod
    ready_since = leader_pod.ready_since if leader_pod else None
    attempt = next_attempt(scene.recovery, group.record.attempt, ready_since, scene.now)
    delay_s = restart_delay_s(scene.recovery, attempt, f"{scene.owner.uid}/{group.index}")
    record = replace(
        group.record,
        members=(),
        restarts=0,
        attempt=attempt,
        not_before=rfc3339(scene.now + timedelta(seconds=delay_s)),
        cause=str(failure.reason),
        evidence=group.evidence(failure, attempt),
    )
    event = Event(
        type=EventType.WARNING,
        reason=str(failure.reason),
        message=f"group {group.index}: {failure.message}; the whole group starts again",
    )
    return replace(
        take_down(group, revision, record, failure.reason, failure.message),
        events=(event,),
        confirm=(failure.claim,) if failure.claim is not None else (),
    )


def roll(group: Standing, target: Revision, why: str) -> GroupStep:
    """Take a group down to start it with the target revision; that is no failure and counts as none."""
    standing = group.revision or target
    record = Record(revision=standing.name, cause=str(Reason.ROLLING_OUT), retry=group.record.retry)
    return take_down(group, standing, record, Reason.ROLLING_OUT, why)


def park(group: Standing, revision: Revision, obstacle: str) -> GroupStep:
    """Take down the half of a group whose other half cannot be: it would hold its GPUs for nothing."""
    record = replace(group.record, members=())
    return take_down(group, revision, record, Reason.WRITE_REFUSED, f"waits: {obstacle}")


def take_down(group: Standing, revision: Revision, record: Record, reason: Reason, why: str) -> GroupStep:
    """One apply on the leader set, then the workers. Their pods follow in the passes to come."""
    return GroupStep(
        state=group.state(GroupPhase.RESTARTING, reason, why, record=record, members=revision.members),
        leader=group.write_leader(revision, record, replicas=0),
        worker=group.empty_worker(),
    )


def hold(group: Standing) -> GroupStep:
    """The leader set wants no pod: wait until all is gone and the time has come, then start."""
    scene, record = group.scene, group.record
    if not group.at_rest:
        cause = Reason(record.cause) if record.cause in set(Reason) else Reason.UNKNOWN
        deletes = _remaining(group)
        return GroupStep(
            state=group.state(GroupPhase.RESTARTING, cause, f"waiting for {_going(group)}"),
            worker=group.empty_worker(),
            deletes=deletes,
            requeue_after_s=_next_look_s(group, deletes),
        )
    coming = _next_revision(group)
    fresh = record.retry != scene.retry or (
        group.revision is not None and coming.pods_hash != group.revision.pods_hash
    )
    if not fresh and record.attempt > scene.recovery.restart_limit:
        return GroupStep(state=group.state(GroupPhase.FAILED, Reason.RESTART_LIMIT, _given_up(group)))
    wait_s = 0.0 if fresh else record.due_in_s(scene.now)
    if wait_s > 0:
        text = f"restart {record.attempt} of {scene.recovery.restart_limit} at {record.not_before}"
        return GroupStep(
            state=group.state(GroupPhase.RESTARTING, Reason.BACKING_OFF, f"{text}; {_first_failure(group)}"),
            requeue_after_s=wait_s,
        )
    kept = Record() if fresh else replace(record, members=(), not_before="")
    return start(group, coming, kept, "starts again")


def await_leftovers(group: Standing) -> GroupStep:
    """Wait until the pods of sets that no longer exist have gone; the garbage collector sees to them."""
    stuck = (_delete_pod(pod, 0, f"node {pod.node} is gone") for pod in group.pods if _is_stuck(group, pod))
    text = f"waiting for {_going(group)}, of sets that are gone"
    return GroupStep(
        state=group.state(GroupPhase.PENDING, Reason.STARTING, text),
        deletes=tuple(stuck),
        requeue_after_s=_next_look_s(group, ()),
    )


def start(group: Standing, revision: Revision, record: Record, text: str) -> GroupStep:
    """Bring both sets up at once, from nothing, unless something that the group needs cannot be written."""
    obstacle = group.scene.obstacle(group.index)
    if obstacle:
        return GroupStep(state=group.state(GroupPhase.PENDING, Reason.WRITE_REFUSED, f"waits: {obstacle}"))
    record = replace(record, revision=revision.name, retry=group.scene.retry)
    return GroupStep(
        state=group.state(
            GroupPhase.STARTING, Reason.STARTING, text, record=record, members=revision.members
        ),
        leader=group.write_leader(revision, record, replicas=1),
        worker=group.write_worker(revision),
        deletes=group.delete_worker("the group has no workers any more") if revision.members == 1 else (),
    )


def _next_revision(group: Standing) -> Revision:
    """What the group starts with: the target, or while paused what it ran before."""
    if group.scene.paused and group.revision is not None:
        return group.revision
    return group.scene.target


def _remaining(group: Standing) -> tuple[Delete, ...]:
    """Deletions of what would otherwise take too long, or for ever."""
    deletes: list[Delete] = []
    if group.worker is not None and group.worker.desired_replicas and group.empty_worker() is None:
        deletes.extend(group.delete_worker("no revision knows its template"))
    for pod in group.pods:
        if _is_stuck(group, pod):
            deletes.append(_delete_pod(pod, 0, f"node {pod.node} is gone"))
        elif group.record.attempt and not _ends_soon(group, pod):
            deletes.append(_delete_pod(pod, BROKEN_GRACE_S, "its group is broken"))
        elif group.leader_pod is None and not _ends_soon(group, pod):
            # Workers wait in their preStop so that rank 0 can finish its requests; it has.
            deletes.append(_delete_pod(pod, BROKEN_GRACE_S, "its leader has ended"))
    return tuple(deletes)


def _going(group: Standing) -> str:
    """Who is waited for; a pod that outstays its time names the node that should have ended it."""
    if not group.pods:
        return "the sets' controller"
    overdue = [p for p in group.pods if p.deadline is not None and p.deadline < group.scene.now]
    if overdue:
        return f"pod {overdue[0].name}, which node {overdue[0].node or 'none'} does not end"
    return f"{len(group.pods)} pods to go"


def _ends_soon(group: Standing, pod: PodView) -> bool:
    soon = group.scene.now + timedelta(seconds=BROKEN_GRACE_S + 1)
    return pod.deleting and pod.deadline is not None and pod.deadline <= soon


def _is_stuck(group: Standing, pod: PodView) -> bool:
    nodes = group.scene.observed.nodes
    if pod.deadline is None or group.scene.now <= pod.deadline + timedelta(seconds=LOST_NODE_GRACE_S):
        return False
    if nodes is None:
        # Without the right to read nodes, what Kubernetes wrote on the pod itself must do.
        return pod.disruption in NODE_GONE
    node = next((n for n in nodes if n.name == pod.node), None)
    return node is None or not node.ready


def _next_look_s(group: Standing, deletes: Sequence[Delete]) -> float | None:
    """When a pod that is going becomes overdue, and when it may be forced away: no event tells of either.

    A grace that this very pass shortens counts as it will be. Its answer is in the store before the watch
    tells of it, which is then no news and starts no pass (a group waited for the old grace, once in a few).
    """
    now = group.scene.now
    shortened = {delete.uid for delete in deletes if delete.grace_period_s}
    looks = []
    for pod in group.pods:
        deadline = now + timedelta(seconds=BROKEN_GRACE_S) if pod.uid in shortened else pod.deadline
        if deadline is not None:
            overdue = deadline + timedelta(seconds=1)
            looks += [overdue, overdue + timedelta(seconds=LOST_NODE_GRACE_S)]
    return min(((look - now).total_seconds() for look in looks if look > now), default=None)


def _delete_pod(pod: PodView, grace_period_s: int, why: str) -> Delete:
    return Delete(kind=None, name=pod.name, uid=pod.uid, why=why, grace_period_s=grace_period_s)


def _given_up(group: Standing) -> str:
    return (
        f"given up after {group.scene.recovery.restart_limit} restarts; {_first_failure(group)}. "
        f"Correct the spec, or set the annotation {Annotation.RETRY} to a new value to try again"
    )


def _first_failure(group: Standing) -> str:
    evidence = read_evidence(group.record.evidence) or {}
    return f"first failure: {evidence.get('message', 'not recorded')}"
