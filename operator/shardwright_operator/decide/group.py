"""The life of one group, one step at a time.

A group is up (its leader set wants a pod) or down (it wants none). Whatever the operator was doing when it
died can be read off the two sets again, so each step is chosen from what stands and from nothing else.
"""

from dataclasses import replace
from datetime import datetime

from shardwright_operator.api import names
from shardwright_operator.api.constants import GroupPhase, Reason, Role
from shardwright_operator.build.revision import Revision
from shardwright_operator.decide import barrier, remains
from shardwright_operator.decide.admission import LOOK_AGAIN_S
from shardwright_operator.decide.claim import claim_words
from shardwright_operator.decide.decision import Event, EventType, SetClaim
from shardwright_operator.decide.delay import next_attempt
from shardwright_operator.decide.failure import Failure, find_failure
from shardwright_operator.decide.record import Record
from shardwright_operator.decide.scene import GroupStep
from shardwright_operator.decide.standing import Standing
from shardwright_operator.decide.waiting import Sight, differing_images, waiting_state
from shardwright_operator.observe.views import PodView
from shardwright_operator.status.group import GroupState

MAKING_S = 10.0
"""Time for the sets' controllers to make a group's pods; then it is told where to look for what they say."""


def decide_group(group: Standing) -> GroupStep:
    """The next step of a group that is wanted, whatever its revision: who is replaced, the fleet decides."""
    if group.leader is None:
        return _create(group)
    if group.record.revision in group.scene.unreadable:
        # A newer operator wrote that revision and was rolled back: its groups are left as they are.
        return _watch(group, group.record, _members(group))
    if group.leader.desired_replicas == 0:
        return _scaled_down(group) if group.record.members else barrier.hold(group)
    return _keep_up(group)


def _create(group: Standing) -> GroupStep:
    """No leader set: a new group, or one whose leader set somebody deleted."""
    coming = (group.remnants_revision() if group.scene.held else None) or group.scene.coming
    if group.at_rest:
        return barrier.start(group, coming, Record(), "created")
    claim = group.no_set(Role.LEADER)
    if group.worker is None and all(pod.deleting or pod.set_uid for pod in group.pods):
        # Left over from sets that are gone, most likely of a resource of this name that was just deleted.
        return replace(barrier.await_leftovers(group), confirm=(claim,))
    # Its workers wait for a leader that is gone: back to the barrier, with a leader set that wants nothing.
    failure = _set_lost(Role.LEADER, f"the leader set {claim.name} was deleted", claim)
    return barrier.fail(group, coming, failure)


def _scaled_down(group: Standing) -> GroupStep:
    """The leader set of a group that had formed wants no pod, and was not told so here: that forgets members.

    As with a worker set that somebody scales it counts as a failure: what does that again and again, an
    autoscaler for one, meets the back-off and the limit.
    """
    failure = _set_lost(Role.LEADER, group.leader_scaled_down)
    return barrier.fail(group, group.revision or group.scene.coming, failure)


def _set_lost(role: Role, message: str, claim: SetClaim | None = None) -> Failure:
    """The failure of a group one of whose sets somebody took: it it is laid to that set's first rank."""
    rank = 0 if role is Role.LEADER else 1
    return Failure(reason=Reason.MEMBER_LOST, message=message, node_rank=rank, pod="", node="", claim=claim)


def _keep_up(group: Standing) -> GroupStep:
    """The leader set wants its pod: watch the group form and live, or take it down."""
    scene, revision = group.scene, group.revision
    if revision is None:
        # Its ControllerRevision was deleted: the set can no longer be repaired, only replaced.
        return _watch(group, group.record, _members(group))
    failure = _failure(group, revision)
    if failure is not None:
        return replace(barrier.fail(group, revision, failure), ends=remains.at_once(group))
    if not group.record.members and (obstacle := scene.obstacle(group.index, revision, sets_only=True)):
        return barrier.park(group, revision, obstacle)
    if beneficiary := scene.admission.beneficiary(group.index, revision, group.ranks):
        return barrier.release(group, revision, beneficiary)
    record = _formed(group, revision)
    events: tuple[Event, ...] = ()
    if revision.members == 1:
        record, events = _counted(group, record)
        if record.attempt > scene.recovery.restart_limit:
            text = f"started again {record.attempt} times"
            forgotten = replace(record, members=())
            down = barrier.take_down(group, revision, forgotten, Reason.RESTART_LIMIT, text)
            return replace(down, events=events)
    if not scene.held and revision.pods_hash == scene.target.pods_hash:
        # The same pods under a newer revision's name: a new plan for the same templates.
        revision = scene.target
        record = replace(record, revision=revision.name)
    step = _beside_surplus(group, _watch(group, record, revision.members))
    return replace(
        step,
        gang=group.write_gang(revision),
        leader=group.write_leader(revision, record, replicas=1),
        worker=group.write_worker(revision),
        deletes=(
            *(group.delete_worker("the group has no workers") if revision.members == 1 else ()),
            *remains.surplus_deletions(group),
        ),
        events=events,
        requeue_after_s=_patience_s(group, revision, step.state),
    )


def _patience_s(group: Standing, revision: Revision, state: GroupState) -> float | None:
    """When to look again at a group that waits for nodes, or has a part of them only.

    What it lacks is counted anew: the scheduler's word about its pods may come before the news of where those
    of others are, and no event follows.
    """
    if state.reason is Reason.WAITING_FOR_CAPACITY:
        return LOOK_AGAIN_S
    if len(group.ranks) < revision.members and (due_in_s := _pods_due_in_s(group)):
        return due_in_s
    wait_s = group.scene.admission.release_in_s(group.index, revision, group.ranks)
    return None if wait_s is None else max(wait_s, LOOK_AGAIN_S)


def _failure(group: Standing, revision: Revision) -> Failure | None:
    """What broke the group. A group of one pod has no peers to deceive: its pod may come back by itself."""
    stranger = next((pod for pod in group.ranks if pod.pods_hash != revision.pods_hash), None)
    if stranger is not None and not stranger.deleting:
        return Failure(
            reason=Reason.MEMBER_LOST,
            message=f"rank {stranger.node_rank} ({stranger.name}) was made from another revision",
            node_rank=stranger.node_rank,
            pod=stranger.name,
            node=stranger.node,
        )
    if revision.members == 1:
        return None
    if group.record.members and (
        group.worker is None or group.worker.desired_replicas < revision.members - 1
    ):
        claim = group.no_set(Role.WORKER)
        what = "was deleted" if group.worker is None else "was scaled down by somebody"
        gone = claim if group.worker is None else None
        return _set_lost(Role.WORKER, f"the worker set {claim.name} {what}", gone)
    return find_failure(group.record.members, group.ranks, group.scene.observed.obituaries)


def _formed(group: Standing, revision: Revision) -> Record:
    """The record with the members' UIDs, once all of them exist."""
    uids = {pod.node_rank: pod.uid for pod in group.ranks if not pod.deleting}
    if group.record.members or set(uids) != set(range(revision.members)):
        return group.record
    return replace(group.record, members=tuple(uids[rank] for rank in range(revision.members)))


def _counted(group: Standing, record: Record) -> tuple[Record, tuple[Event, ...]]:
    """The record of a group of one pod that was replaced or restarted: it runs on, but it counts."""
    pod = group.leader_pod
    if pod is None or pod.deleting or not record.members:
        return record, ()
    replaced = record.members[0] != pod.uid
    again = pod.restarts - (0 if replaced else record.restarts)
    if not replaced and again <= 0:
        return record, ()
    scene = group.scene
    failure = find_failure(record.members, group.ranks, scene.observed.obituaries)
    assert failure is not None  # noqa: S101 - the UIDs differ, or a container has restarted
    served_since = _served_since(group, record.members[0], pod)
    attempt = next_attempt(scene.recovery, record.attempt, served_since, scene.now)
    counted = replace(record, members=(pod.uid,), restarts=pod.restarts, cause=str(failure.reason))
    if failure.reason is not Reason.PREEMPTED:
        attempts = attempt + again - (0 if replaced else 1)
        counted = replace(counted, attempt=attempts, evidence=group.evidence(failure, attempt))
    text = f"group {group.index}: {failure.message}; its pod goes on by itself"
    return counted, (Event(type=EventType.WARNING, reason=str(failure.reason), message=text),)


def _served_since(group: Standing, uid: str, pod: PodView) -> datetime | None:
    """Since when the engine had served: the lost pod's readiness, or the ended container's start."""
    if pod.uid != uid:
        last_sight = group.scene.observed.obituaries.get(uid)
        return last_sight.ready_since if last_sight else None
    return pod.last_exit.started_at if pod.last_exit else None


def _watch(group: Standing, record: Record, members: int) -> GroupStep:
    """The state of a group that is up, in words, and nothing to do."""
    if group.serves(members):
        differing = differing_images(group.pods)
        text = f"serves requests; {differing}" if differing else "serves requests"
        state = group.state(GroupPhase.READY, Reason.GROUPS_READY, text, record=record, members=members)
        return GroupStep(state=state)
    revision = group.revision
    waiting = waiting_state(
        Sight(
            pods=group.ranks,
            members=members,
            has_served=group.has_served(),
            incomplete_set=_incomplete_set(group),
            is_late=_pods_due_in_s(group) == 0.0,
            shortfall=group.scene.admission.shortfall(group.index, revision, group.ranks)
            if revision is not None and any(pod.unschedulable for pod in group.ranks)
            else "",
            claim=claim_words(group.scene.observed.claim),
        )
    )
    state = group.state(waiting.phase, waiting.reason, waiting.message, record=record, members=members)
    return GroupStep(state=state)


def _beside_surplus(group: Standing, step: GroupStep) -> GroupStep:
    """The step, telling of pods that are no ranks: a set that somebody has scaled up is put back."""
    if not group.surplus:
        return step
    roles = sorted({pod.role for pod in group.surplus})
    sets = ", ".join(names.stateful_set(group.scene.owner.name, group.index, role) for role in roles)
    what = "1 pod goes again" if len(group.surplus) == 1 else f"{len(group.surplus)} pods go again"
    message = f"{step.state.message}; {what}, as {sets} was scaled up by somebody"
    return replace(step, state=replace(step.state, message=message))


def _members(group: Standing) -> int:
    """Pods of a group whose revision cannot be read."""
    return 1 + (group.worker.desired_replicas if group.worker else 0)


def _pods_due_in_s(group: Standing) -> float:
    """Seconds in which the sets' controllers have time yet to make the pods; 0 when these are late."""
    started = group.record.started_at
    return 0.0 if started is None else max(0.0, MAKING_S - (group.scene.now - started).total_seconds())


def _incomplete_set(group: Standing) -> str:
    """Name of the set that has not made all its pods, the leader's first."""
    role = Role.WORKER if group.leader_pod is not None else Role.LEADER
    return names.stateful_set(group.scene.owner.name, group.index, role)
