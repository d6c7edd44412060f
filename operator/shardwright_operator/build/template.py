"""From a spec and its plan to a revision's pod templates, and to the hash that tells whether they change."""

from collections.abc import Mapping
from typing import Any

from shardwright_operator.api.constants import Role
from shardwright_operator.api.engine_image import DEFAULT_IMAGE, engine_image, engine_version
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.command import EVERY_ADDRESS
from shardwright_operator.build.digest import digest
from shardwright_operator.build.download import download_spec
from shardwright_operator.build.network import group_network
from shardwright_operator.build.owner import Manifest, Owner
from shardwright_operator.build.pod import PodInputs, container_security, pod_security, pod_template
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.ports import ports_of
from shardwright_operator.build.startup import startup_budget_s
from shardwright_planner.plan import Plan

USER_ID = 1000
"""User and group of the engine; any number will do, it need not exist in the image."""

_WHOLE_SECTIONS = ("storage",)
_PLANNING_ONLY = {
    "model": ("config",),
    "engine": ("version", "gpuMemoryUtilization", "maxNumSeqs", "maxNumBatchedTokens"),
    "network": ("nodeBandwidthGbps", "clients"),
    "scheduling": ("admission",),
}
"""Fields that alter no pod by themselves, in sections that do: the plan's inputs, the NetworkPolicy's, and
when pods are made."""

_PLANNED = (
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "pipeline_partition",
    "nodes",
    "gpus_per_node",
    "max_model_length",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "dtype",
    "kv_cache_dtype",
    "engine_version",
    "weights_bytes",
)


def render_templates(
    spec: ModelDeploymentSpec,
    plan: Plan,
    pool: PoolSelection,
    owner: Owner,
    *,
    default_image: str = DEFAULT_IMAGE,
    user_id: int | None = USER_ID,
    api_host: str = EVERY_ADDRESS,
    port_block: int = 0,
) -> tuple[Manifest, Manifest | None]:
    """The pod templates of the leader and of the workers; no worker template for a group of one pod.

    ``default_image`` is for specs that give none. ``user_id`` None leaves the user and group to the cluster,
    as OpenShift's ``restricted-v2`` demands. ``api_host`` is ``::`` in a cluster whose pods have IPv6
    addresses. ``port_block`` counts on the nodes' network only.

    Raises:
        SpecError: something in the spec cannot be rendered with this plan.
    """
    engine_version(spec.engine, default_image)  # the command line is written for known versions only
    network = group_network(spec, plan)
    inputs = PodInputs(
        spec=spec,
        plan=plan,
        pool=pool,
        owner=owner,
        image=engine_image(spec.engine, default_image),
        network=network,
        ports=ports_of(spec, plan, port_block if network.host else None),
        startup_s=startup_budget_s(spec.recovery, plan),
        user_id=user_id,
        api_host=api_host,
    )
    worker = pod_template(inputs, Role.WORKER) if plan.nodes > 1 else None
    return pod_template(inputs, Role.LEADER), worker


def render_download(
    spec: ModelDeploymentSpec,
    owner: Owner,
    *,
    default_image: str = DEFAULT_IMAGE,
    user_id: int | None = USER_ID,
) -> Manifest | None:
    """The spec of the Job that downloads the model to a shared claim; None when none is given."""
    return download_spec(
        spec,
        owner,
        image=engine_image(spec.engine, default_image),
        security=pod_security(user_id),
        container_security=container_security(),
    )


def pod_inputs_hash(raw_spec: Mapping[str, Any], plan: Plan) -> str:
    """Hash of everything that alters pods, to tell an edit that restarts groups from one that does not.

    It reads the spec as the user wrote it, not as this version parses it: a new field or another default of a
    newer operator must not look like an edit. Counts, the service level and the hardware reach the pods only
    through the plan, whose values for the engine are hashed instead. Absent, null and empty are the same.
    """
    inputs = {section: raw_spec.get(section) for section in _WHOLE_SECTIONS}
    for section, left_out in _PLANNING_ONLY.items():
        fields = raw_spec.get(section) or {}
        inputs[section] = {key: value for key, value in fields.items() if key not in left_out}
    inputs["startupTimeout"] = (raw_spec.get("recovery") or {}).get("startupTimeout")
    planned = plan.model_dump(mode="json", include=set(_PLANNED))
    return digest([_given(inputs), planned])


def _given(value: object) -> object:
    if isinstance(value, Mapping):
        pairs = ((key, _given(part)) for key, part in value.items())
        return {key: part for key, part in pairs if part is not None and part not in ({}, [])}
    if isinstance(value, list | tuple):
        return [_given(part) for part in value]
    return value
