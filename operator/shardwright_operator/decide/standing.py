"""One group as it stands in this pass, and the writes and states that all steps are made of."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from shardwright_operator.api import names
from shardwright_operator.api.constants import GroupPhase, Label, Reason, Role
from shardwright_operator.api.gang import GANG_APIS
from shardwright_operator.build.gang import gang_object
from shardwright_operator.build.revision import Revision
from shardwright_operator.build.stateful_set import leader_set, worker_set
from shardwright_operator.decide.decision import Apply, Delete, SetClaim
from shardwright_operator.decide.failure import Failure, read_evidence
from shardwright_operator.decide.record import Record
from shardwright_operator.decide.scene import Scene
from shardwright_operator.observe.values import LONG_AGO
from shardwright_operator.observe.views import GANG_KINDS, ChildKind, ChildView, PodView
from shardwright_operator.status.group import GroupState

COMING_UP = frozenset({GroupPhase.PENDING, GroupPhase.STARTING, GroupPhase.FORMING, GroupPhase.RESTARTING})


class Standing:
    """A group's sets, pods and record."""

    def __init__(self, scene: Scene, index: int) -> None:
        """Look the group up in what was observed."""
        self.scene = scene
        self.index = index
        self.leader = self._set(Role.LEADER)
        self.worker = self._set(Role.WORKER)
        self.gangs = tuple(
            child
            for kind in GANG_KINDS
            if (child := scene.child(kind, names.group(scene.owner.name, index))) is not None
            and child.owner_uid == scene.owner.uid
        )
        """What stands for the group at gang schedulers; more than one after a change of the scheduler."""
        self.record = Record.of(self.leader) if self.leader else Record()
        self.pods = tuple(pod for pod in scene.observed.pods if pod.group == index)
        self.revision = scene.revisions.get(self.record.revision)
        """The revision of the standing sets; None when its object is gone."""
        self.ranks = tuple(pod for pod in self.pods if self._is_rank(pod))
        """The pods that are ranks of the engine; others are there when somebody has scaled a set."""

    @property
    def surplus(self) -> tuple[PodView, ...]:
        """Pods beyond the group's ranks: all that a set makes when somebody scales it up."""
        return tuple(pod for pod in self.pods if pod not in self.ranks)

    @property
    def leader_pod(self) -> PodView | None:
        """The pod of rank 0."""
        return next((pod for pod in self.pods if pod.node_rank == 0), None)

    @property
    def formation_leader(self) -> PodView | None:
        """Rank 0 of the pods that formed the group, as it stands or was last seen."""
        pod = self.leader_pod
        if self.record.members and (pod is None or pod.uid != self.record.members[0]):
            return self.scene.observed.obituaries.get(self.record.members[0])
        return pod

    @property
    def identity(self) -> str:
        """What sets the group apart from all others, for delays that are spread."""
        return f"{self.scene.owner.uid}/{self.index}"

    @property
    def exists(self) -> bool:
        """Whether there is a group at all: an empty worker set without its leader set is only a remnant."""
        return self.leader is not None or bool(self.pods) or (self.worker is not None and not self.at_rest)

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to go for good; that is not taken back, its index is free once it is gone."""
        leader = self.leader
        return (
            leader is not None and leader.desired_replicas == 0 and self.record.cause == Reason.SCALING_DOWN
        )

    @property
    def age(self) -> tuple[datetime, int]:
        """Older groups compare as less; of those made together, those with a lower index."""
        return (self.leader.created_at if self.leader is not None else LONG_AGO, self.index)

    @property
    def at_rest(self) -> bool:
        """Whether the sets want no pods, their controller knows that, and none is left.

        The controller may work from a cached set for a moment and make one more pod of the old template,
        which ``OnDelete`` would then keep for good.
        """
        sets = [s for s in (self.leader, self.worker) if s is not None]
        return not self.pods and all(s.desired_replicas == 0 and s.settled and s.replicas == 0 for s in sets)

    def serves(self, members: int) -> bool:
        """Whether every member is there and ready; only rank 0's readiness says that the engine answers."""
        return len(self.ranks) == members and all(pod.ready for pod in self.ranks)

    def has_served(self) -> bool:
        """Whether rank 0 has come up since its pod was made: by its start-up probe, else by the last status.

        Of a rank 0 that nobody saw go, the better is assumed. One that the last status saw coming up passed
        its start-up probe and not yet that of readiness: a kubelet tells of the two one after the other.
        """
        leader = self.formation_leader
        if leader is None:
            return bool(self.record.members)
        if leader.ready_since is not None:
            return True
        resource = self.scene.observed.resource
        groups = (resource.status.get("groups") or ()) if resource else ()
        earlier: Mapping[str, object] = next((g for g in groups if g.get("index") == self.index), {})
        if leader.started:
            return earlier.get("phase") not in COMING_UP
        return earlier.get("phase") in {GroupPhase.READY, GroupPhase.DEGRADED}

    def remnants_revision(self) -> Revision | None:
        """The revision of what stands of a group whose leader set, which names it, is gone."""
        hashes = {pod.pods_hash for pod in self.pods}
        if self.worker is not None:
            labels = self.worker.body.get("metadata", {}).get("labels") or {}
            hashes.add(labels.get(Label.PODS, ""))
        known = [revision for revision in self.scene.revisions.values() if revision.pods_hash in hashes]
        return max(known, key=lambda revision: revision.number, default=None)

    def write_leader(self, revision: Revision, record: Record, *, replicas: Literal[0, 1]) -> Apply | None:
        """The leader set with its record, if that differs from what stands."""
        return self.scene.write(
            leader_set(
                self.scene.owner, revision, self.index, replicas=replicas, annotations=record.annotations()
            )
        )

    def write_worker(self, revision: Revision) -> Apply | None:
        """The worker set wanting all its pods; None for a group of one pod."""
        workers = revision.members - 1
        if workers == 0:
            return None
        return self.scene.write(worker_set(self.scene.owner, revision, self.index, replicas=workers))

    def write_gang(self, revision: Revision) -> Apply | None:
        """The object that stands for the group at its gang scheduler; None if it has none, or stands so."""
        wanted = gang_object(self.scene.owner, revision, self.index)
        if (
            wanted is None
            or revision.gang is None
            or revision.gang.gang in self.scene.observed.gang_obstacles
        ):
            # Of a kind that cannot be used it is not known whether it stands.
            return None
        return self.scene.write(wanted)

    def stale_gangs(self, revision: Revision) -> tuple[ChildView, ...]:
        """What stands for the group and is on its way out, or is not what this revision's pods will name."""
        kind = None if revision.gang is None else GANG_APIS[revision.gang.gang].kind
        if len(self.gangs) == 1 and self.gangs[0].kind == kind and not self.gangs[0].deleting:
            return () if self.write_gang(revision) is None else self.gangs
        return self.gangs

    def delete_gangs(self) -> tuple[Delete, ...]:
        """Deletions of what stands for an attempt that is over."""
        why = "the attempt that it stands for is over"
        return tuple(
            Delete(kind=each.kind, name=each.name, uid=each.uid, why=why)
            for each in self.gangs
            if not each.deleting
        )

    def empty_worker(self) -> Apply | None:
        """The worker set wanting no pods, in its own revision if that is known."""
        if self.worker is None or self.worker.desired_replicas == 0:
            return None
        known = (self.revision, self.scene.target, *self.scene.revisions.values())
        revision = next((r for r in known if r is not None and r.worker_template is not None), None)
        if revision is None:
            return None
        return self.scene.write(worker_set(self.scene.owner, revision, self.index, replicas=0))

    def was_refused(self, role: Role) -> bool:
        """Whether the server refused the last write to this set."""
        name = names.stateful_set(self.scene.owner.name, self.index, role)
        return self.scene.was_refused(ChildKind.STATEFUL_SET, name)

    def no_set(self, role: Role) -> SetClaim:
        """The belief that the group has no such set, to be confirmed before it costs the group."""
        owner = self.scene.owner
        return SetClaim(name=names.stateful_set(owner.name, self.index, role), owner_uid=owner.uid)

    @property
    def leader_scaled_down(self) -> str:
        """In words, that somebody has scaled the leader set to 0."""
        name = names.stateful_set(self.scene.owner.name, self.index, Role.LEADER)
        return f"the leader set {name} was scaled to 0 by somebody"

    def delete_worker(self, why: str) -> tuple[Delete, ...]:
        """Deletion of the worker set, if there is one."""
        if self.worker is None:
            return ()
        return (Delete(kind=self.worker.kind, name=self.worker.name, uid=self.worker.uid, why=why),)

    def evidence(self, failure: Failure, attempt: int) -> str:
        """The first failure's record as JSON; a later one does not overwrite it."""
        if attempt > 1 and self.record.evidence:
            return self.record.evidence
        return json.dumps(failure.evidence(self.scene.now), sort_keys=True)

    def state(
        self,
        phase: GroupPhase,
        reason: Reason,
        message: str,
        *,
        record: Record | None = None,
        members: int | None = None,
    ) -> GroupState:
        """The group's state in these words."""
        record = record or self.record
        revision = self.scene.revisions.get(record.revision)
        target = self.scene.target
        known_members = revision.members if revision else 1
        return GroupState(
            index=self.index,
            phase=phase,
            reason=reason,
            message=message,
            revision=record.revision,
            current=revision is not None and revision.pods_hash == target.pods_hash,
            restarts=record.attempt,
            members=known_members if members is None else members,
            ready_members=sum(pod.ready for pod in self.ranks),
            nodes=tuple(pod.node for pod in self.ranks if pod.node),
            first_failure=read_evidence(record.evidence),
            started=record.started_at,
        )

    def _is_rank(self, pod: PodView) -> bool:
        if pod.role is Role.LEADER:
            return pod.node_rank == 0
        return self.revision is None or pod.node_rank < self.revision.members

    def _set(self, role: Role) -> ChildView | None:
        name = names.stateful_set(self.scene.owner.name, self.index, role)
        return self.scene.child(ChildKind.STATEFUL_SET, name)
