"""The Job that brings a model from the Hub to a shared claim, once, before any GPU is taken for it.

Pods that download to one volume by themselves race for its locks, and N nodes fetch N times the same terabyte
(huggingface_hub pull request 4306, llm-d-benchmark issue 1750). The ranks then start offline from a plain
folder. A Job is immutable and its end is a record, so it is written once and never compared again.
"""

from collections.abc import Mapping
from typing import Any

from shardwright_operator.api import names
from shardwright_operator.api.constants import Annotation, Label
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.digest import digest
from shardwright_operator.build.environment import HOME, cache_environment, source_environment
from shardwright_operator.build.job import beside_groups, job_template
from shardwright_operator.build.launcher import FOLDER, PROGRAM, launcher_mount, launcher_volume
from shardwright_operator.build.model_files import (
    MODEL_FOLDER,
    Origin,
    model_argument,
    origin,
    revision_or_default,
)
from shardwright_operator.build.owner import Manifest, Owner, metadata
from shardwright_operator.launcher.reasons import EXIT_INPUT

CONTAINER = "download"
COMPONENT = "download"
ATTEMPTS = 6
SCRATCH = "20Gi"
PROGRESS_PORT = 29_610
PROGRESS_PORT_NAME = "progress"
"""The launcher tells there how many bytes have come."""


def download_spec(
    spec: ModelDeploymentSpec, owner: Owner, *, image: str, security: Manifest, container_security: Manifest
) -> Manifest | None:
    """The spec of the Job; None for a model that is not cached.

    It runs in the engine's image, which has the Hub's own client, with the same rights as the engine.
    """
    if origin(spec) is not Origin.CACHE:
        return None
    pod: Manifest = {
        "securityContext": security,
        "containers": [_container(spec, image, container_security)],
        "volumes": _volumes(spec, owner),
        **_placement(spec),
    }
    if spec.engine.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret.name} for secret in spec.engine.image_pull_secrets]
    return {
        "backoffLimit": ATTEMPTS,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [EXIT_INPUT]},
                },
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "template": job_template(owner, COMPONENT, pod),
    }


def job_name(owner: Owner, spec: Mapping[str, Any]) -> str:
    """Name of the Job with this spec: by what is downloaded, from where and to where, and by nothing else.

    A newer image or another Secret must not download again what is there.
    """
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    words = container["args"]
    endpoint = next((e.get("value") for e in container["env"] if e["name"] == "HF_ENDPOINT"), None)
    return names.download_job(owner.name, digest([words[words.index("download") :], endpoint, _claim(pod)]))


def claim_name(spec: Mapping[str, Any]) -> str:
    """Name of the claim that the Job with this spec writes to."""
    return str(_claim(spec["template"]["spec"])["claimName"])


def _claim(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(
        volume["persistentVolumeClaim"] for volume in pod["volumes"] if volume["name"] == "model"
    )
    return found


def download_job(owner: Owner, spec: Mapping[str, Any], *, retry: str) -> Manifest:
    """The Job. Its annotations tell whether one that failed was made from the same wish."""
    meta = metadata(owner, job_name(owner, spec), annotations=job_annotations(spec, retry))
    meta["labels"][Label.COMPONENT] = COMPONENT
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": dict(spec)}


def job_annotations(spec: Mapping[str, Any], retry: str) -> dict[str, str]:
    """What a Job was made from: its content, and a person's wish for a fresh start."""
    return {Annotation.CONTENT: digest(spec), **({Annotation.RETRY: retry} if retry else {})}


def _container(spec: ModelDeploymentSpec, image: str, security: Manifest) -> Manifest:
    words = ["hf", "download", spec.model.name.strip("/"), "--revision", revision_or_default(spec)]
    # The same weights in the format of the model's makers, which vLLM does not read: half of many
    # repositories.
    words += ["--exclude", "original/*", "--exclude", "metal/*", "--local-dir", model_argument(spec)]
    if spec.engine.uses_launcher:
        own = ["--folder", model_argument(spec), "--progress-port", str(PROGRESS_PORT)]
        words = ["python3", f"{FOLDER}/{PROGRAM}", *own, "--", *words]
    env = {entry["name"]: entry for entry in (*cache_environment(), *source_environment(spec))}
    env |= {variable.name: variable.to_wire() for variable in spec.engine.env or ()}
    found: Manifest = {
        "name": CONTAINER,
        "image": image,
        "command": words[:1],
        "args": words[1:],
        "env": list(env.values()),
        "resources": {
            "requests": {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "2Gi"},
            "limits": {"memory": "16Gi"},
        },
        "securityContext": security,
        "volumeMounts": [
            {"name": "home", "mountPath": HOME},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
            *([launcher_mount()] if spec.engine.uses_launcher else []),
            {"name": "model", "mountPath": MODEL_FOLDER},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if spec.engine.uses_launcher:
        port = {"name": PROGRESS_PORT_NAME, "containerPort": PROGRESS_PORT, "protocol": "TCP"}
        found["ports"] = [port]
    if spec.engine.image_pull_policy:
        found["imagePullPolicy"] = spec.engine.image_pull_policy.value
    return found


def _volumes(spec: ModelDeploymentSpec, owner: Owner) -> list[Manifest]:
    cache = spec.storage.model_cache
    assert cache is not None  # noqa: S101 - that is what makes it the origin
    return [
        {"name": "home", "emptyDir": {"sizeLimit": SCRATCH}},
        {"name": "tmp", "emptyDir": {"sizeLimit": SCRATCH}},
        *([launcher_volume(owner)] if spec.engine.uses_launcher else []),
        {"name": "model", "persistentVolumeClaim": {"claimName": cache.claim_name}},
    ]


def _placement(spec: ModelDeploymentSpec) -> Manifest:
    """Where the claim can be mounted is for the scheduler to know."""
    scheduling = spec.scheduling
    found = beside_groups(t.to_wire() for t in scheduling.tolerations or ())
    if scheduling.node_selector:
        found["nodeSelector"] = dict(sorted(scheduling.node_selector.items()))
    return found
