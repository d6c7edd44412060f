"""From a spec to the planner's question: the one place where the two vocabularies meet.

The command line and the operator both come through here, so that a plan on a laptop and the plan in a cluster
differ in the pools they may use and in nothing else.
"""

from difflib import SequenceMatcher
from functools import lru_cache

from shardwright_operator.api.constants import Reason
from shardwright_operator.api.engine_image import DEFAULT_IMAGE, engine_version
from shardwright_operator.api.errors import SpecError, from_planner
from shardwright_operator.api.extra_args import switched_on
from shardwright_operator.api.model_spec import Dtype, KvCacheDtype
from shardwright_operator.api.pod_spec import NetworkProfile
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_planner import (
    EngineOptions,
    Executor,
    Gpu,
    ModelFacts,
    Pins,
    PlanInputError,
    PlanRequest,
    Policy,
    Pool,
    ServiceLevel,
    Workload,
    find_gpu,
)
from shardwright_planner.catalogue import find_model, model_names
from shardwright_planner.config import model_from_config

DECLARED_POOL = "declared"
WITHOUT_WINDOWS = "--disable-hybrid-kv-cache-manager"
"""vLLM's argument by which layers with a window cache the whole sequence."""
BYTES_PER_S_OF_GBPS = 1e9 / 8

_ALIKE, _AS_GOOD, _MOST_SHOWN = 0.8, 0.02, 3
"""How much two names have in common (0 to 1); of those that are alike the best are shown, up to so many."""

_DEFAULT_LOAD = Workload()
_DEFAULT_LEVEL = ServiceLevel()


def plan_request(
    spec: ModelDeploymentSpec, pools: tuple[Pool, ...], *, default_image: str = DEFAULT_IMAGE
) -> PlanRequest:
    """The question for the planner.

    Args:
        spec: the resource's spec.
        pools: GPU nodes that one replica may use, already narrowed to what ``spec.hardware`` allows.
        default_image: the operator's engine image, for specs that give none.

    Raises:
        SpecError: for a model that nobody knows, a config that cannot be used, or an image without a version.
    """
    engine, pins = spec.engine, spec.parallelism
    return PlanRequest(
        model=model_facts(spec),
        pools=pools,
        workload=_workload(spec),
        service_level=_service_level(spec),
        pins=Pins(
            tensor=pins.tensor,
            pipeline=pins.pipeline,
            data=pins.data,
            expert=pins.expert,
            pipeline_partition=pins.pipeline_partition,
            cross_node_tensor=bool(pins.cross_node_tensor),
        ),
        engine=EngineOptions(
            version=engine_version(engine, default_image),
            dtype=_unless_auto(spec.model.dtype),
            quantization=spec.model.quantization,
            kv_cache_dtype=_unless_auto(spec.model.kv_cache_dtype),
            gpu_memory_utilization=engine.gpu_memory_utilization,
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            executor=engine.executor or Executor.MULTIPROCESSING,
            keeps_windows=not switched_on(engine.extra_args or (), WITHOUT_WINDOWS),
        ),
    )


def declared_pool(spec: ModelDeploymentSpec) -> Pool | None:
    """The pool that ``spec.hardware`` describes whole; None when part of it is to be found in the cluster.

    Raises:
        SpecError: for a GPU that the planner does not know.
    """
    hardware = spec.hardware
    if hardware.gpu is None or hardware.gpus_per_node is None or hardware.max_nodes is None:
        return None
    try:
        gpu = find_gpu(hardware.gpu)
    except PlanInputError as error:
        raise from_planner(error, Reason.UNKNOWN_GPU) from None
    return Pool(
        gpu=gpu,
        gpus_per_node=hardware.gpus_per_node,
        nodes=hardware.max_nodes,
        name=DECLARED_POOL,
        nic_bytes_per_s=node_bandwidth_bytes_per_s(spec),
        rdma=node_rdma(spec),
        price_per_gpu_hour=gpu_hour_price(spec, gpu),
    )


def node_bandwidth_bytes_per_s(spec: ModelDeploymentSpec) -> float | None:
    """One-way network rate of a node as the spec says it; None lets the planner take its own default."""
    gbps = spec.network.node_bandwidth_gbps
    return None if gbps is None else gbps * BYTES_PER_S_OF_GBPS


def gpu_hour_price(spec: ModelDeploymentSpec, gpu: Gpu) -> float | None:
    """What the spec says that an hour of this GPU costs, whichever of its names it uses.

    Raises:
        SpecError: for a price of a GPU that the planner does not know.
    """
    for name, price in (spec.hardware.gpu_hour_prices or {}).items():
        try:
            known = find_gpu(name)
        except PlanInputError as error:
            found = from_planner(error)
            raise SpecError(
                field="spec.hardware.gpuHourPrices",
                value=name,
                limit=found.limit,
                remedy=found.remedy,
                reason=Reason.UNKNOWN_GPU,
            ) from None
        if known == gpu:
            return price
    return None


def node_rdma(spec: ModelDeploymentSpec) -> bool | None:
    """Whether the spec's network profile uses RDMA; None for profiles that leave it to NCCL."""
    match spec.network.profile:
        case NetworkProfile.TCP:
            return False
        case NetworkProfile.ROCE | NetworkProfile.INFINIBAND | NetworkProfile.EFA:
            return True
        case _:
            return None if spec.network.rdma_resource is None else True


def model_facts(spec: ModelDeploymentSpec) -> ModelFacts:
    """Facts of the spec's model: from its inline config, or from the planner's catalogue.

    Raises:
        SpecError: for a model that neither knows, and for a config that cannot be used.
    """
    if spec.model.config is not None:
        try:
            return model_from_config(spec.model.config, name=spec.model.name)
        except PlanInputError as error:
            raise _about_config(error) from None
    found = find_model(spec.model.name)
    if found is None:
        raise SpecError(
            field="spec.model.name",
            value=spec.model.name,
            limit="the planner has no facts about this model",
            remedy=f"give the Hub id of a model in its catalogue{resembling(spec.model.name)}, copy the "
            "model's config.json into spec.model.config, or plan on the command line with --hub or --config "
            "FILE",
            reason=Reason.UNKNOWN_MODEL,
        )
    return found


@lru_cache(maxsize=64)
def resembling(name: str) -> str:
    """The catalogue's ids that an unknown name is most like, as a question in brackets; empty if none is.

    Who leaves the owner out, or names another one, means the model of that name.
    """
    wanted, model = name.strip().lower(), _without_owner(name)
    likeness: dict[str, float] = {}
    for known in model_names():
        alike = _alike(model, _without_owner(known))
        likeness[known] = max(alike, _alike(wanted, known.lower())) if wanted != model else alike
    best = max(likeness.values())
    close = [known for known, alike in likeness.items() if alike >= max(_ALIKE, best - _AS_GOOD)]
    shown = sorted(close, key=lambda known: (-likeness[known], known))[:_MOST_SHOWN]
    return f" ({' or '.join(shown)}?)" if shown else ""


def _without_owner(name: str) -> str:
    return name.strip().lower().rpartition("/")[2]


def _alike(one: str, other: str) -> float:
    """From 0 to 1; 0 as well for what is clearly less than ``_ALIKE``."""
    matcher = SequenceMatcher(None, one, other)
    if matcher.real_quick_ratio() < _ALIKE or matcher.quick_ratio() < _ALIKE:
        return 0.0
    return matcher.ratio()


def _about_config(error: PlanInputError) -> SpecError:
    found = from_planner(error)
    key = found.field.removeprefix("spec.").removeprefix("model.").removeprefix("config.")
    field = "spec.model.config" if key == "config" else f"spec.model.config.{key}"
    return SpecError(field=field, value=found.value, limit=found.limit, remedy=found.remedy)


def _workload(spec: ModelDeploymentSpec) -> Workload:
    given = spec.workload
    longest = given.max_model_length
    output_tokens = given.output_tokens or _DEFAULT_LOAD.output_tokens
    input_tokens = given.input_tokens or _DEFAULT_LOAD.input_tokens
    if longest is not None and input_tokens + output_tokens > longest:
        # The user gave a short limit and left the rest to us: what we assume must fit into it.
        if given.output_tokens is None:
            room = longest - (given.input_tokens or 0)
            output_tokens = max(1, min(output_tokens, room if given.input_tokens else longest // 8))
        if given.input_tokens is None:
            input_tokens = max(1, longest - output_tokens)
    return Workload(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        max_model_length=longest,
        requests_per_second=given.requests_per_second,
    )


def _service_level(spec: ModelDeploymentSpec) -> ServiceLevel:
    return ServiceLevel(
        concurrency=spec.slo.concurrency or _DEFAULT_LEVEL.concurrency,
        time_per_output_token_s=spec.slo.time_per_output_token_s,
        time_to_first_token_s=spec.slo.time_to_first_token_s,
        policy=spec.slo.policy or Policy.BEST_EFFORT,
    )


def _unless_auto(choice: Dtype | KvCacheDtype | None) -> str | None:
    return None if choice is None or choice.value == "auto" else choice.value
