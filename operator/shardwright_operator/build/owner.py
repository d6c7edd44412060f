"""Labels, selectors and owner references of the children: the one source of all of them.

A selector and the labels it has to match come from the same function here, because two spellings of one
label leave pods that nobody counts and nobody deletes. Selectors hold only what never changes in an
object's life: a StatefulSet's selector is immutable, so a revision's hash is a label of the pods and never
part of a selector.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from shardwright_operator.api.constants import API_VERSION, KIND, MANAGED_BY_VALUE, Label, Role

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as plain JSON, complete for server-side apply."""

APPLICATION = "vllm"
COMPONENT = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The ModelDeployment that the children belong to."""

    name: str
    namespace: str
    uid: str

    def owner_reference(self) -> Manifest:
        """The controller reference by which Kubernetes deletes the children with their owner."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def selector(owner: Owner, group: int | None = None, role: Role | None = None) -> dict[str, str]:
    """Labels that select the pods of a resource, of one of its groups, or of one role."""
    chosen = {Label.DEPLOYMENT: owner.name}
    if group is not None:
        chosen[Label.GROUP_INDEX] = str(group)
    if role is not None:
        chosen[Label.ROLE] = role.value
    return chosen


def labels(owner: Owner, group: int | None = None, role: Role | None = None) -> dict[str, str]:
    """Labels of a child: all that a selector can ask for, and Kubernetes' recommended ones."""
    return {
        Label.MANAGED_BY: MANAGED_BY_VALUE,
        Label.NAME: APPLICATION,
        Label.COMPONENT: COMPONENT,
        **selector(owner, group, role),
    }


def selector_text(owner: Owner, role: Role = Role.LEADER) -> str:
    """The scale subresource's selector: one pod stands for one group, so that an autoscaler counts groups."""
    return ",".join(f"{key}={value}" for key, value in selector(owner, role=role).items())


def metadata(
    owner: Owner,
    name: str,
    group: int | None = None,
    role: Role | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
    extra_labels: Mapping[str, str] | None = None,
) -> Manifest:
    """Metadata of a child named ``name``; annotations are left out when there are none."""
    rendered: Manifest = {
        "name": name,
        "namespace": owner.namespace,
        "labels": {**labels(owner, group, role), **(extra_labels or {})},
        "ownerReferences": [owner.owner_reference()],
    }
    if annotations:
        rendered["annotations"] = dict(sorted(annotations.items()))
    return rendered
