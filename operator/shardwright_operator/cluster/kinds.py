"""Where each kind lives in the API. A fixed table: discovery would cost requests to learn nothing new."""

from dataclasses import dataclass

from shardwright_operator.api.constants import (
    GROUP,
    KIND,
    MANAGED_BY_SELECTOR,
    PLURAL,
    VERSION,
    Label,
)
from shardwright_operator.api.gang import GANG_APIS, Gang


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind that the operator reads or writes."""

    kind: str
    """Its name, with its group where the kind alone would be ambiguous."""
    group: str
    version: str
    plural: str
    namespaced: bool = True
    selector: str = ""
    """Label selector that the server filters watches and lists by."""
    watched: bool = True
    metadata_only: bool = False
    """Whether watches and lists bring no more of it than that."""
    read_by_name: bool = False
    """Whether one is read with a GET, which is a right of its own; else by a LIST of one name."""
    gang: Gang | None = None
    """The gang scheduler whose kind it is: in use only where the operator was set up for that one."""

    @property
    def managed_fields_last(self) -> bool:
        """Whether its metadata end with managed fields, and more follows: so with whole built-in objects."""
        built_in = "." not in self.group or self.group.endswith(".k8s.io")
        return built_in and not self.metadata_only

    @property
    def is_defined(self) -> bool:
        """Whether it is there only as long as somebody has it defined: built-in kinds are always served."""
        return self.kind == KIND or self.gang is not None

    @property
    def plain_kind(self) -> str:
        """As it stands in a manifest."""
        return self.kind.partition(".")[0]

    @property
    def api_version(self) -> str:
        """As it stands in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """URL path of the collection (no name), an object or its subresource; no namespace: all of them."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [self.plural, name, subresource]
        return "/".join(part for part in parts if part)


_OURS = MANAGED_BY_SELECTOR
_NOT_OF_A_SET = f"{_OURS},!{Label.GROUP_INDEX}"
"""The StatefulSet controller keeps a copy of every template in ControllerRevisions of its own, with our pods'
labels on them: two large objects a group that nobody here reads."""

KINDS: tuple[Kind, ...] = (
    Kind(kind=KIND, group=GROUP, version=VERSION, plural=PLURAL),
    Kind(
        kind="ControllerRevision",
        group="apps",
        version="v1",
        plural="controllerrevisions",
        selector=_NOT_OF_A_SET,
    ),
    Kind(kind="StatefulSet", group="apps", version="v1", plural="statefulsets", selector=_OURS),
    Kind(kind="Service", group="", version="v1", plural="services", selector=_OURS),
    Kind(
        kind="NetworkPolicy",
        group="networking.k8s.io",
        version="v1",
        plural="networkpolicies",
        selector=_OURS,
    ),
    Kind(
        kind="PodDisruptionBudget",
        group="policy",
        version="v1",
        plural="poddisruptionbudgets",
        selector=_OURS,
    ),
    # Each holds the launcher, 65 kB, and is written once and never read.
    Kind(kind="ConfigMap", group="", version="v1", plural="configmaps", selector=_OURS, metadata_only=True),
    Kind(kind="Job", group="batch", version="v1", plural="jobs", selector=_OURS),
    *(
        Kind(
            kind=api.kind, group=api.group, version=api.version, plural=api.plural, selector=_OURS, gang=gang
        )
        for gang, api in GANG_APIS.items()
    ),
    Kind(kind="Pod", group="", version="v1", plural="pods", selector=_OURS, read_by_name=True),
    Kind(kind="Node", group="", version="v1", plural="nodes", namespaced=False),
    Kind(
        kind="PriorityClass",
        group="scheduling.k8s.io",
        version="v1",
        plural="priorityclasses",
        namespaced=False,
    ),
    Kind(
        kind="PersistentVolumeClaim", group="", version="v1", plural="persistentvolumeclaims", watched=False
    ),
    Kind(kind="Event", group="", version="v1", plural="events", watched=False),
    Kind(kind="Lease", group="coordination.k8s.io", version="v1", plural="leases", watched=False),
)
"""The resource itself first: a child is of use only when its owner is known."""

_BY_NAME = {kind.kind: kind for kind in KINDS}


def kind_named(name: str) -> Kind:
    """The kind of this name; KeyError for one that the operator never touches."""
    return _BY_NAME[name]
