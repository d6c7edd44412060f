"""What a pod asks its node for, in CPU, memory, shared memory and disk, from the ranks that it holds.

Requests decide where a pod fits, so they are what a healthy engine uses and no more: one GPU has to fit on
the smallest cloud node that has one (4 cores, 16 GiB). Limits catch a run-away, so they are generous.
Whatever the user says in ``spec.engine.resources`` and ``spec.storage`` stands.
"""

from shardwright_operator.api.constants import GPU_RESOURCE
from shardwright_operator.api.quantities import canonical_quantity, format_bytes, parse_quantity
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.owner import Manifest
from shardwright_planner.plan import Plan
from shardwright_planner.request import Executor

GIB = 1024**3

SHARED_MEMORY_BASE_BYTES = 2 * GIB
SHARED_MEMORY_RANK_BYTES = GIB
RAY_OBJECT_STORE_BYTES = GIB
"""Size given to Ray's object store, which lives in /dev/shm and would take 30 % of the memory by itself."""
BASE_MEMORY_BYTES = 4 * GIB
API_SERVER_MEMORY_BYTES = GIB
RANK_MEMORY_BYTES = 3 * GIB
MEMORY_SLACK_BYTES = 8 * GIB
BASE_CORES = 2
CACHE_BASE_BYTES = 16 * GIB
TEMPORARY_BYTES = 10 * GIB


def uses_ray(spec: ModelDeploymentSpec, plan: Plan) -> bool:
    """Whether Ray starts the ranks: asked for, and there is another node to start them on."""
    return spec.engine.executor is Executor.RAY and plan.nodes > 1


def shared_memory_bytes(spec: ModelDeploymentSpec, plan: Plan) -> int:
    """Size of /dev/shm: ``storage.sharedMemory``, or 2 GiB plus 1 GiB for each rank of the pod.

    The broadcast queue of vLLM takes 160 MiB and fails with less; each worker adds a queue of 24 MiB (seen on
    vLLM 0.32); NCCL's buffers between ranks without peer access and multi-modal inputs make up the rest. Ray
    adds its object store.
    """
    if spec.storage.shared_memory is not None:
        return parse_quantity(spec.storage.shared_memory)
    ray = RAY_OBJECT_STORE_BYTES if uses_ray(spec, plan) else 0
    return SHARED_MEMORY_BASE_BYTES + SHARED_MEMORY_RANK_BYTES * plan.gpus_per_node + ray


def memory_request_bytes(spec: ModelDeploymentSpec, plan: Plan) -> int:
    """Memory of a healthy pod: processes, ranks, and /dev/shm, which the kernel charges to the container.

    4 GiB for the engine and its helpers, 1 GiB for each API server (vLLM starts one per data-parallel rank),
    and 3 GiB of host memory for each rank's CUDA context, libraries and pinned buffers.
    """
    processes = BASE_MEMORY_BYTES + API_SERVER_MEMORY_BYTES * (plan.data_parallel - 1)
    return processes + RANK_MEMORY_BYTES * plan.gpus_per_node + shared_memory_bytes(spec, plan)


def process_memory_bytes(plan: Plan) -> int:
    """Memory that the processes of a pod need besides /dev/shm, which is seldom full."""
    return BASE_MEMORY_BYTES + RANK_MEMORY_BYTES * plan.gpus_per_node


def memory_limit_bytes(spec: ModelDeploymentSpec, plan: Plan) -> int:
    """The request, the share of the weights that some loaders stage in host memory, and 8 GiB of slack."""
    share = -(-plan.weights_bytes // plan.nodes)
    return _whole_gib(memory_request_bytes(spec, plan) + share + MEMORY_SLACK_BYTES)


def cache_request_bytes(spec: ModelDeploymentSpec, plan: Plan) -> int:
    """Disk of a pod: compiled kernels and scratch files, and the whole checkpoint when it is downloaded.

    Each node downloads all of it: a rank looks for its part in every file.
    """
    download = 0 if spec.model_claim else plan.weights_bytes * 21 // 20
    return _whole_gib(download + CACHE_BASE_BYTES)


def cache_limit_bytes(spec: ModelDeploymentSpec, plan: Plan) -> int:
    """Bound of the cache volume: ``storage.cacheSize``, or generously more than what is expected.

    Without a bound a download that runs away fills the node's disk and the kubelet evicts strangers. The plan
    knows the weights as loaded: a checkpoint that the engine quantizes on the way is up to four times as
    large on disk.
    """
    if spec.storage.cache_size is not None:
        return parse_quantity(spec.storage.cache_size)
    times = 4 if spec.model.quantization else 2
    download = 0 if spec.model_claim else plan.weights_bytes * times
    return _whole_gib(download + 2 * CACHE_BASE_BYTES)


def container_resources(
    spec: ModelDeploymentSpec, plan: Plan, devices: dict[str, int] | None = None
) -> Manifest:
    """Requests and limits of the engine's container.

    ``devices`` are extended resources besides the GPUs. These are asked for by limits and equal requests, as
    Kubernetes demands. There is no CPU limit: throttling a rank stalls all of its peers.
    """
    extended = {
        name: str(count) for name, count in {GPU_RESOURCE: plan.gpus_per_node, **(devices or {})}.items()
    }
    requests = {
        "cpu": str(BASE_CORES + plan.gpus_per_node),
        "memory": format_bytes(memory_request_bytes(spec, plan)),
        "ephemeral-storage": format_bytes(cache_request_bytes(spec, plan)),
    }
    limits = {"memory": format_bytes(memory_limit_bytes(spec, plan))}
    given = spec.engine.resources
    asked = _canonical(given.requests if given else None)
    capped = _canonical(given.limits if given else None)
    requests |= asked
    limits |= capped
    for name in requests.keys() & limits.keys():
        if parse_quantity(requests[name]) > parse_quantity(limits[name]):
            # Only one of the two is the user's, or the API server refuses the pair with the better message.
            if name in asked and name not in capped:
                limits[name] = requests[name]
            elif name in capped and name not in asked:
                requests[name] = limits[name]
    return {
        "requests": dict(sorted((requests | extended).items())),
        "limits": dict(sorted((limits | extended).items())),
    }


def _canonical(amounts: dict[str, str] | None) -> dict[str, str]:
    return {name: canonical_quantity(amount) for name, amount in (amounts or {}).items()}


def _whole_gib(amount: int) -> int:
    return -(-amount // GIB) * GIB
