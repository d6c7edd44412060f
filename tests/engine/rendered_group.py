"""A group as the operator renders it, and each rank's command as Kubernetes would start it.

Manifests come out of the operator's own decision about a new resource. What the API server, the StatefulSet
controller and the kubelet add is done here by their rules: pod names and the index label, values of the
downward API, ``$(NAME)`` in the environment and in arguments.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shardwright_operator.api.constants import Label
from shardwright_operator.build.revision import from_manifest
from shardwright_operator.decide.decision import Apply
from shardwright_operator.decide.deployment import decide
from shardwright_operator.decide.target import DecideSettings
from shardwright_operator.observe.views import Key, Observed, ResourceView
from shardwright_planner.plan import Plan

NAME, NAMESPACE, GROUP = "model", "serving", 0
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][-A-Za-z0-9_.]*)\))")


class NotRenderedError(ValueError):
    """The operator would apply nothing; the message is its condition's."""


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
    key = Key(namespace=NAMESPACE, name=NAME)
    resource = ResourceView(
        key=key,
        uid="7c3c1f5e-0000-4000-8000-000000000001",
        generation=1,
        resource_version=1,
        deleting=False,
        spec=spec,
        status={},
    )
    settings = DecideSettings(operator_version="0.1.0")
    decision = decide(Observed(key=key, resource=resource), datetime(2026, 1, 1, tzinfo=UTC), settings)
    writes = [write for stage in decision.stages for write in stage if isinstance(write, Apply)]
    found = [write.manifest for write in writes]
    if not any(manifest["kind"] == "StatefulSet" for manifest in found):
        conditions = (decision.status or {}).get("conditions", ())
        raise NotRenderedError("; ".join(c["message"] for c in conditions if c["status"] == "False"))
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
