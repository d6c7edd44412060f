"""The engine's environment: what identifies a rank first, then what it needs, then what the user adds.

Precedence: ours, then the user's on top, except for the names that identify a rank or carry a planned value,
which the API refuses in ``spec.engine.env``. A variable that the user replaces keeps our place in the list,
because Kubernetes expands ``$(NAME)`` only from entries further up.
"""

from shardwright_operator.api import names
from shardwright_operator.api.constants import Label, Role
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.command import LEADER_ADDRESS
from shardwright_operator.build.owner import Manifest, Owner
from shardwright_operator.build.ports import Ports, has_side_channels
from shardwright_operator.build.resources import uses_ray
from shardwright_planner.plan import Plan

HOME = "/home/engine"
EXECUTE_TIMEOUT_S = 120
"""Longest time of one engine step before vLLM gives up on its peers. Its own default of 300 s leaves requests
hanging that long after a remote rank died; a step takes seconds."""

_CACHES = {
    "HOME": HOME,
    # The user id need not exist in the image's passwd file, and torch asks for the user's name.
    "USER": "engine",
    "TMPDIR": "/tmp",  # noqa: S108 - a volume of the pod's own
    "XDG_CACHE_HOME": f"{HOME}/.cache",
    "XDG_CONFIG_HOME": f"{HOME}/.config",
    "HF_HOME": f"{HOME}/.cache/huggingface",
    "VLLM_CACHE_ROOT": f"{HOME}/.cache/vllm",
    "VLLM_CONFIG_ROOT": f"{HOME}/.config/vllm",
    "TRITON_CACHE_DIR": f"{HOME}/.cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{HOME}/.cache/torchinductor",
    "NUMBA_CACHE_DIR": f"{HOME}/.cache/numba",
    "FLASHINFER_WORKSPACE_BASE": HOME,
}
"""Every folder that the engine writes to by default, under one volume that any user id may write to."""


def cache_environment() -> list[Manifest]:
    """Where programs of the image may write."""
    return _values(_CACHES)


def source_environment(spec: ModelDeploymentSpec) -> list[Manifest]:
    """What a program needs to reach the Hub: a mirror's address, and a token by reference."""
    found: list[Manifest] = []
    hub = spec.model.source.hugging_face if spec.model.source else None
    if hub and hub.endpoint:
        found += _values({"HF_ENDPOINT": hub.endpoint})
    token = spec.model.token_secret
    if token:
        found.append(_secret("HF_TOKEN", *token))
    return found


def environment(
    spec: ModelDeploymentSpec,
    plan: Plan,
    owner: Owner,
    role: Role,
    *,
    network: dict[str, str],
    startup_s: int,
    ports: Ports,
) -> list[Manifest]:
    """The environment of one rank's engine. ``network`` are the variables of the network profile."""
    entries = [
        *identity(plan, owner),
        *_values(_engine(spec, plan, startup_s, ports)),
        *_values(network),
        *cache_environment(),
        *_source(spec),
    ]
    key = spec.engine.api_key_secret_ref
    if key is not None and role is Role.LEADER:
        entries.append(_secret("VLLM_API_KEY", key.name, key.key))
    merged = {entry["name"]: entry for entry in entries}
    merged |= {variable.name: variable.to_wire() for variable in spec.engine.env or ()}
    return list(merged.values())


def identity(plan: Plan, owner: Owner) -> list[Manifest]:
    """Who this pod is. Nothing here depends on the group, so that one template serves all of them.

    vLLM is given the pod's own address, since a guess over several interfaces may end at one that the peers
    cannot reach, and without any it advertises 0.0.0.0 and the group hangs.
    """
    own_address = _field("VLLM_HOST_IP", "status.podIP")
    if plan.nodes == 1:
        return [own_address]
    address = names.leader_address(owner.name, "$(GROUP_INDEX)", owner.namespace)
    return [
        _field("GROUP_INDEX", f"metadata.labels['{Label.GROUP_INDEX}']"),
        _field("NODE_RANK", f"metadata.labels['{Label.POD_INDEX}']"),
        {"name": "LEADER_ADDRESS", "value": address},
        own_address,
    ]


def _engine(spec: ModelDeploymentSpec, plan: Plan, startup_s: int, ports: Ports) -> dict[str, str]:
    found = {
        "VLLM_ENGINE_READY_TIMEOUT_S": str(startup_s),
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": str(EXECUTE_TIMEOUT_S),
        "VLLM_NO_USAGE_STATS": "1",
    }
    if plan.pipeline_partition is not None:
        found["VLLM_PP_LAYER_PARTITION"] = ",".join(str(layers) for layers in plan.pipeline_partition)
    if has_side_channels(spec):
        # Peers dial it, so that vLLM's own localhost would lead each engine back to itself (kthena PR 1781).
        found["VLLM_NIXL_SIDE_CHANNEL_HOST"] = "$(VLLM_HOST_IP)"
        if ports.side_channels:
            found["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(ports.side_channels.start)
    if uses_ray(spec, plan):
        # Without an address vLLM starts a Ray of its own and waits for ever for the other nodes' GPUs.
        found["RAY_ADDRESS"] = f"{LEADER_ADDRESS}:{ports.ray}"
        # Ray's own 30 s are less than one image pull, and giving up restarts the container.
        found["RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT"] = str(startup_s)
    return found


def _source(spec: ModelDeploymentSpec) -> list[Manifest]:
    if spec.model_claim is not None:
        return _values({"HF_HUB_OFFLINE": "1"})
    return source_environment(spec)


def _values(entries: dict[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in entries.items()]


def _field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _secret(name: str, secret: str, key: str) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
