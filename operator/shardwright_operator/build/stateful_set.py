"""The two StatefulSets of a group: the leader, node rank 0, and the workers, ranks 1 and up.

The workers' ordinals start at 1, so that a pod's own index is its node rank and reaches the command line with
no arithmetic. The operator replaces a group as one unit, hence ``OnDelete``; all members start at once, hence
``Parallel``: with the default order, rank 1 would wait for a rank 0 that waits for rank 1.
"""

from collections.abc import Mapping
from typing import Any, Literal

from shardwright_operator.api import names
from shardwright_operator.api.constants import Label, Role
from shardwright_operator.build.gang import join_gang
from shardwright_operator.build.owner import Manifest, Owner, labels, metadata, selector
from shardwright_operator.build.revision import Revision

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

HISTORY_LIMIT = 1
"""Old template copies that the StatefulSet controller keeps: our own revisions are the history."""


def leader_set(
    owner: Owner,
    revision: Revision,
    group: int,
    *,
    replicas: Literal[0, 1],
    annotations: Mapping[str, str],
) -> Manifest:
    """The set of rank 0. ``annotations`` carry the group's attempt record, written in the same apply."""
    return _stateful_set(
        owner,
        revision,
        group,
        role=Role.LEADER,
        template=revision.leader_template,
        replicas=replicas,
        annotations=annotations,
    )


def worker_set(owner: Owner, revision: Revision, group: int, *, replicas: int) -> Manifest:
    """The set of ranks 1 to ``members - 1``, with that many replicas while the group is up and none else.

    Raises:
        ValueError: the revision's groups have one pod and therefore no workers.
    """
    if revision.worker_template is None:
        raise ValueError(f"Revision {revision.name} has groups of one pod: there is no worker set.")
    return _stateful_set(
        owner,
        revision,
        group,
        role=Role.WORKER,
        template=revision.worker_template,
        replicas=replicas,
        annotations={},
    )


def _stateful_set(
    owner: Owner,
    revision: Revision,
    group: int,
    *,
    role: Role,
    template: Mapping[str, Any],
    replicas: int,
    annotations: Mapping[str, str],
) -> Manifest:
    pods = {Label.PODS: revision.pods_hash}
    members = _of_group(template, {**labels(owner, group, role), **pods}, selector(owner, group))
    spec: Manifest = {
        "serviceName": names.ranks_service(owner.name, group),
        "replicas": replicas,
        **({} if role is Role.LEADER else {"ordinals": {"start": 1}}),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": HISTORY_LIMIT,
        "selector": {"matchLabels": selector(owner, group, role)},
        "template": join_gang(members, owner, revision, group, role),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(
            owner,
            names.stateful_set(owner.name, group, role),
            group,
            role,
            annotations=annotations,
            extra_labels=pods,
        ),
        "spec": spec,
    }


def _of_group(template: Mapping[str, Any], own: Mapping[str, str], members: Mapping[str, str]) -> Manifest:
    """The template completed for one group: its labels, and pod affinity narrowed to its own members.

    Only what changes is copied: two sets a group are built in every pass, and a deep copy was a sixth of one.
    """
    meta = dict(template.get("metadata", {}))
    meta["labels"] = {**meta.get("labels", {}), **own}
    spec = dict(template["spec"])
    if "affinity" in spec:
        affinity = dict(spec["affinity"])
        for kind in ("podAffinity", "podAntiAffinity"):
            if kind in affinity:
                affinity[kind] = _narrowed(affinity[kind], members)
        spec["affinity"] = affinity
    return {**template, "metadata": meta, "spec": spec}


def _narrowed(affinity: Mapping[str, Any], members: Mapping[str, str]) -> Manifest:
    """Pod affinity whose required terms select the members of one group only."""
    terms = []
    for term in affinity.get(_REQUIRED, []):
        labels_wanted = {**term["labelSelector"]["matchLabels"], **members}
        terms.append({**term, "labelSelector": {**term["labelSelector"], "matchLabels": labels_wanted}})
    return {**affinity, _REQUIRED: terms} if terms else dict(affinity)
