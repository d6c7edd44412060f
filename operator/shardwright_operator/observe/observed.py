"""All that one pass over a ModelDeployment may know: its objects, the nodes, and who else wants GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from shardwright_operator.api.gang import Gang
from shardwright_operator.observe.measurement import Measurement
from shardwright_operator.observe.need import Need
from shardwright_operator.observe.pools import Ground
from shardwright_operator.observe.priorities import Priorities
from shardwright_operator.observe.views import (
    ChildKind,
    ChildView,
    ClaimView,
    Key,
    LoaderView,
    NodeView,
    PodView,
    ResourceView,
    WriteNote,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Pods of one group that have no node yet: of any resource, made already or held back."""

    key: Key
    group: int
    created_at: datetime
    """Of the resource: the older one comes first."""
    need: Need
    admitted: bool
    """Whether its sets want the pods; if not, the group waits for its turn."""
    since: datetime | None = None
    """When the oldest of its pods without a node was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityView:
    """Who holds the GPUs, and who waits for some."""

    taken: Mapping[str, int]
    """GPUs by node that pods hold, whosoever these are."""
    ground: Ground
    """The nodes."""
    demands: tuple[Demand, ...] = ()
    """Of all resources, this one's too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that one pass over a ModelDeployment may know. No decision reads anything else."""

    key: Key
    resource: ResourceView | None
    children: Mapping[tuple[ChildKind, str], ChildView] = field(default_factory=dict)
    """By kind and name: all that carry our labels for this resource, whoever owns them."""
    pods: tuple[PodView, ...] = ()
    loaders: tuple[LoaderView, ...] = ()
    """Pods of the download's Job, the oldest first."""
    port_blocks: frozenset[int] = frozenset()
    """Blocks of ports on the nodes' network that other resources have."""
    obituaries: Mapping[str, PodView] = field(default_factory=dict)
    """Last sight of pods that are gone, by UID: the StatefulSet deletes a failed pod before a LIST sees it.
    """
    nodes: tuple[NodeView, ...] | None = None
    """GPU nodes; None when the operator may not read nodes (one-namespace mode)."""
    claim: ClaimView | None = None
    measurement: Measurement | None = None
    """What one of its engines has said last."""
    notes: Mapping[tuple[ChildKind, str], WriteNote] = field(default_factory=dict)
    capacity: CapacityView | None = None
    """None when the operator may not see the pods of others (one-namespace mode), or has not yet."""
    priorities: Priorities = field(default_factory=Priorities)
    gang_obstacles: Mapping[Gang, str] = field(default_factory=dict)
    """Gang schedulers that cannot be used here, and why, in words."""
