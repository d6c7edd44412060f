"""The GPU pools to plan on: declared in the spec, or found in the cluster."""

from dataclasses import dataclass, replace

from shardwright_operator.api.constants import Reason
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.plan_request import (
    declared_pool,
    gpu_hour_price,
    node_bandwidth_bytes_per_s,
    node_rdma,
)
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.observe.pools import FoundPools, find_pools
from shardwright_operator.observe.views import NodeView
from shardwright_planner import Pool, find_gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Nothing to plan on, and whether a person has to change the spec."""

    reason: Reason
    message: str
    stalled: bool


def supply(spec: ModelDeploymentSpec, nodes: tuple[NodeView, ...] | None) -> tuple[Pool, ...] | Shortage:
    """The pools, each with as many nodes as one replica may use.

    A fully declared pool is taken at its word: an autoscaler may make its nodes once pods wait for them.

    Raises:
        PlanInputError: the spec names a GPU that the catalogue does not have.
    """
    declared = declared_pool(spec)
    if declared is not None:
        return (declared,)
    if nodes is None:
        error = SpecError(
            field="spec.hardware",
            value=", ".join(spec.hardware.to_wire()) or None,
            limit="this operator serves single namespaces and has no right to look at nodes",
            remedy="give hardware.gpu, hardware.gpusPerNode and hardware.maxNodes",
        )
        return Shortage(reason=Reason.NO_GPU_NODES, message=str(error), stalled=True)
    found = find_pools(nodes, spec.scheduling)
    wanted = None if spec.hardware.gpu is None else find_gpu(spec.hardware.gpu)
    pools = tuple(_limited(pool, spec) for pool in found.pools if wanted in {None, pool.gpu})
    return pools or _nothing(found, None if wanted is None else wanted.name)


def _limited(pool: Pool, spec: ModelDeploymentSpec) -> Pool:
    hardware = spec.hardware
    return replace(
        pool,
        gpus_per_node=min(pool.gpus_per_node, hardware.gpus_per_node or pool.gpus_per_node),
        nodes=min(pool.nodes, hardware.max_nodes or pool.nodes),
        nic_bytes_per_s=node_bandwidth_bytes_per_s(spec),
        rdma=node_rdma(spec),
        price_per_gpu_hour=gpu_hour_price(spec, pool.gpu),
    )


def _nothing(found: FoundPools, wanted: str | None) -> Shortage:
    kind = f"GPU {wanted}" if wanted else "a known GPU"
    if found.gpu_nodes == 0:
        seen = "no node offers nvidia.com/gpu"
    elif found.unusable:
        seen = f"{found.gpu_nodes} GPU nodes, of which left out: {found.describe_unusable()}"
    else:
        seen = f"{found.gpu_nodes} GPU nodes, all of another kind"
    message = (
        f"no usable node with {kind}: {seen}. Waiting for such nodes; to plan without them, "
        "give spec.hardware.gpu, gpusPerNode and maxNodes"
    )
    return Shortage(reason=Reason.NO_GPU_NODES, message=message, stalled=False)
