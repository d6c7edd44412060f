"""Pods that are on their way out: what to do so that they go, whom to blame when they do not."""

from collections.abc import Sequence
from datetime import timedelta

from shardwright_operator.api.constants import Reason
from shardwright_operator.decide.cause import NODE_GONE
from shardwright_operator.decide.decision import Delete
from shardwright_operator.decide.standing import Standing
from shardwright_operator.observe.views import PodView

GAVE_WAY = frozenset({Reason.WAITING_FOR_CAPACITY, Reason.PREEMPTED})
"""Causes of a group that went down so that others can run: it waits for room, and has not failed."""

BROKEN_GRACE_S = 2
"""Grace of the pods of a broken group. Their requests are lost anyway, and a starting leader ignores SIGTERM:
with the pod's own grace it took 31.5 s to go (seen on vLLM 0.32)."""

LOST_NODE_GRACE_S = 30
"""How long past its own deadline a pod may stay on a node that is gone before its record is removed by force.
A StatefulSet never does that, and the group would wait for ever."""


NEWBORN_S = 10
"""How long a pod that a set made though it is to have none is left to the set's own controller.

One that works from a cached set makes the next pod as soon as this one is gone. After a restart of the API
server it did so for 30 s: with deletions at once that were 50 pods and 200 statuses.
"""

OVERDUE_S = 1
"""Past its deadline a pod may take this long to be gone: deadlines are whole seconds."""


def deletions(group: Standing) -> tuple[Delete, ...]:
    """Deletions of what would otherwise take too long, or for ever."""
    deletes: list[Delete] = []
    if group.worker is not None and group.worker.desired_replicas and group.empty_worker() is None:
        deletes.extend(group.delete_worker("no revision knows its template"))
    serves_nobody = bool(group.record.attempt) or group.record.cause in GAVE_WAY
    for pod in group.pods:
        if _is_stuck(group, pod):
            deletes.append(_delete_pod(pod, 0, f"node {pod.node} is gone"))
        elif _is_newborn(group, pod):
            continue
        elif serves_nobody and not _ends_soon(group, pod):
            deletes.append(_delete_pod(pod, BROKEN_GRACE_S, "its group is broken"))
        elif group.leader_pod is None and not _ends_soon(group, pod):
            # Workers wait in their preStop so that rank 0 can finish its requests; it has.
            deletes.append(_delete_pod(pod, BROKEN_GRACE_S, "its leader has ended"))
    return tuple(deletes)


def at_once(group: Standing) -> tuple[Delete, ...]:
    """Deletions of all pods of a group that has just broken, before its worker set lets its pods go.

    Cutting a grace short afterwards comes too late: a kubelet runs a preStop hook, by which workers wait for
    their leader, to its end (a worker took 42 s to go, seen on a kubelet of Kubernetes 1.36).
    """
    return tuple(
        _delete_pod(pod, BROKEN_GRACE_S, "its group is broken")
        for pod in group.pods
        if not _ends_soon(group, pod)
    )


def surplus_deletions(group: Standing) -> tuple[Delete, ...]:
    """Deletions of pods that are no ranks: they know the leader, and may call it under a rank that it has."""
    return tuple(
        _delete_pod(pod, BROKEN_GRACE_S, "it is no rank of its group")
        for pod in group.surplus
        if not _is_newborn(group, pod) and not _ends_soon(group, pod)
    )


def stuck_deletions(group: Standing) -> tuple[Delete, ...]:
    """Deletions by force of pods whose nodes will never confirm their end."""
    return tuple(
        _delete_pod(pod, 0, f"node {pod.node} is gone") for pod in group.pods if _is_stuck(group, pod)
    )


def awaited(group: Standing) -> str:
    """Who is waited for; a pod that outstays its time names the node that should have ended it."""
    if not group.pods:
        leaving = (f"{each.kind} {each.name} to go" for each in group.gangs if group.at_rest)
        return next(leaving, "Kubernetes to confirm that its StatefulSets have no pods left")
    late = group.scene.now - timedelta(seconds=OVERDUE_S)
    overdue = [p for p in group.pods if p.deadline is not None and p.deadline <= late]
    if overdue:
        return f"pod {overdue[0].name}, which node {overdue[0].node or 'none'} does not end"
    return "1 pod to go" if len(group.pods) == 1 else f"{len(group.pods)} pods to go"


def _is_newborn(group: Standing, pod: PodView) -> bool:
    """Whether a controller that does not know yet that its set wants no pod has just made this one."""
    own = group.leader if pod.node_rank == 0 else group.worker
    young = group.scene.now < pod.created_at + timedelta(seconds=NEWBORN_S)
    return young and own is not None and not own.settled and not pod.deleting


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


def next_look_s(group: Standing, deletes: Sequence[Delete]) -> float | None:
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
            overdue = deadline + timedelta(seconds=OVERDUE_S)
            looks += [overdue, overdue + timedelta(seconds=LOST_NODE_GRACE_S)]
        elif _is_newborn(group, pod):
            looks.append(pod.created_at + timedelta(seconds=NEWBORN_S))
    return min(((look - now).total_seconds() for look in looks if look > now), default=None)


def _delete_pod(pod: PodView, grace_period_s: int, why: str) -> Delete:
    return Delete(kind=None, name=pod.name, uid=pod.uid, why=why, grace_period_s=grace_period_s)
