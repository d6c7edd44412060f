"""Definitions of gang schedulers' objects as their projects publish them."""

import json
import subprocess
from pathlib import Path

import yaml

from control_plane.client import Json
from control_plane.toolchain import find_toolchain

DOWNLOAD_TIMEOUT_S = 300.0

KUEUE = "sigs.k8s.io/kueue@v0.17.0"
KUEUE_WORKLOADS = "config/components/crd/bases/kueue.x-k8s.io_workloads.yaml"


def kueue_workload() -> Json:
    """Kueue's own file, out of its Go module.

    No copy is kept here: the Go command fetches the module once, checks it against the checksum database, and
    keeps it in its own cache. Raises RuntimeError with Go's own words.
    """
    command = [str(find_toolchain().go), "mod", "download", "-json", KUEUE]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=DOWNLOAD_TIMEOUT_S, cwd="/"
    )
    answer = json.loads(done.stdout or "{}")
    if done.returncode != 0:
        raise RuntimeError(answer.get("Error") or done.stderr)
    (definition,) = (d for d in yaml.safe_load_all((Path(answer["Dir"]) / KUEUE_WORKLOADS).read_text()) if d)
    return dict(definition)


def volcano_pod_group() -> Json:
    """The published names and types of the fields that the operator sets; whatever else it set is cut out.

    Volcano's module is not to be had from every module proxy, so these are written down, from
    volcano-sh/volcano, config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml.
    """
    quantity = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    spec = {
        "minMember": {"type": "integer", "format": "int32"},
        "minResources": {"type": "object", "additionalProperties": quantity},
        "priorityClassName": {"type": "string"},
        "queue": {"type": "string", "default": "default"},
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.scheduling.volcano.sh"},
        "spec": {
            "group": "scheduling.volcano.sh",
            "names": {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
