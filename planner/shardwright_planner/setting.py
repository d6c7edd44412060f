"""The request with every default filled in, checked once, so that no later step has to guess.

What the user left out takes the engine's own default for this GPU; what makes no sense is refused by name.
"""

import math
from dataclasses import dataclass, replace

from shardwright_planner.engine import EngineFacts, find_engine
from shardwright_planner.errors import PlanInputError
from shardwright_planner.gpu import Gpu
from shardwright_planner.model import LinearAttention, Mamba, ModelFacts
from shardwright_planner.quantization import online_quantization
from shardwright_planner.request import EngineOptions, Executor, PlanRequest, Pool, ServiceLevel, Workload

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4}
CACHE_DTYPES = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla")
# Of a node, when nothing is said: one adapter, of 400 Gbit/s beside NVLink and of 100 beside PCIe boards.
NVLINK_NODE_BYTES_PER_S = 50e9
PCIE_NODE_BYTES_PER_S = 12.5e9
MAX_LENGTH = 2**31
LEAST_FP8_CACHE = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One pool's planning problem, complete."""

    model: ModelFacts
    pool: Pool
    engine: EngineFacts
    workload: Workload
    service_level: ServiceLevel
    dtype: str
    dtype_bytes: int
    cache_dtype: str
    cache_bytes: float
    utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    nic_bytes_per_s: float
    executor: Executor
    keeps_windows: bool

    @property
    def context_tokens(self) -> int:
        """Tokens of the typical request, prompt and output."""
        return self.workload.input_tokens + self.workload.output_tokens

    @property
    def has_no_goals(self) -> bool:
        """Whether no latency was asked for."""
        level = self.service_level
        return level.time_per_output_token_s is None and level.time_to_first_token_s is None

    @property
    def longest_tokens(self) -> int:
        """The longest request that must fit."""
        return self.workload.max_model_length or self.context_tokens


def settings(request: PlanRequest) -> tuple[Setting, ...]:
    """One complete problem per pool.

    Raises:
        PlanInputError: for inputs that no plan can be made from.
    """
    _check_load(request)
    if not request.pools:
        raise PlanInputError(
            field="hardware",
            value=None,
            limit="a plan needs at least one pool of GPU nodes",
            remedy="name a GPU and the nodes, or add GPU nodes to the cluster",
        )
    engine = find_engine(request.engine.version)
    model = _with_quantization(request.model, request.engine)
    return tuple(_setting(request, model, pool, engine) for pool in request.pools)


def _setting(request: PlanRequest, model: ModelFacts, pool: Pool, engine: EngineFacts) -> Setting:
    _check_pool(pool)
    options = request.engine
    _check_windows(model, options)
    dtype = _dtype(model, options, pool, engine)
    cache_dtype, cache_bytes = _cache(model, options, DTYPE_BYTES[dtype], pool.gpu)
    longest = request.workload.max_model_length or model.max_position
    tokens, sequences = engine.batch_limits(pool.gpu, longest)
    # The default stops short of the stated load on small GPUs (256 on an A10), and the plan must run what it
    # promises.
    sequences = options.max_num_seqs or max(sequences, request.service_level.concurrency)
    return Setting(
        model=model,
        pool=pool,
        engine=engine,
        workload=request.workload,
        service_level=request.service_level,
        dtype=dtype,
        dtype_bytes=DTYPE_BYTES[dtype],
        cache_dtype=cache_dtype,
        cache_bytes=cache_bytes,
        utilization=options.gpu_memory_utilization or engine.gpu_memory_utilization,
        max_num_seqs=sequences,
        # vLLM refuses fewer tokens than sequences (config/scheduler.py).
        max_num_batched_tokens=options.max_num_batched_tokens or max(tokens, sequences),
        nic_bytes_per_s=node_bytes_per_s(pool),
        executor=options.executor,
        keeps_windows=options.keeps_windows,
    )


def node_bytes_per_s(pool: Pool) -> float:
    """Network rate of a node: what was said, or what such nodes have at least."""
    usual = NVLINK_NODE_BYTES_PER_S if pool.gpu.nvlink_domain > 1 else PCIE_NODE_BYTES_PER_S
    return pool.nic_bytes_per_s or usual


def _with_quantization(model: ModelFacts, options: EngineOptions) -> ModelFacts:
    wanted = options.quantization
    if wanted is None or wanted in {"auto", "none"}:
        return model
    if model.quantization is None:
        return replace(model, quantization=online_quantization(wanted))
    if wanted != model.quantization.method:
        raise PlanInputError(
            field="model.quantization",
            value=wanted,
            limit=f"the checkpoint of {model.name} is stored as {model.quantization.method}",
            remedy="leave the field out, or choose another checkpoint",
        )
    return model


def _dtype(model: ModelFacts, options: EngineOptions, pool: Pool, engine: EngineFacts) -> str:
    wanted = options.dtype if options.dtype not in {None, "auto"} else model.dtype
    if wanted not in DTYPE_BYTES:
        raise PlanInputError(
            field="model.dtype",
            value=wanted,
            limit=f"the engine knows auto, {', '.join(DTYPE_BYTES)}",
            remedy="leave the field out to take the model's own",
        )
    if wanted == "bfloat16" and pool.gpu.capability < 80:
        if options.dtype == "bfloat16":
            raise PlanInputError(
                field="model.dtype",
                value=wanted,
                limit=f"{pool.gpu.name} has compute capability {pool.gpu.capability / 10}, below 8.0",
                remedy="use half",
            )
        # Some models overflow in half precision: the engine then takes single precision by itself.
        return "float32" if model.architecture in engine.half_refused else "float16"
    found = "float16" if wanted == "half" else str(wanted)
    if found == "float16" and model.architecture in engine.half_refused:
        raise PlanInputError(
            field="model.dtype",
            value=wanted,
            limit=f"vLLM {engine.version} refuses half precision for {model.architecture}, which overflows",
            remedy="use bfloat16 or float32",
        )
    return found


def _cache(model: ModelFacts, options: EngineOptions, dtype_bytes: int, gpu: Gpu) -> tuple[str, float]:
    wanted = options.kv_cache_dtype or "auto"
    if wanted not in CACHE_DTYPES:
        raise PlanInputError(
            field="model.kvCacheDtype",
            value=wanted,
            limit=f"the planner knows {', '.join(CACHE_DTYPES)}",
            remedy="leave the field out to take the model's own",
        )
    if wanted.startswith("fp8") and gpu.capability < LEAST_FP8_CACHE:
        # No attention kernel of vLLM reads an 8-bit cache there; FlashInfer's begin with 7.5.
        raise PlanInputError(
            field="model.kvCacheDtype",
            value=wanted,
            limit=f"{gpu.name} has compute capability {gpu.capability / 10}, below {LEAST_FP8_CACHE / 10}",
            remedy="leave the field out",
        )
    if wanted == "auto":
        # "auto" is the model's dtype also for an FP8 checkpoint, unless it carries a scheme for the cache.
        stored = model.quantization.kv_cache_dtype if model.quantization else None
        return (stored, 1.0) if stored else ("auto", float(dtype_bytes))
    return wanted, 1.0 if wanted.startswith("fp8") else 2.0


def _check_load(request: PlanRequest) -> None:
    load, level, options = request.workload, request.service_level, request.engine
    _check_count("workload.inputTokens", load.input_tokens, 1)
    _check_count("workload.outputTokens", load.output_tokens, 1)
    _check_count("slo.concurrency", level.concurrency, 1, 10**6)
    _check_positive("workload.requestsPerSecond", load.requests_per_second)
    _check_positive("slo.timePerOutputToken", level.time_per_output_token_s)
    _check_positive("slo.timeToFirstToken", level.time_to_first_token_s)
    if options.max_num_seqs is not None:
        _check_count("engine.maxNumSeqs", options.max_num_seqs, 1, 10**6)
    if options.max_num_batched_tokens is not None:
        _check_count("engine.maxNumBatchedTokens", options.max_num_batched_tokens, options.max_num_seqs or 1)
    use = options.gpu_memory_utilization
    if use is not None and not 0.05 <= use <= 1.0:
        raise PlanInputError(
            field="engine.gpuMemoryUtilization",
            value=use,
            limit="it is a share from 0.05 to 1.0",
            remedy="leave it out to take the engine's default",
        )
    _check_lengths(request)


def _check_lengths(request: PlanRequest) -> None:
    load = request.workload
    needed = load.input_tokens + load.output_tokens
    if load.max_model_length is not None:
        _check_count("workload.maxModelLength", load.max_model_length, 1)
        if load.max_model_length < needed:
            raise PlanInputError(
                field="workload.maxModelLength",
                value=load.max_model_length,
                limit=f"the typical request alone has {needed} tokens",
                remedy="raise it, or lower inputTokens and outputTokens",
            )
    most = request.model.max_position
    if load.max_model_length is not None and load.max_model_length > most:
        field, value, remedy = "workload.maxModelLength", load.max_model_length, f"use {most} or less"
    elif needed > most:
        # The larger of the two is at fault: 2048 prompt tokens were refused for 16 million of output.
        larger = max(
            ("workload.inputTokens", load.input_tokens),
            ("workload.outputTokens", load.output_tokens),
            key=lambda length: length[1],
        )
        field, value = larger
        remedy = f"use {most - needed + value} or less" if needed - value < most else "lower both"
    else:
        return
    raise PlanInputError(
        field=field,
        value=value,
        limit=f"{request.model.name} takes at most {most} tokens in all",
        remedy=remedy,
    )


def _check_windows(model: ModelFacts, options: EngineOptions) -> None:
    if options.keeps_windows or not any(isinstance(k.mixer, Mamba | LinearAttention) for k in model.kinds):
        return
    raise PlanInputError(
        field="engine.extraArgs",
        value="--disable-hybrid-kv-cache-manager",
        limit=f"{model.name} has recurrent layers, whose states vLLM keeps by that manager only",
        remedy="leave it out",
    )


def _check_pool(pool: Pool) -> None:
    _check_count("hardware.gpusPerNode", pool.gpus_per_node, 1, 1024)
    _check_count("hardware.maxNodes", pool.nodes, 1, 4096)
    _check_positive("network.bandwidth", pool.nic_bytes_per_s)
    _check_positive("hardware.gpuHourPrices", pool.price_per_gpu_hour)


def _check_count(field: str, value: int, least: int, most: int = MAX_LENGTH) -> None:
    if not least <= value <= most:
        raise PlanInputError(
            field=field,
            value=value,
            limit=f"it is a whole number from {least} to {most}",
            remedy="correct the value",
        )


def _check_positive(field: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise PlanInputError(
            field=field,
            value=value,
            limit="it must be above zero",
            remedy="correct the value or leave it out",
        )
