"""The Job that shows whether the Secrets and ConfigMaps are there that a group's pods name.

A pod that names a Secret which does not exist is bound to its node and holds its GPUs for as long as nobody
makes it. The operator cannot look, for it has no right to read Secrets and is to have none. A kubelet can: it
starts no container whose environment it cannot resolve, and says what is missing. So a pod without a GPU,
from a small image, is given the same references first. Everything in it comes from the groups' templates: it
runs with their rights, and older revisions need nothing more in their records.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from shardwright_operator.api import names
from shardwright_operator.api.constants import Label
from shardwright_operator.build.digest import digest
from shardwright_operator.build.job import GPU_TOLERATION, beside_groups, job_template
from shardwright_operator.build.launcher import VOLUME as LAUNCHER_VOLUME
from shardwright_operator.build.owner import Manifest, Owner, metadata
from shardwright_operator.build.pod import container_security
from shardwright_operator.build.revision import Revision

CONTAINER = "check"
COMPONENT = "reference-check"
PROGRAM = "true"
"""It reads nothing of what it is given, and every image with a C library has it."""

_KEYS = ("secretKeyRef", "configMapKeyRef")


def references(revision: Revision) -> list[Manifest]:
    """What must be there for the pods of a revision to start, each once: as ``valueFrom`` of a variable.

    A key that a volume takes from a ConfigMap counts as well. What is optional does not, nor does the
    launcher's ConfigMap, which the operator writes itself.
    """
    found: dict[str, Manifest] = {}
    for template in (revision.leader_template, revision.worker_template or {}):
        for reference in _named_by(template.get("spec", {})):
            found.setdefault(digest(reference), reference)
    return list(found.values())


def reference_check(owner: Owner, revision: Revision, image: str) -> Manifest | None:
    """The Job for a revision, in the operator's ``image``; None for pods that name nothing."""
    wanted = references(revision)
    if not wanted:
        return None
    group = revision.leader_template["spec"]
    meta = metadata(owner, _name(owner, wanted))
    meta["labels"][Label.COMPONENT] = COMPONENT
    pod: Manifest = {
        "securityContext": group["securityContext"],
        "containers": [_container(wanted, image)],
        **beside_groups(t for t in group.get("tolerations", ()) if t != GPU_TOLERATION),
    }
    if "imagePullSecrets" in group:
        pod["imagePullSecrets"] = group["imagePullSecrets"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {"backoffLimit": 0, "template": job_template(owner, COMPONENT, pod)},
    }


def check_name(owner: Owner, revision: Revision) -> str:
    """Name of the Job for a revision: by what the pods name, and by nothing else."""
    return _name(owner, references(revision))


def _name(owner: Owner, wanted: list[Manifest]) -> str:
    return names.reference_check(owner.name, digest(wanted))


def _named_by(pod: Mapping[str, Any]) -> Iterator[Manifest]:
    for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
        for variable in container.get("env", ()):
            source = variable.get("valueFrom") or {}
            for key in _KEYS:
                if key in source and not source[key].get("optional"):
                    yield {key: source[key]}
    for volume in pod.get("volumes", ()):
        config = volume.get("configMap")
        if config is None or volume["name"] == LAUNCHER_VOLUME or config.get("optional"):
            continue
        for item in config.get("items", ()):
            yield {"configMapKeyRef": {"name": config["name"], "key": item["key"]}}


def _container(wanted: list[Manifest], image: str) -> Manifest:
    return {
        "name": CONTAINER,
        "image": image,
        "command": [PROGRAM],
        "env": [{"name": f"REFERENCE_{i}", "valueFrom": source} for i, source in enumerate(wanted)],
        "resources": {
            "requests": {"cpu": "10m", "memory": "16Mi", "ephemeral-storage": "1Mi"},
            "limits": {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "16Mi"},
        },
        "securityContext": container_security(),
    }
