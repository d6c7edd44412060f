"""What is seen of a cluster, as far as a judge of its history needs it: records of their own.

Nothing of the operator's code is used here: a field that the operator misreads must not be misread by the one
that judges it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

PREFIX = "shardwright.dev"
GPU = "nvidia.com/gpu"
OPERATOR = "shardwright"
"""The operator's field manager."""

LEADER, WORKER = "leader", "worker"

Body = Mapping[str, Any]


class GroupKey(NamedTuple):
    """A group by the name of its resource, which outlives the resource itself."""

    resource: str
    index: str

    def __str__(self) -> str:
        return f"{self.resource}/{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A member of a group."""

    name: str
    uid: str
    group: GroupKey
    pods_hash: str = ""
    """Hash of the templates that it was made from."""
    node: str = ""
    gpus: int = 0
    ready: bool = False
    going: bool = False
    finished: bool = False
    """Whether its phase is Failed or Succeeded: it holds no GPU any more."""
    restarts: int = 0
    ended: bool = False
    """Whether a container stands ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSet:
    """A StatefulSet of a group."""

    name: str
    uid: str
    group: GroupKey
    role: str
    wanted: int
    owner_uid: str = ""
    pod_gpus: int = 0
    pods_hash: str = ""
    revision: str = ""
    going: bool = False
    ours: bool = True
    """Whether the operator is among those who set the number of pods as it now stands."""

    @property
    def is_leader(self) -> bool:
        return self.role == LEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A ModelDeployment: what is asked, and what is said about it."""

    name: str
    uid: str
    generation: int
    replicas: int
    surge: int = 0
    going: bool = False
    said_generation: int = 0
    said_ready: int = 0
    """``status.readyReplicas``."""
    ready: bool = False
    """Whether the condition Ready is True."""
    reconciling: bool = False
    overridden: bool = False
    """Whether it tells that somebody has changed a child; that is told for half a minute."""
    words: str = ""
    """Reason and message of the condition Ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with GPUs."""

    name: str
    uid: str
    gpus: int
    ready: bool = True
    cordoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """Any other object that the operator owns."""

    kind: str
    name: str
    uid: str
    resource: str
    owner_uid: str = ""
    group: str = ""
    """Index of the group that it belongs to; empty if it serves all of them."""


Thing = Pod | GroupSet | Deployment | Node | Child


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One write to an object, or its end."""

    at: float
    """When it was seen, in seconds since the epoch."""
    version: int
    """Resource version: one order over all kinds, as all are kept in one store."""
    thing: Thing
    gone: bool = False

    def as_json(self) -> dict[str, Any]:
        """For a line of the trace's file."""
        kind = type(self.thing).__name__
        return {"at": round(self.at, 3), "version": self.version, "gone": self.gone, kind: asdict(self.thing)}


def thing_of(body: Body) -> Thing | None:
    """The record of an object; None for one that is none of ours."""
    kind, metadata = body["kind"], body["metadata"]
    if kind == "ModelDeployment":
        return _deployment(body)
    if kind == "Node":
        return _node(body)
    labels = metadata.get("labels") or {}
    owner = _controller(metadata)
    resource = labels.get(f"{PREFIX}/model-deployment")
    if resource is None:
        return None
    index = labels.get(f"{PREFIX}/group-index")
    if kind == "Pod" and index is not None:
        return _pod(body, GroupKey(resource, index))
    if kind == "StatefulSet" and index is not None:
        return _group_set(body, GroupKey(resource, index))
    if owner.get("kind") == "StatefulSet":
        # The sets' controller copies our labels onto the revisions that it keeps for itself.
        return None
    return Child(
        kind=kind,
        name=metadata["name"],
        uid=metadata["uid"],
        resource=resource,
        owner_uid=owner.get("uid", ""),
        group=index or "",
    )


def _pod(body: Body, group: GroupKey) -> Pod:
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    containers = status.get("containerStatuses") or ()
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        group=group,
        pods_hash=metadata["labels"].get(f"{PREFIX}/pods", ""),
        node=spec.get("nodeName", ""),
        gpus=_gpus(spec),
        ready=_condition(status, "Ready").get("status") == "True",
        going="deletionTimestamp" in metadata,
        finished=status.get("phase") in {"Failed", "Succeeded"},
        restarts=sum(c.get("restartCount", 0) for c in containers),
        ended=any((c.get("state") or {}).get("terminated") for c in containers),
    )


def _group_set(body: Body, group: GroupKey) -> GroupSet:
    metadata, spec = body["metadata"], body["spec"]
    return GroupSet(
        name=metadata["name"],
        uid=metadata["uid"],
        group=group,
        role=metadata["labels"].get(f"{PREFIX}/role", ""),
        wanted=spec.get("replicas", 1),
        owner_uid=_controller(metadata).get("uid", ""),
        pod_gpus=_gpus(spec["template"]["spec"]),
        pods_hash=metadata["labels"].get(f"{PREFIX}/pods", ""),
        revision=(metadata.get("annotations") or {}).get(f"{PREFIX}/revision", ""),
        going="deletionTimestamp" in metadata,
        ours=any(
            "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
            for entry in metadata.get("managedFields") or ()
            if entry.get("manager") == OPERATOR
        ),
    )


def _deployment(body: Body) -> Deployment:
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    ready = _condition(status, "Ready")
    return Deployment(
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        replicas=spec.get("replicas", 1),
        surge=(spec.get("rollout") or {}).get("maxSurge") or 0,
        going="deletionTimestamp" in metadata,
        said_generation=status.get("observedGeneration", 0),
        said_ready=status.get("readyReplicas", 0),
        ready=ready.get("status") == "True",
        reconciling=_condition(status, "Reconciling").get("status") == "True",
        overridden=_condition(status, "FieldsOverridden").get("status") == "True",
        words=f"{ready.get('reason', '')}: {ready.get('message', '')}",
    )


def _node(body: Body) -> Node:
    metadata, status = body["metadata"], body.get("status") or {}
    return Node(
        name=metadata["name"],
        uid=metadata["uid"],
        gpus=int((status.get("allocatable") or {}).get(GPU, 0)),
        ready=_condition(status, "Ready").get("status") == "True",
        cordoned=bool((body.get("spec") or {}).get("unschedulable")),
    )


def _condition(status: Body, type_: str) -> Body:
    return next((c for c in status.get("conditions") or () if c["type"] == type_), {})


def _controller(metadata: Body) -> Body:
    return next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})


def _gpus(spec: Body) -> int:
    return sum(
        int(((c.get("resources") or {}).get("limits") or {}).get(GPU, 0))
        for c in spec.get("containers") or ()
    )
