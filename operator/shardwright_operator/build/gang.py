"""The object that stands for one group at a gang scheduler, and how the group's pods name it.

It lives as long as one attempt of the group: made before the sets, deleted when the group goes down, and made
anew for the next start. So no scheduler counts what an earlier attempt had been granted, and a revision with
another number of pods meets no immutable field. It has the group's name.
"""

from typing import Any

from shardwright_operator.api import names
from shardwright_operator.api.constants import GPU_RESOURCE, Role
from shardwright_operator.api.gang import GANG_APIS, Gang
from shardwright_operator.build.owner import Manifest, Owner, metadata
from shardwright_operator.build.revision import Revision

VOLCANO_GROUP = "scheduling.k8s.io/group-name"
"""Annotation of a pod (``KubeGroupNameAnnotationKey`` of volcano.sh/apis)."""

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_WORKLOAD = "kueue.x-k8s.io/prebuilt-workload-name"
KUEUE_COUNT = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_SERVING = "kueue.x-k8s.io/pod-group-serving"
KUEUE_ROLE = "kueue.x-k8s.io/role-hash"
"""Labels and annotations of a pod group (Kueue's pkg/controller/jobs/pod/constants). The Workload is made
here and not by Kueue, since only an owned object goes with its owner: pods of a group carry a finalizer of
Kueue's, which it takes away when the Workload is deleted."""


def gang_object(owner: Owner, revision: Revision, group: int) -> Manifest | None:
    """The PodGroup or Workload of one group; None when the revision leaves placing to the operator."""
    wish = revision.gang
    if wish is None:
        return None
    api = GANG_APIS[wish.gang]
    match wish.gang:
        case Gang.KUBERNETES:
            spec: Manifest = {"schedulingPolicy": {"gang": {"minCount": revision.members}}}
            if wish.topology_key:
                # Beside the pods' affinity, by which a first pod may choose a domain that is too small.
                spec["schedulingConstraints"] = {"topology": [{"key": wish.topology_key}]}
        case Gang.VOLCANO:
            gpus = revision.members * revision.plan.gpus_per_node
            spec = {"minMember": revision.members, "minResources": {GPU_RESOURCE: str(gpus)}}
            if wish.queue:
                spec["queue"] = wish.queue
            if wish.priority_class:
                spec["priorityClassName"] = wish.priority_class
        case Gang.KUEUE:
            spec = {"queueName": wish.queue, "podSets": _pod_sets(revision)}
    return {
        "apiVersion": api.api_version,
        "kind": api.plain_kind,
        "metadata": metadata(owner, names.group(owner.name, group), group),
        "spec": spec,
    }


def join_gang(pod: Manifest, owner: Owner, revision: Revision, group: int, role: Role) -> Manifest:
    """A pod template with the reference to its group's object; unchanged without a gang."""
    if revision.gang is None:
        return pod
    name = names.group(owner.name, group)
    match revision.gang.gang:
        case Gang.KUBERNETES:
            return {**pod, "spec": {**pod["spec"], "schedulingGroup": {"podGroupName": name}}}
        case Gang.VOLCANO:
            return _noted(pod, annotations={VOLCANO_GROUP: name})
        case Gang.KUEUE:
            return _noted(
                pod,
                labels={KUEUE_QUEUE: revision.gang.queue, KUEUE_GROUP: name, KUEUE_WORKLOAD: name},
                annotations={
                    KUEUE_COUNT: str(revision.members),
                    KUEUE_SERVING: "true",
                    # Kueue matches pods with the Workload's pod sets by it; left to itself, it takes a hash.
                    KUEUE_ROLE: role.value,
                },
            )


def _pod_sets(revision: Revision) -> list[Manifest]:
    sets: list[tuple[Role, int, Any]] = [(Role.LEADER, 1, revision.leader_template)]
    if revision.worker_template is not None:
        sets.append((Role.WORKER, revision.members - 1, revision.worker_template))
    return [
        {"name": role.value, "count": count, "template": {"spec": dict(template["spec"])}}
        for role, count, template in sets
    ]


def _noted(pod: Manifest, **more: dict[str, str]) -> Manifest:
    """The template with further labels or annotations."""
    meta = dict(pod.get("metadata", {}))
    for field, values in more.items():
        meta[field] = {**meta.get(field, {}), **values}
    return {**pod, "metadata": meta}
