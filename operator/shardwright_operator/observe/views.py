"""Slim, frozen views of the objects that decisions are made from.

A view holds the few fields in use and nothing else: a thousand resources with their children must fit into
the memory of one small pod, and a field that is not here cannot make a decision depend on it unseen.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic_core import to_json

from shardwright_operator.api.constants import ConditionType, Role
from shardwright_operator.api.gang import GANG_APIS, Gang
from shardwright_operator.build.owner import Owner
from shardwright_operator.observe.conditions import holds
from shardwright_operator.observe.containers import ContainerExit, Waiting
from shardwright_operator.observe.values import LONG_AGO

_CLAIM_PATHS = (
    ("model", "source", "persistentVolumeClaim", "claimName"),
    ("storage", "modelCache", "claimName"),
)


class Key(NamedTuple):
    """Which ModelDeployment: the unit of reconciling."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ChildKind(StrEnum):
    """Kinds that a ModelDeployment owns, by their names (``kind_of``); pods are owned by the sets."""

    REVISION = "ControllerRevision"
    SERVICE = "Service"
    NETWORK_POLICY = "NetworkPolicy"
    DISRUPTION_BUDGET = "PodDisruptionBudget"
    STATEFUL_SET = "StatefulSet"
    CONFIG_MAP = "ConfigMap"
    JOB = "Job"
    POD_GROUP = GANG_APIS[Gang.KUBERNETES].kind
    VOLCANO_POD_GROUP = GANG_APIS[Gang.VOLCANO].kind
    KUEUE_WORKLOAD = GANG_APIS[Gang.KUEUE].kind


GANG_KINDS = (ChildKind.POD_GROUP, ChildKind.VOLCANO_POD_GROUP, ChildKind.KUEUE_WORKLOAD)
"""Objects that stand for one group at a gang scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView:
    """A ModelDeployment as it stands: raw spec and status, both only ever read."""

    key: Key
    uid: str
    generation: int
    resource_version: int
    deleting: bool
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    retry: str = ""
    """Value of the retry annotation, a person's wish for a fresh start."""
    created_at: datetime = LONG_AGO

    @property
    def owner(self) -> Owner:
        """The resource as its children name it."""
        return Owner(name=self.key.name, namespace=self.key.namespace, uid=self.uid)

    @property
    def is_ready(self) -> bool:
        """Whether it was Ready by the last status."""
        return holds(self.status, ConditionType.READY)

    def asks_as(self, earlier: "ResourceView") -> bool:
        """Whether it is what it was at an earlier sight, its status apart."""
        return earlier == replace(self, status=earlier.status, resource_version=earlier.resource_version)

    @property
    def claim_name(self) -> str | None:
        """Name of the PersistentVolumeClaim that holds the model or is to hold it, if the spec names one."""
        for path in _CLAIM_PATHS:
            node: object = self.spec
            for name in path:
                node = node.get(name) if isinstance(node, Mapping) else None
            if isinstance(node, str):
                return node
        return None


class JobPhase(StrEnum):
    """Where a Job stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What a Job's controller says of it."""

    phase: JobPhase
    started: str = ""
    """RFC 3339, as the API server wrote it."""
    completed: str = ""
    failures: int = 0
    message: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildView:
    """An owned object other than a pod. Its body is packed: it is needed only to look for drift."""

    kind: ChildKind
    key: Key
    name: str
    uid: str
    resource_version: int
    owner_uid: str
    is_shared: bool = False
    """Whether it has further owners: Kubernetes keeps it as long as one of all lives."""
    deleting: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    role: Role | None = None
    group: int | None = None
    desired_replicas: int = 0
    replicas: int = 0
    """Pods that exist, by the set's own status."""
    created_at: datetime = LONG_AGO
    pod_gpus: int = 0
    """GPUs of each pod of a set."""
    port_block: int | None = None
    """Block of ports that the pods of a set, or of a revision, have on the nodes' network."""
    settled: bool = True
    """Whether the set's controller has seen its newest generation."""
    job: JobView | None = None
    packed_body: bytes = b""

    @property
    def body(self) -> Mapping[str, Any]:
        """The live object less status and managed fields; kept unpacked it would be many times as large."""
        return json.loads(zlib.decompress(self.packed_body)) if self.packed_body else {}


def pack(body: Mapping[str, Any]) -> bytes:
    """Pack what drift is looked for in; about 2 kB for a StatefulSet.

    The API server writes the keys of an object in one order always, so that equal ones are packed equally.
    """
    return zlib.compress(to_json(body), level=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A member of a group, or of a group that was."""

    key: Key
    name: str
    uid: str
    resource_version: int
    role: Role
    group: int
    node_rank: int
    pods_hash: str
    created_at: datetime
    set_uid: str = ""
    """UID of the set that controls it; empty for a pod that was orphaned."""
    node: str = ""
    gpus: int = 0
    """GPUs that it asks for."""
    phase: str = "Pending"
    reason: str = ""
    """The pod's own reason, such as ``Evicted``."""
    message: str = ""
    ready_since: datetime | None = None
    deleting: bool = False
    deadline: datetime | None = None
    """When its grace period ends; only while deleting."""
    started: bool = False
    """Whether its containers have come up once, by the start-up probe if they have one."""
    restarts: int = 0
    ended: bool = False
    """Whether a container stands ended: its kubelet restarts it at once, or after a back-off of minutes."""
    last_exit: ContainerExit | None = None
    waiting: Waiting | None = None
    unschedulable: str = ""
    """The scheduler's own message, while no node takes the pod or a gate holds it."""
    disruption: str = ""
    """Reason of the condition DisruptionTarget, such as ``DeletionByTaintManager``."""
    address: str = ""
    """IP address; empty until it has one."""
    api_port: int = 0
    """Port of the engine's API, which only a leader has."""
    running_since: datetime | None = None
    """Start of its first container, while that runs."""
    image_id: str = ""
    """What the kubelet says it runs, as ``REPOSITORY@sha256:DIGEST`` for an image that was pulled."""

    @property
    def ready(self) -> bool:
        """Whether its readiness probe passes; for a worker that only means that it runs."""
        return self.ready_since is not None and not self.deleting


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderView:
    """A pod of a download's Job: it holds no GPU, has no rank, and often knows first what is wrong."""

    key: Key
    name: str
    uid: str
    resource_version: int
    job: str
    """Name of its Job."""
    created_at: datetime
    node: str = ""
    phase: str = "Pending"
    waiting: Waiting | None = None
    last_exit: ContainerExit | None = None
    unschedulable: str = ""
    address: str = ""
    """IP address; empty until it has one."""
    progress_port: int = 0
    """Port at which it tells how many bytes are there; 0 without a launcher."""
    bytes_there: int | None = None
    """What it told last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A node's taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node that offers GPUs."""

    name: str
    uid: str
    resource_version: int
    ready: bool
    unschedulable: bool
    gpus: int
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClassView:
    """A PriorityClass."""

    name: str
    uid: str
    resource_version: int
    value: int
    is_default: bool
    """Whether pods that name none have it."""


UNBOUND = "Pending"
"""Phase of a PersistentVolumeClaim that has no volume yet."""


class ClaimState(StrEnum):
    """Whether a PersistentVolumeClaim that the spec names is there."""

    FOUND = "Found"
    MISSING = "Missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """The PersistentVolumeClaim that holds the model."""

    name: str
    state: ClaimState
    access_modes: tuple[str, ...] = ()
    created: str = ""
    """RFC 3339, as the API server wrote it."""
    phase: str = ""
    """``Pending`` until a volume is bound, ``Lost`` when that is gone."""
    storage_class: str = ""
    """StorageClass that is to make the volume; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteNote:
    """What the server made of an earlier write of the same content: refused it, or altered it.

    Kept in memory only. It stops a write that cannot succeed, or that a mutating webhook undoes each time,
    from being repeated for ever.
    """

    kind: ChildKind
    name: str
    digest: str
    """Of the manifest that was written."""
    refused: str = ""
    """The server's message, if it refused."""
    foreign: bool = False
    """Whether the refusal means that somebody else owns the name."""
    pods_hash: str = ""
    """Of a set: what its pods would be made from. Its own digest tells of its record and its count too."""
    retry_at: datetime | None = None
    altered: str = ""
    """First difference between what was written and what the server kept, in words."""
    answer: str = ""
    """Digest of what the server kept; while the live object still is that, writing again changes nothing."""
    undone: str = ""
    """What a write of the same content had to put right again soon after another one, in words."""
    repeats: int = 0
    """How many writes of the same content there were soon after another one."""
