"""A group as the operator renders it, and each rank's command as Kubernetes would start it.

Manifests are those of ``shardwright render``, hence of the operator's own decision about a new resource. What
the API server, the StatefulSet controller and the kubelet add is done here by their rules: pod names and the
index label, values of the downward API, ``$(NAME)`` in the environment and in arguments.
"""

import contextlib
import io
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwright_operator.api.constants import API_VERSION, KIND, Label
from shardwright_operator.build.command import MODEL_FOLDER
from shardwright_operator.build.revision import from_manifest
from shardwright_operator.cli.main import main
from shardwright_planner.plan import Plan

RAY = ("--distributed-executor-backend", "ray")
"""vLLM imports Ray as soon as it is named. This environment has none, and the CPU build would refuse it
("current platform cpu does not support ray"): these words are taken out, and Ray's own have a test."""
NAME, NAMESPACE, GROUP = "model", "serving", 0
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][-A-Za-z0-9_.]*)\))")


class NotRenderedError(ValueError):
    """The operator would apply nothing; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One pod of a group, expanded: its words, its environment, and the GPUs that it asks for."""

    pod: str
    index: int
    words: tuple[str, ...]
    env: Mapping[str, str]
    gpus: int

    @property
    def serve(self) -> tuple[str, ...]:
        """The words after ``vllm serve``, whatever starts it."""
        start = self.words.index("serve")
        assert self.words[start - 1] == "vllm"
        return self.words[start + 1 :]

    @property
    def launcher(self) -> tuple[str, ...]:
        """The words before ``vllm serve``."""
        return self.words[: self.words.index("serve") - 1]


@dataclass(frozen=True, kw_only=True)
class RenderedGroup:
    """The first group of a resource."""

    plan: Plan
    ranks: tuple[Rank, ...]


def rendered_group(spec: Mapping[str, Any]) -> RenderedGroup:
    """Plan and render a spec, and expand every pod of its first group.

    Raises:
        NotRenderedError: the spec is refused, or its plan would not be deployed.
    """
    manifests = _manifests(spec)
    revision = next(from_manifest(m) for m in manifests if m["kind"] == "ControllerRevision")
    sets = [m for m in manifests if m["kind"] == "StatefulSet" and f"-{GROUP}-" in m["metadata"]["name"]]
    # The operator brings a new group up with one replica of the leader and the rest as workers.
    pods = []
    for stateful_set in sets:
        start = stateful_set["spec"].get("ordinals", {}).get("start", 0)
        count = 1 if start == 0 else revision.members - 1
        pods += [_pod(stateful_set, start + offset) for offset in range(count)]
    return RenderedGroup(plan=revision.plan, ranks=tuple(sorted(pods, key=lambda rank: rank.index)))


def _manifests(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    resource = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"replicas": 1, **spec},
    }
    said, complained = io.StringIO(), io.StringIO()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(resource, file)
        file.flush()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            code = main(["render", "-f", file.name, "-o", "json"])
    if code != 0:
        raise NotRenderedError(complained.getvalue().strip())
    found: list[Mapping[str, Any]] = json.loads(said.getvalue())["items"]
    return found


def _pod(stateful_set: Mapping[str, Any], index: int) -> Rank:
    template = stateful_set["spec"]["template"]
    name = f"{stateful_set['metadata']['name']}-{index}"
    labels = {**template["metadata"]["labels"], Label.POD_INDEX: str(index)}
    (container,) = template["spec"]["containers"]
    fields = {"status.podIP": f"10.0.0.{index + 1}", "metadata.name": name}
    fields |= {f"metadata.labels['{key}']": value for key, value in labels.items()}
    env = _environment(container["env"], fields)
    words = [*container["command"], *container.get("args", ())]
    return Rank(
        pod=name,
        index=index,
        words=tuple(_expanded(word, env) for word in words),
        env=env,
        gpus=int(container["resources"]["limits"]["nvidia.com/gpu"]),
    )


def _environment(entries: list[Mapping[str, Any]], fields: Mapping[str, str]) -> dict[str, str]:
    env: dict[str, str] = {}
    for entry in entries:
        if "value" in entry:
            # Only entries further up are known to a reference; an unknown one stays as it is.
            env[entry["name"]] = _expanded(entry["value"], env)
        elif "fieldRef" in entry["valueFrom"]:
            env[entry["name"]] = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            env[entry["name"]] = "from-a-secret"
    return env


def _expanded(text: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else env.get(match[2], match[0])

    return _REFERENCE.sub(value, text)


def words_for_this_machine(rank: Rank, claim: Path) -> list[str]:
    """The words after ``vllm serve`` with the claim's folder where it is here, and without Ray's name."""
    model, *words = rank.serve
    assert model.startswith(f"{MODEL_FOLDER}/")
    return [str(claim / model.removeprefix(f"{MODEL_FOLDER}/")), *(word for word in words if word not in RAY)]


def variables(rank: Rank) -> dict[str, str]:
    """The environment as far as vLLM's configuration reads it; folders are those of this machine."""
    return {
        name: value
        for name, value in rank.env.items()
        if name.startswith(("VLLM_", "GLOO_", "NCCL_")) and not name.endswith("_ROOT")
    }
