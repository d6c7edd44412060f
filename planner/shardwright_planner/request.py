"""What a plan is asked for: the model, the load, the service level, the hardware, and whatever is pinned."""

from dataclasses import dataclass, field
from enum import StrEnum

from shardwright_planner.gpu import Gpu
from shardwright_planner.model import ModelFacts


class Policy(StrEnum):
    """What to do with a plan that fits but is predicted to miss its service level."""

    BEST_EFFORT = "BestEffort"
    REQUIRE = "Require"


class Executor(StrEnum):
    """How vLLM starts the ranks of other nodes."""

    MULTIPROCESSING = "mp"
    RAY = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The typical request, and the longest one that must be accepted.

    ``max_model_length`` None lets the planner choose: the model's own limit, or what fits.
    ``requests_per_second`` is the total over all replicas; it gives a recommended number of replicas.
    """

    input_tokens: int = 2048
    output_tokens: int = 256
    max_model_length: int | None = None
    requests_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevel:
    """Mean latencies at the stated steady concurrency of one replica, in seconds."""

    concurrency: int = 32
    time_per_output_token_s: float | None = None
    time_to_first_token_s: float | None = None
    policy: Policy = Policy.BEST_EFFORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """GPU nodes of one kind. ``nodes`` is how many of them one replica may use.

    ``nic_bytes_per_s`` is the one-way network rate of a node, all its NICs together; None takes the stated
    default of the latency model. ``rdma`` says whether NCCL can use RDMA between the nodes; None: not known.
    ``price_per_gpu_hour`` is in any one currency; where every pool has one, the cheapest plan wins over the
    one with the fewest GPUs.
    """

    gpu: Gpu
    gpus_per_node: int
    nodes: int
    name: str = ""
    nic_bytes_per_s: float | None = None
    rdma: bool | None = None
    price_per_gpu_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Values the user fixed. A pin is obeyed or refused by name, never adjusted."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    expert: bool | None = None
    pipeline_partition: tuple[int, ...] | None = None
    cross_node_tensor: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What the engine is told besides the sizes. None means: the engine's default, or the planner's choice.

    ``version`` is major.minor of vLLM; its defaults and limits come from the engine table. Without
    ``keeps_windows`` (``--disable-hybrid-kv-cache-manager``) layers with a window cache the whole sequence.
    """

    version: str = "0.32"
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    executor: Executor = Executor.MULTIPROCESSING
    keeps_windows: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """One question to the planner.

    ``hardware_key`` is what the user said about hardware, in any stable form. It is an input of the plan,
    whereas the pools may have been found in the cluster and come and go.
    """

    model: ModelFacts
    pools: tuple[Pool, ...]
    workload: Workload = field(default_factory=Workload)
    service_level: ServiceLevel = field(default_factory=ServiceLevel)
    pins: Pins = field(default_factory=Pins)
    engine: EngineOptions = field(default_factory=EngineOptions)
    hardware_key: str = ""
