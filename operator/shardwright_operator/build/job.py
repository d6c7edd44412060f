"""What the pods of Jobs beside the groups have in common: they hold no GPU, and end."""

from collections.abc import Iterable, Mapping
from typing import Any

from shardwright_operator.api.constants import GPU_RESOURCE, Label
from shardwright_operator.build.owner import Manifest, Owner, labels

GPU_TOLERATION: Mapping[str, str] = {"key": GPU_RESOURCE, "operator": "Exists"}

_SIDECARS_OFF = "sidecar.istio.io/inject"


def job_template(owner: Owner, component: str, pod: Mapping[str, Any]) -> Manifest:
    """The template of a Job's pod with these further fields of its spec.

    A mesh's proxy would outlive what the pod is for, and the Job would never end.
    """
    return {
        "metadata": {
            "labels": {**labels(owner), Label.COMPONENT: component, _SIDECARS_OFF: "false"},
            "annotations": {"linkerd.io/inject": "disabled", _SIDECARS_OFF: "false"},
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **pod,
        },
    }


def beside_groups(tolerations: Iterable[Mapping[str, Any]]) -> Manifest:
    """Where such a pod may run: rather without a GPU, on a GPU node if there is no other."""
    term = {"matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"}]}
    preferred = [{"weight": 100, "preference": term}]
    return {
        "tolerations": [dict(GPU_TOLERATION), *map(dict, tolerations)],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
    }
