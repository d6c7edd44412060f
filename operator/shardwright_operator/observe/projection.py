"""From an object's JSON to its view. Every field that decisions use is read here and nowhere else;
those of a pod's containers in ``containers``.

Objects come from watches, lists and the answers to our own writes. A field that is missing or odd must not
raise: another version of the API server may leave it out, and a pass over a thousand resources must not end
because of one.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from shardwright_operator.api.constants import GPU_RESOURCE, GROUP, KIND, Annotation, Label, Role
from shardwright_operator.api.gang import kind_of
from shardwright_operator.build.download import PROGRESS_PORT_NAME
from shardwright_operator.build.ports import block_of
from shardwright_operator.build.service import API_PORT_NAME
from shardwright_operator.observe.conditions import condition_of, holds
from shardwright_operator.observe.containers import (
    gpus_of,
    last_exit,
    port_named,
    running_since,
    waiting_for,
    words,
)
from shardwright_operator.observe.values import LONG_AGO, integer, moment, thrifty
from shardwright_operator.observe.views import (
    ChildKind,
    ChildView,
    JobPhase,
    JobView,
    Key,
    LoaderView,
    NodeView,
    PodView,
    ResourceView,
    Taint,
    pack,
)

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
WRITTEN_ONCE = frozenset({ChildKind.CONFIG_MAP, ChildKind.JOB})
"""Nothing of them ever changes, so what they hold is never compared: packed it would only take memory."""
_DRIFT_METADATA = ("labels", "annotations", "ownerReferences")
_ENDED = frozenset({"Succeeded", "Failed"})
_HELD_BACK = frozenset({"Unschedulable", "SchedulingGated"})


class GpuClaim(NamedTuple):
    """GPUs that a pod holds on a node: all that is kept of pods that are not ours."""

    uid: str
    node: str
    gpus: int
    resource_version: int


def project_resource(body: Mapping[str, Any]) -> ResourceView:
    """View of a ModelDeployment."""
    metadata = body["metadata"]
    return ResourceView(
        key=Key(metadata["namespace"], metadata["name"]),
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        resource_version=resource_version(body),
        deleting="deletionTimestamp" in metadata,
        spec=thrifty(body.get("spec") or {}),
        status=thrifty(body.get("status") or {}),
        retry=(metadata.get("annotations") or {}).get(Annotation.RETRY, ""),
        created_at=moment(metadata.get("creationTimestamp")) or LONG_AGO,
    )


def project_child(body: Mapping[str, Any]) -> ChildView | None:
    """View of an owned object; None when nothing says whose it is, or another group or kind controls it.

    Its owner says it first: a label can be removed by anybody, which is then drift like any other.

    The StatefulSet controller copies our labels onto the ControllerRevisions that it keeps for itself.
    """
    metadata = body["metadata"]
    labels = metadata.get("labels") or {}
    controller = controller_of(body)
    owner = controller.get("name") or labels.get(Label.DEPLOYMENT)
    group_kind = (str(controller.get("apiVersion")).partition("/")[0], controller.get("kind"))
    if not owner or (controller and group_kind != (GROUP, KIND)):
        return None
    spec = body.get("spec") or {}
    status = body.get("status") or {}
    drift: dict[str, Any] = {
        "metadata": {name: metadata[name] for name in _DRIFT_METADATA if name in metadata},
        **{name: value for name, value in body.items() if name not in {"metadata", "status"}},
    }
    return ChildView(
        kind=ChildKind(kind_of(body)),
        key=Key(metadata["namespace"], owner),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resource_version=resource_version(body),
        owner_uid=controller.get("uid", ""),
        is_shared=len(metadata.get("ownerReferences") or ()) > 1,
        deleting="deletionTimestamp" in metadata,
        annotations={
            name: value
            for name, value in (metadata.get("annotations") or {}).items()
            if name.startswith(f"{GROUP}/")
        },
        role=_role(labels),
        group=integer(labels.get(Label.GROUP_INDEX)),
        desired_replicas=spec.get("replicas", 0) if isinstance(spec.get("replicas", 0), int) else 0,
        replicas=status.get("replicas", 0),
        settled=status.get("observedGeneration", 0) >= metadata.get("generation", 0)
        or body["kind"] != ChildKind.STATEFUL_SET,
        created_at=moment(metadata.get("creationTimestamp")) or LONG_AGO,
        pod_gpus=gpus_of((spec.get("template") or {}).get("spec") or {})
        if body["kind"] == ChildKind.STATEFUL_SET
        else 0,
        port_block=block_of(spec.get("template") or (body.get("data") or {}).get("leaderTemplate") or {}),
        job=_job(status) if body["kind"] == ChildKind.JOB else None,
        packed_body=b"" if body["kind"] in WRITTEN_ONCE else pack(drift),
    )


def project_loader(body: Mapping[str, Any]) -> LoaderView | None:
    """View of a pod of a download's Job; None when it is none."""
    metadata = body["metadata"]
    labels = metadata.get("labels") or {}
    job = labels.get(JOB_NAME_LABEL)
    if job is None or Label.DEPLOYMENT not in labels or Label.GROUP_INDEX in labels:
        return None
    status = body.get("status") or {}
    containers = status.get("containerStatuses") or ()
    return LoaderView(
        key=Key(metadata["namespace"], labels[Label.DEPLOYMENT]),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resource_version=resource_version(body),
        job=job,
        created_at=moment(metadata.get("creationTimestamp")) or LONG_AGO,
        node=(body.get("spec") or {}).get("nodeName", ""),
        phase=status.get("phase", "Pending"),
        waiting=waiting_for(containers),
        last_exit=last_exit(containers),
        unschedulable=_unschedulable(status),
        address=status.get("podIP") or "",
        progress_port=port_named(body.get("spec") or {}, PROGRESS_PORT_NAME),
    )


def project_pod(body: Mapping[str, Any]) -> PodView | None:
    """View of a member pod; None when it is not one of ours."""
    metadata = body["metadata"]
    labels = metadata.get("labels") or {}
    group = integer(labels.get(Label.GROUP_INDEX))
    role = _role(labels)
    if Label.DEPLOYMENT not in labels or group is None or role is None:
        return None
    status = body.get("status") or {}
    containers = status.get("containerStatuses") or ()
    disrupted, ready = condition_of(status, "DisruptionTarget"), condition_of(status, "Ready")
    return PodView(
        key=Key(metadata["namespace"], labels[Label.DEPLOYMENT]),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resource_version=resource_version(body),
        role=role,
        group=group,
        node_rank=_node_rank(metadata["name"], labels),
        pods_hash=labels.get(Label.PODS, ""),
        created_at=moment(metadata.get("creationTimestamp")) or LONG_AGO,
        set_uid=controller_of(body).get("uid", ""),
        node=(body.get("spec") or {}).get("nodeName", ""),
        gpus=gpus_of(body.get("spec") or {}),
        phase=status.get("phase", "Pending"),
        reason=status.get("reason", ""),
        message=words(status.get("message", "")),
        ready_since=moment(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None,
        deleting="deletionTimestamp" in metadata,
        deadline=moment(metadata.get("deletionTimestamp")),
        started=bool(containers) and all(c.get("started") for c in containers),
        restarts=sum(c.get("restartCount", 0) for c in containers),
        ended=any((c.get("state") or {}).get("terminated") for c in containers),
        last_exit=last_exit(containers),
        waiting=waiting_for(containers),
        unschedulable=_unschedulable(status),
        disruption=disrupted.get("reason", "") if disrupted.get("status") == "True" else "",
        address=status.get("podIP") or "",
        api_port=port_named(body.get("spec") or {}, API_PORT_NAME),
        running_since=running_since(containers),
        image_id=next((c.get("imageID") or "" for c in containers), ""),
    )


def project_claim(body: Mapping[str, Any]) -> GpuClaim | None:
    """The GPUs that a pod, of whatever owner, holds on a node; None when it holds none."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    node, gpus = spec.get("nodeName", ""), gpus_of(spec)
    if not node or not gpus or (body.get("status") or {}).get("phase") in _ENDED:
        return None
    return GpuClaim(metadata.get("uid", ""), node, gpus, resource_version(body))


def project_node(body: Mapping[str, Any]) -> NodeView | None:
    """View of a node; None when it offers no GPU."""
    metadata = body["metadata"]
    status = body.get("status") or {}
    gpus = integer((status.get("allocatable") or {}).get(GPU_RESOURCE))
    if not gpus:
        return None
    spec = body.get("spec") or {}
    return NodeView(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resource_version=resource_version(body),
        ready=holds(status, "Ready"),
        unschedulable=bool(spec.get("unschedulable")),
        gpus=gpus,
        labels=thrifty(metadata.get("labels") or {}),
        taints=tuple(
            Taint(key=t.get("key", ""), value=t.get("value", ""), effect=t.get("effect", ""))
            for t in spec.get("taints") or ()
        ),
    )


def resource_version(body: Mapping[str, Any]) -> int:
    """The object's version as a number. Kubernetes promises since 1.35 that versions compare as integers."""
    return integer(body["metadata"].get("resourceVersion")) or 0


def _unschedulable(status: Mapping[str, Any]) -> str:
    scheduled = condition_of(status, "PodScheduled")
    refused = scheduled.get("status") == "False" and scheduled.get("reason") in _HELD_BACK
    return scheduled.get("message", "") if refused else ""


def _job(status: Mapping[str, Any]) -> JobView:
    if failed := holds(status, "Failed"):
        phase = JobPhase.FAILED
    elif holds(status, "Complete"):
        phase = JobPhase.COMPLETE
    else:
        phase = JobPhase.RUNNING if status.get("ready") else JobPhase.PENDING
    return JobView(
        phase=phase,
        started=str(status.get("startTime") or ""),
        completed=str(status.get("completionTime") or ""),
        failures=status.get("failed") or 0,
        message=str(condition_of(status, "Failed").get("message") or "") if failed else "",
    )


def controller_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The reference to the owner that controls an object; empty where nobody does."""
    owners: tuple[Mapping[str, Any], ...] = body["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def _role(labels: Mapping[str, str]) -> Role | None:
    value = labels.get(Label.ROLE)
    return Role(value) if value in set(Role) else None


def _node_rank(name: str, labels: Mapping[str, str]) -> int:
    index = integer(labels.get(Label.POD_INDEX))
    return index if index is not None else integer(name.rpartition("-")[2]) or 0
