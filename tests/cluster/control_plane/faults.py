"""Playing faults on simulated pods.

stages/pod.yaml and stages/faults.yaml read annotations of a pod. On a running pod one sets them directly. For
a pod that does not exist yet, made by a StatefulSet from a template that is not ours to edit, an admission
policy of the API server adds them at creation: the template, its hash and its owner see nothing of it.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping

from control_plane.client import ApiError, Client, Json
from control_plane.waiting import wait_for

PLAY = "play.shardwright.dev"
"""Prefix of the annotations that the stages read."""


def play(client: Client, namespace: str, pod: str, **course: str | None) -> None:
    """Change the course of an existing pod, for example ``play(client, ns, pod, restarts="1")``.

    Keywords are the annotations' names with ``_`` for ``-``; None takes one back.
    """
    client.annotate("pods", pod, _annotations(course), namespace)


@contextlib.contextmanager
def playing(
    client: Client, namespace: str, labels: Mapping[str, str] | None = None, **course: str
) -> Iterator[None]:
    """Inside the block, pods created in a namespace (with these labels) carry a course from their birth.

    Pods created inside the block keep it afterwards. Needs Kubernetes 1.36 (MutatingAdmissionPolicy v1).
    """
    name = f"play-{uuid.uuid4().hex[:10]}"
    annotations = {key: value for key, value in _annotations(course).items() if value is not None}
    selected = dict(labels or {})
    try:
        _add_policy(client, name, namespace, selected, annotations)
        # Policies are compiled in the background; a dry run that comes back changed shows it in force.
        probe = _probe_pod(name, selected)
        wait_for(
            lambda: annotations.items() <= _dry_run_annotations(client, namespace, probe).items(),
            f"the policy that sets {annotations} is in force",
        )
        yield
    finally:
        for resource in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
            with contextlib.suppress(ApiError):
                client.delete(f"{resource}.admissionregistration.k8s.io", name)
    # Forgotten in the background too: a pod made right after the block was still given the course of it.
    wait_for(
        lambda: annotations.keys().isdisjoint(_dry_run_annotations(client, namespace, probe)),
        f"the policy that sets {annotations} is out of force",
    )


def _add_policy(
    client: Client, name: str, namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> None:
    entries = ", ".join(f"{_cel(key)}: {_cel(value)}" for key, value in annotations.items())
    expression = f"Object{{metadata: Object.metadata{{annotations: {{{entries}}}}}}}"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    api = "admissionregistration.k8s.io/v1"
    policy: Json = {
        "apiVersion": api,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "objectSelector": {"matchLabels": dict(labels)},
                "resourceRules": [rule],
            },
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
            ],
        },
    }
    client.create(policy)
    binding: Json = {
        "apiVersion": api,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
    client.create(binding)


def _dry_run_annotations(client: Client, namespace: str, pod: Json) -> dict[str, str]:
    return dict(client.create(pod, namespace, dry_run=True)["metadata"].get("annotations", {}))


def _probe_pod(name: str, labels: Mapping[str, str]) -> Json:
    # It must pass the strictest pod security profile, which the namespace may enforce.
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "probe", "image": "probe.invalid/probe", "securityContext": security}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {"containers": [container]},
    }


def _annotations(course: Mapping[str, str | None]) -> dict[str, str | None]:
    return {f"{PLAY}/{key.replace('_', '-')}": value for key, value in course.items()}


def _cel(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
