"""Has a group lost a member, and what was the cause?

A multi-node engine does not survive the loss of one rank: the other ranks hang, ``/health`` stays 200 and a
new pod cannot join the old ones (seen on vLLM 0.32). So the group's pods are known by UID once all of them
exist, and whatever happens to one of them afterwards without our doing breaks the group.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shardwright_operator.api.constants import Reason
from shardwright_operator.decide.cause import Cause, cause_of
from shardwright_operator.decide.decision import Claim, PodClaim
from shardwright_operator.observe.containers import ContainerExit
from shardwright_operator.observe.excerpt import head_and_tail
from shardwright_operator.observe.values import LONG_AGO
from shardwright_operator.observe.views import PodView
from shardwright_operator.status.conditions import rfc3339

EVIDENCE_CHARACTERS = 1024
_UNTOLD = frozenset({Reason.MEMBER_LOST, Reason.CONTAINER_RESTARTED, Reason.UNKNOWN})
"""Reasons that only say that nothing was known."""
_CONSEQUENCES = frozenset({Reason.PEER_LOST, Reason.RENDEZVOUS_TIMEOUT})
"""What a member says that is ended because another one was lost: learnt late, they tell nothing."""
FORMATION_SPREAD_S = 30
"""How far apart the members of one attempt may be created: a busy StatefulSet controller makes workers some
seconds after the leader. It matters where a leader is ready at once, as simulated ones are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The first thing found wrong with a group, and what is known of its cause."""

    reason: Reason
    message: str
    node_rank: int
    pod: str
    node: str
    pod_uid: str = ""
    exit: ContainerExit | None = None
    claim: Claim | None = None
    """What to look at in the live API before the group is taken down for it."""

    def evidence(self, now: datetime) -> dict[str, Any]:
        """The record that is kept with the step which acts on the failure."""
        record: dict[str, Any] = {
            "time": rfc3339(now),
            "reason": str(self.reason),
            "nodeRank": self.node_rank,
            "pod": self.pod,
            "node": self.node,
            "message": self.message[:EVIDENCE_CHARACTERS],
        }
        if self.pod_uid:
            record["podUid"] = self.pod_uid
        if self.exit is not None:
            record["exitCode"] = self.exit.exit_code
            if self.exit.message:
                record["terminationMessage"] = head_and_tail(self.exit.message, EVIDENCE_CHARACTERS)
        return record


def find_failure(
    members: Sequence[str], pods: Sequence[PodView], obituaries: Mapping[str, PodView]
) -> Failure | None:
    """What broke a group of several pods first, or None.

    ``members`` are the UIDs by node rank once the group has formed, empty before. Pods are those of the group
    as they stand now; obituaries are the last sights of those that are gone.
    """
    found = [*_lost_members(members, pods, obituaries), *_ending_pods(pods)]
    if found:
        return min(found, key=_order)
    return _replaced_unseen(pods) if not members else None


def _order(failure: Failure) -> tuple[bool, datetime]:
    """Causes before consequences: what a rank says of its peers is last, and then time decides.

    A pod that was taken away has no time of its own here, and comes first: its peers ended because of it.
    """
    ended = failure.exit.finished_at if failure.exit is not None else None
    return failure.reason is Reason.PEER_LOST, ended or LONG_AGO


def _lost_members(
    members: Sequence[str], pods: Sequence[PodView], obituaries: Mapping[str, PodView]
) -> Iterator[Failure]:
    by_rank = {pod.node_rank: pod for pod in pods}
    for rank, uid in enumerate(members):
        pod = by_rank.get(rank)
        if pod is None or pod.uid != uid:
            yield _lost(rank, uid, obituaries.get(uid), successor=pod)


def _ending_pods(pods: Sequence[PodView]) -> Iterator[Failure]:
    for pod in pods:
        if pod.deleting or pod.phase in {"Failed", "Succeeded"}:
            yield _leaving(pod)
        elif pod.restarts > 0 or pod.ended:
            yield _restarted(pod)


def better_evidence(text: str, obituaries: Mapping[str, PodView]) -> dict[str, Any] | None:
    """Evidence that says only now what ended its pod; None when there is no more to say.

    A pod's successor may be seen before the pod's own last sight: events of two objects come in any order.
    """
    record = read_evidence(text) or {}
    last_sight = obituaries.get(str(record.get("podUid")))
    if last_sight is None or record.get("reason") not in _UNTOLD:
        return None
    cause = cause_of(last_sight)
    if cause.reason in _UNTOLD | _CONSEQUENCES:
        return None
    known = _lost(last_sight.node_rank, last_sight.uid, last_sight, successor=None)
    return known.evidence(LONG_AGO) | {"time": record.get("time", "")}


def read_evidence(text: str) -> dict[str, Any] | None:
    """Evidence as it was written; None when there is none or somebody garbled it."""
    if not text:
        return None
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _lost(rank: int, uid: str, last_sight: PodView | None, *, successor: PodView | None) -> Failure:
    known = last_sight if last_sight is not None else successor
    name = known.name if known is not None else ""
    how = "was replaced" if successor is not None else "was lost"
    cause = cause_of(last_sight) if last_sight is not None else Cause(reason=Reason.MEMBER_LOST, detail="")
    return Failure(
        reason=cause.reason,
        message=f"rank {rank}{f' ({name})' if name else ''} {how}{cause.detail}",
        node_rank=rank,
        pod=name,
        node=last_sight.node if last_sight is not None else "",
        pod_uid=uid,
        exit=last_sight.last_exit if last_sight is not None else None,
        claim=PodClaim(name=name, uid=uid) if name else None,
    )


def _leaving(pod: PodView) -> Failure:
    how = "is terminating" if pod.deleting else f"ended as {pod.phase}"
    return _seen(pod, cause_of(pod), f"rank {pod.node_rank} ({pod.name}) {how}")


def _restarted(pod: PodView) -> Failure:
    how = "restarted in place" if pod.restarts else "ended"
    cause = cause_of(pod, otherwise=Reason.CONTAINER_RESTARTED)
    return _seen(pod, cause, f"a container of rank {pod.node_rank} ({pod.name}) {how}")


def _seen(pod: PodView, cause: Cause, what: str) -> Failure:
    return Failure(
        reason=cause.reason,
        message=f"{what}{cause.detail}",
        node_rank=pod.node_rank,
        pod=pod.name,
        node=pod.node,
        pod_uid=pod.uid,
        exit=pod.last_exit,
    )


def _replaced_unseen(pods: Sequence[PodView]) -> Failure | None:
    """A member created after rank 0 had become ready took the place of one that was lost unseen.

    It happens when the operator is down from before the group formed until after the loss: rank 0 is ready
    only when all ranks have joined, so a younger member cannot be one of those.
    """
    ready_since = next((pod.ready_since for pod in pods if pod.node_rank == 0), None)
    if ready_since is None:
        return None
    spread = timedelta(seconds=FORMATION_SPREAD_S)
    late = next((pod for pod in pods if pod.created_at > ready_since + spread), None)
    if late is None:
        return None
    return Failure(
        reason=Reason.MEMBER_LOST,
        message=f"rank {late.node_rank} ({late.name}) is younger than the group's formation",
        node_rank=late.node_rank,
        pod=late.name,
        node=late.node,
    )
