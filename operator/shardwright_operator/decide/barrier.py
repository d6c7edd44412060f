"""Taking a group down and holding it there: the barrier that keeps old and new pods from ever meeting.

A StatefulSet would recreate a lost worker at once, while a terminating leader is still published and a
starting one ignores SIGTERM, and the two would join. So the whole group goes: leader set first, because that
one apply also carries the attempt's record, then the workers; and only when every pod is gone, and the
back-off is over, do both sets go up again.
"""

import json
from dataclasses import replace
from datetime import timedelta

from shardwright_operator.api import names
from shardwright_operator.api.constants import Annotation, GroupPhase, Reason, Role
from shardwright_operator.build.revision import Revision
from shardwright_operator.decide import remains
from shardwright_operator.decide.admission import LOOK_AGAIN_S, RELEASE_S
from shardwright_operator.decide.decision import Event, EventType, GoneClaim
from shardwright_operator.decide.delay import next_attempt, restart_delay_s, spread
from shardwright_operator.decide.failure import Failure, better_evidence, read_evidence
from shardwright_operator.decide.record import Record
from shardwright_operator.decide.scene import GroupStep
from shardwright_operator.decide.standing import Standing
from shardwright_operator.status.conditions import rfc3339
from shardwright_operator.status.group import GroupState

DRAIN_S = 8
"""How long a group that was moved off a cordoned node stays down at least. ``kubectl drain`` asks again every
5 s, by the pod's name: it must find the pod terminating, or gone. One that is back by then it takes for the
one that it was to evict; its budget refuses that, and the drain would never end (kubectl 1.36)."""


def fail(group: Standing, revision: Revision, failure: Failure) -> GroupStep:
    """Take a broken group down, and write what broke it in the same apply."""
    if failure.reason is Reason.PREEMPTED:
        return _give_way(group, revision, failure)
    scene, leader = group.scene, group.formation_leader
    ready_since = leader.ready_since if leader else None
    attempt = next_attempt(scene.recovery, group.record.attempt, ready_since, scene.now)
    delay_s = restart_delay_s(scene.recovery, attempt, group.identity)
    record = replace(
        group.record,
        revision=revision.name,
        members=(),
        restarts=0,
        attempt=attempt,
        not_before=rfc3339(scene.now + timedelta(seconds=delay_s)),
        cause=str(failure.reason),
        evidence=group.evidence(failure, attempt),
        started="" if group.has_served() else group.record.started,
    )
    text = f"group {group.index}: {failure.message}; the whole group starts again"
    return _take_down_for(failure, group, revision, record, text)


def _give_way(group: Standing, revision: Revision, failure: Failure) -> GroupStep:
    """Take down the rest of a group of which a pod was preempted: it has not failed, and nothing is counted.

    It asks for its nodes again after the first restart's wait, so that whom it gave way to is placed by then.
    """
    scene = group.scene
    delay_s = restart_delay_s(scene.recovery, 1, group.identity)
    record = replace(
        group.record,
        members=(),
        restarts=0,
        not_before=rfc3339(scene.now + timedelta(seconds=delay_s)),
        cause=str(Reason.PREEMPTED),
        started="" if group.has_served() else group.record.started,
    )
    text = f"group {group.index}: {failure.message}; the whole group waits for room"
    return _take_down_for(failure, group, revision, record, text)


def _take_down_for(
    failure: Failure, group: Standing, revision: Revision, record: Record, text: str
) -> GroupStep:
    """Take a group down for what has happened to a member, and say so; the belief in it is confirmed."""
    return replace(
        take_down(group, revision, record, failure.reason, failure.message),
        events=(Event(type=EventType.WARNING, reason=str(failure.reason), message=text),),
        confirm=(failure.claim,) if failure.claim is not None else (),
    )


def roll(group: Standing, reason: Reason, why: str) -> GroupStep:
    """Take a group down to start it anew, elsewhere or with another revision; that counts as no failure."""
    standing = group.revision or group.scene.target
    record = Record(revision=standing.name, cause=str(reason), retry=group.record.retry)
    if reason is Reason.DRAINING:
        back = group.scene.now + timedelta(seconds=DRAIN_S)
        record = replace(record, not_before=rfc3339(back))
    text = f"group {group.index} goes down to start again: {why}"
    return replace(
        take_down(group, standing, record, reason, why),
        events=(Event(type=EventType.NORMAL, reason=str(reason), message=text),),
    )


def park(group: Standing, revision: Revision, obstacle: str) -> GroupStep:
    """Take down the half of a group whose other half cannot be: it would hold its GPUs for nothing.

    That a set was refused is recorded. Each later try begins with the question whether the worker set would
    be taken, also of an operator that was started anew: the leader's half came and went with every try
    before.
    """
    record = replace(group.record, members=(), cause=str(Reason.WRITE_REFUSED))
    return take_down(group, revision, record, Reason.WRITE_REFUSED, f"waits: {obstacle}")


def release(group: Standing, revision: Revision, beneficiary: str) -> GroupStep:
    """Give back the nodes of a group that cannot get all it needs, so that another one can run on them."""
    scene = group.scene
    pause_s = RELEASE_S * (1 + spread(group.identity)) / 2
    record = replace(
        group.record,
        members=(),
        not_before=rfc3339(scene.now + timedelta(seconds=pause_s)),
        cause=str(Reason.WAITING_FOR_CAPACITY),
    )
    why = f"gives its nodes back, because {beneficiary} can run on them"
    event = Event(
        type=EventType.NORMAL,
        reason=str(Reason.WAITING_FOR_CAPACITY),
        message=f"group {group.index} lacks nodes and {why}",
    )
    down = take_down(group, revision, record, Reason.WAITING_FOR_CAPACITY, why)
    state = replace(down.state, phase=GroupPhase.PENDING)
    return replace(down, state=state, ends=remains.at_once(group), events=(event,))


def leave(group: Standing) -> GroupStep:
    """Take a group down for good; when nothing of it is left, its children go as nobody needs them."""
    text = f"is being removed; waiting for {remains.awaited(group)}"
    step = GroupStep(
        state=group.state(GroupPhase.TERMINATING, Reason.SCALING_DOWN, text), worker=group.empty_worker()
    )
    if group.leader is None or group.is_leaving:
        deletes = remains.deletions(group) if group.is_leaving else remains.stuck_deletions(group)
        look_again_s = remains.next_look_s(group, deletes)
        return replace(step, deletes=(*deletes, *group.delete_gangs()), requeue_after_s=look_again_s)
    revision = group.revision or group.scene.target
    record = Record(revision=revision.name, cause=str(Reason.SCALING_DOWN), retry=group.record.retry)
    text = f"group {group.index} is removed"
    return replace(
        step,
        leader=group.write_leader(revision, record, replicas=0),
        deletes=group.delete_gangs(),
        events=(Event(type=EventType.NORMAL, reason=str(Reason.SCALING_DOWN), message=text),),
    )


def take_down(group: Standing, revision: Revision, record: Record, reason: Reason, why: str) -> GroupStep:
    """One apply on the leader set, then the workers. Their pods follow in the passes to come."""
    return GroupStep(
        state=group.state(GroupPhase.RESTARTING, reason, why, record=record, members=revision.members),
        leader=group.write_leader(revision, record, replicas=0),
        worker=group.empty_worker(),
        deletes=group.delete_gangs(),
        goes_down=True,
    )


def hold(group: Standing) -> GroupStep:
    """The leader set wants no pod: wait until all is gone and the time has come, then start."""
    scene, record = group.scene, group.record
    if (learnt := _learnt(group)) is not None:
        return learnt
    if not group.at_rest or group.gangs:
        cause, why = _cause(group)
        deletes = remains.deletions(group)
        return GroupStep(
            state=group.state(GroupPhase.RESTARTING, cause, f"{why}waiting for {remains.awaited(group)}"),
            worker=group.empty_worker(),
            deletes=(*deletes, *group.delete_gangs()),
            requeue_after_s=remains.next_look_s(group, deletes),
        )
    coming = (group.revision if scene.held else None) or scene.coming
    fresh = record.retry != scene.retry or (
        group.revision is not None and coming.pods_hash != group.revision.pods_hash
    )
    if not fresh and record.attempt > scene.recovery.restart_limit:
        return GroupStep(state=group.state(GroupPhase.FAILED, Reason.RESTART_LIMIT, _given_up(group)))
    wait_s = 0.0 if fresh and record.cause != Reason.DRAINING else record.due_in_s(scene.now)
    if wait_s > 0:
        return GroupStep(state=_backing_off(group), requeue_after_s=wait_s)
    kept = Record() if fresh else replace(record, members=(), not_before="")
    return start(group, coming, kept, "starts again")


def _cause(group: Standing) -> tuple[Reason, str]:
    """Why the group is down, and words for it where no Event has told."""
    cause = group.record.cause
    if not cause:
        # Whatever is taken down here has its cause written down: this one had not formed yet.
        return Reason.MEMBER_LOST, f"{group.leader_scaled_down}; "
    # A newer operator may know causes that this one does not.
    return Reason(cause) if cause in set(Reason) else Reason.UNKNOWN, ""


def _learnt(group: Standing) -> GroupStep | None:
    """Write the cause down that was not known when the group was taken down, and tell it."""
    evidence = better_evidence(group.record.evidence, group.scene.observed.obituaries)
    if evidence is None or group.revision is None:
        return None
    reason, message = Reason(evidence["reason"]), evidence["message"]
    record = replace(group.record, cause=str(reason), evidence=json.dumps(evidence, sort_keys=True))
    if reason is Reason.PREEMPTED:
        # It was counted as a failure, and was none.
        record = replace(record, attempt=group.record.attempt - 1, evidence="")
    text = f"group {group.index}: {message}; that is why it starts again"
    return GroupStep(
        state=group.state(GroupPhase.RESTARTING, reason, message, record=record),
        leader=group.write_leader(group.revision, record, replicas=0),
        events=(Event(type=EventType.WARNING, reason=str(reason), message=text),),
    )


def await_leftovers(group: Standing) -> GroupStep:
    """Wait until the pods of sets that no longer exist have gone; the garbage collector sees to them."""
    text = f"waiting for {remains.awaited(group)}, left behind by a StatefulSet that was deleted"
    return GroupStep(
        state=group.state(GroupPhase.PENDING, Reason.STARTING, text),
        deletes=remains.stuck_deletions(group),
        requeue_after_s=remains.next_look_s(group, ()),
    )


def start(group: Standing, revision: Revision, record: Record, text: str) -> GroupStep:
    """Bring both sets up at once, from nothing, unless something that the group needs is not to be had."""
    scene = group.scene
    members = revision.members
    if obstacle := scene.obstacle(group.index, revision):
        waiting = group.state(GroupPhase.PENDING, Reason.WRITE_REFUSED, f"waits: {obstacle}", members=members)
        return GroupStep(state=waiting)
    if scene.gate is not None and revision.name == scene.target.name:
        waiting = group.state(GroupPhase.PENDING, scene.gate.reason, scene.gate.message, members=members)
        return GroupStep(state=waiting)
    if refusal := scene.admission.refusal(group.index, revision):
        waiting = group.state(GroupPhase.PENDING, Reason.WAITING_FOR_CAPACITY, refusal, members=members)
        return GroupStep(state=waiting, requeue_after_s=LOOK_AGAIN_S)
    gang = group.write_gang(revision)
    if stale := group.stale_gangs(revision):
        waiting_for = f"waiting for {stale[0].kind} {stale[0].name} to go"
        waiting = group.state(GroupPhase.PENDING, Reason.STARTING, waiting_for, members=members)
        return GroupStep(state=waiting, deletes=group.delete_gangs())
    if revision.gang is not None and gang is None and not group.gangs:
        # Its pods would wait for it: it was written again and again, and the next time has not come.
        waiting_for = f"waiting until its object for {revision.gang.gang} can be made"
        return GroupStep(state=group.state(GroupPhase.PENDING, Reason.STARTING, waiting_for, members=members))
    record = replace(
        record, revision=revision.name, retry=scene.retry, started=record.started or rfc3339(scene.now)
    )
    worker = group.write_worker(revision)
    return GroupStep(
        state=group.state(GroupPhase.STARTING, Reason.STARTING, text, record=record, members=members),
        rehearsal=replace(worker, rehearsal=True) if worker and _doubts_workers(group) else None,
        gang=gang,
        leader=group.write_leader(revision, record, replicas=1),
        worker=worker,
        deletes=group.delete_worker("the group has no workers any more") if members == 1 else (),
        confirm=() if group.leader is None else _all_gone(group),
    )


def _doubts_workers(group: Standing) -> bool:
    """Whether the server has refused the worker set before, so that it is asked before the leader's is made.

    It is not written first: what an operator leaves that dies between the two would have to be taken down
    again, for ever if it dies there each time. A leader set without its workers is just completed.
    """
    return group.record.cause == Reason.WRITE_REFUSED or group.was_refused(Role.WORKER)


def _all_gone(group: Standing) -> tuple[GoneClaim, ...]:
    """That no pod of what the group ran before is there; asked of the API server at each new start."""
    members = group.revision.members if group.revision else group.scene.target.members
    return tuple(
        GoneClaim(name=names.pod(group.scene.owner.name, group.index, rank)) for rank in range(members)
    )


def _backing_off(group: Standing) -> GroupState:
    """The state of a group whose time has not come."""
    record = group.record
    if record.cause in remains.GAVE_WAY:
        how = "was preempted" if record.cause == Reason.PREEMPTED else "gave its nodes back"
        text = f"{how}; asks for nodes again at {record.not_before}"
        return group.state(GroupPhase.PENDING, Reason.WAITING_FOR_CAPACITY, text)
    if record.cause == Reason.DRAINING:
        text = f"has left its nodes; starts again at {record.not_before}"
        return group.state(GroupPhase.RESTARTING, Reason.DRAINING, text)
    text = f"restart {record.attempt} of {group.scene.recovery.restart_limit} at {record.not_before}"
    return group.state(GroupPhase.RESTARTING, Reason.BACKING_OFF, f"{text}; {_first_failure(group)}")


def _given_up(group: Standing) -> str:
    return (
        f"given up after {group.scene.recovery.restart_limit} restarts; {_first_failure(group)}. "
        f"Correct the spec, or set the annotation {Annotation.RETRY} to a new value to try again"
    )


def _first_failure(group: Standing) -> str:
    evidence = read_evidence(group.record.evidence) or {}
    return f"first failure: {evidence.get('message', 'not recorded')}"
