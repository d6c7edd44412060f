"""Who places a group as a whole, other than the operator: the closed choice, and the API of each.

A kind's name alone is not enough here: Kubernetes and Volcano both have a ``PodGroup``, and Kubernetes and
Kueue both a ``Workload``. These kinds go by their name with their group, as kubectl takes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Gang(StrEnum):
    """The scheduler or queue that starts all pods of a group together, or none."""

    KUBERNETES = "Kubernetes"
    VOLCANO = "Volcano"
    KUEUE = "Kueue"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangApi:
    """Where the object lives that stands for one group, and what to do in a cluster without it."""

    group: str
    version: str
    plain_kind: str
    plural: str
    remedy: str

    @property
    def api_version(self) -> str:
        """As it stands in a manifest."""
        return f"{self.group}/{self.version}"

    @property
    def kind(self) -> str:
        """The kind's name with its group."""
        return f"{self.plain_kind}.{self.group}"


GANG_APIS: Mapping[Gang, GangApi] = {
    Gang.KUBERNETES: GangApi(
        group="scheduling.k8s.io",
        version="v1alpha2",
        plain_kind="PodGroup",
        plural="podgroups",
        remedy="Kubernetes 1.36 serves it with --runtime-config=scheduling.k8s.io/v1alpha2=true and the "
        "feature gate GenericWorkload on the API server and the controller-manager, and the gates "
        "GenericWorkload and GangScheduling on the scheduler",
    ),
    Gang.VOLCANO: GangApi(
        group="scheduling.volcano.sh",
        version="v1beta1",
        plain_kind="PodGroup",
        plural="podgroups",
        remedy="install Volcano",
    ),
    Gang.KUEUE: GangApi(
        group="kueue.x-k8s.io",
        version="v1beta2",
        plain_kind="Workload",
        plural="workloads",
        remedy="install Kueue 0.15 or newer with its integration for plain pods",
    ),
}

_SHARED_KINDS = frozenset(api.plain_kind for api in GANG_APIS.values())


def kind_of(body: Mapping[str, Any]) -> str:
    """Name of an object's kind; with its group where the kind alone would be ambiguous."""
    kind = str(body.get("kind"))
    return f"{kind}.{str(body.get('apiVersion')).partition('/')[0]}" if kind in _SHARED_KINDS else kind
