"""A revision: what runs, pinned in an owned ControllerRevision before anything is built from it.

A plan must not change because the operator was upgraded, a node came or went, or somebody wiped the status.
So everything that the pods of a group were made from is kept in an immutable object of its own, and the
groups name it. The API server refuses any change of its data; its name is a hash of the data, hence two
writes of one name never differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from shardwright_operator.api import names
from shardwright_operator.build.digest import digest
from shardwright_operator.build.gang_wish import GangWish
from shardwright_operator.build.owner import Manifest, Owner, metadata
from shardwright_operator.build.pool import PoolSelection
from shardwright_planner.plan import Plan

FORMAT = 1
"""Version of the layout of ``data``. A reader refuses a newer one instead of guessing."""


class RevisionError(ValueError):
    """A ControllerRevision that this operator cannot read; its groups are to be left as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What a ControllerRevision holds.

    ``pool`` is how pods select nodes, ``plan_inputs`` the planner's hash of what the spec asked for, and
    ``pod_inputs`` the hash of everything in the spec and the plan that alters pods. ``members`` is the number
    of pods of a group. The templates are pod templates as plain JSON; they hold nothing of a group's index.
    """

    name: str = ""
    """Empty until ``named`` gives it one by content."""
    number: int
    plan: Plan
    pool: PoolSelection
    image: str
    default_image: str
    """The operator's engine image for specs that give none, when the first of these revisions was made. It is
    handed down: a newer operator's default must not reach a resource through an edit of something else."""
    engine_version: str
    planner_version: str
    operator_version: str
    plan_inputs: str
    pod_inputs: str
    members: int
    leader_template: Mapping[str, Any]
    worker_template: Mapping[str, Any] | None
    download: Mapping[str, Any] | None = None
    """Spec of the Job that brings the model to a shared claim; the pods start when it is complete."""
    gang: GangWish | None = None
    """Who places a group as a whole; None leaves that to the operator's own account of free GPUs."""

    pods_hash: str = field(init=False, compare=False, default="")
    """Hash of what a group's pods are made from: pods with different values never form a group."""

    def __post_init__(self) -> None:
        made_from: list[object] = [self.members, self.leader_template, self.worker_template]
        if self.gang is not None:
            made_from.append(self.gang.to_wire())
        object.__setattr__(self, "pods_hash", digest(made_from))


def named(revision: Revision, owner: Owner) -> Revision:
    """The revision with its name by content. The number is not content: a rollback reuses the old object."""
    return replace(revision, name=names.revision(owner.name, digest(_data(revision))))


def to_manifest(revision: Revision, owner: Owner) -> Manifest:
    """The ControllerRevision. Its labels match no StatefulSet's selector, so that no set adopts it."""
    kept = revision if revision.name else named(revision, owner)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata(owner, kept.name),
        "revision": kept.number,
        "data": _data(kept),
    }


def from_manifest(manifest: Mapping[str, Any]) -> Revision:
    """The revision that a live ControllerRevision holds.

    Fields of the plan that this version does not know are dropped: a newer operator may have written them
    before it was rolled back.

    Raises:
        RevisionError: the data has another layout, or lacks something that is needed.
    """
    name = manifest["metadata"]["name"]
    data = manifest.get("data") or {}
    if data.get("format") != FORMAT:
        raise RevisionError(f"{name} has data of format {data.get('format')}, this operator reads {FORMAT}.")
    try:
        return Revision(
            name=name,
            number=manifest["revision"],
            plan=Plan.model_validate(data["plan"], extra="ignore"),
            pool=PoolSelection.from_wire(data["pool"]),
            image=data["image"],
            default_image=data["defaultImage"],
            engine_version=data["engineVersion"],
            planner_version=data["plannerVersion"],
            operator_version=data["operatorVersion"],
            plan_inputs=data["planInputs"],
            pod_inputs=data["podInputs"],
            members=data["members"],
            leader_template=data["leaderTemplate"],
            worker_template=data.get("workerTemplate"),
            download=data.get("download"),
            gang=GangWish.from_wire(data["gang"]) if "gang" in data else None,
        )
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise RevisionError(f"{name} cannot be read: {error}.") from error


def _data(revision: Revision) -> Manifest:
    data: Manifest = {
        "format": FORMAT,
        "plan": revision.plan.to_wire(),
        "pool": revision.pool.to_wire(),
        "image": revision.image,
        "defaultImage": revision.default_image,
        "engineVersion": revision.engine_version,
        "plannerVersion": revision.planner_version,
        "operatorVersion": revision.operator_version,
        "planInputs": revision.plan_inputs,
        "podInputs": revision.pod_inputs,
        "members": revision.members,
        "leaderTemplate": dict(revision.leader_template),
    }
    if revision.worker_template is not None:
        data["workerTemplate"] = dict(revision.worker_template)
    if revision.download is not None:
        data["download"] = dict(revision.download)
    if revision.gang is not None:
        data["gang"] = revision.gang.to_wire()
    return data
