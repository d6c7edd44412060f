"""The engine's command line as plain argv, which a person can copy out of the pod and run.

All ranks get the same words, except that workers add ``--headless``; each rank's number comes through
``$(NODE_RANK)``, which Kubernetes expands. ``vllm serve`` is given in full, because an image whose entry
point is the API server's module ignores ``--headless`` and would start a server on every rank.

Data-parallel ranks are not rendered: with ``--nnodes`` vLLM infers them and their local number from the
node rank, and takes the master's address for theirs (vLLM 0.32 ``engine/arg_utils.py``).
"""

from shardwright_operator.api.constants import Role
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.model_files import (
    MODEL_FOLDER,
    model_argument,
    revision_words,
    template_words,
)
from shardwright_operator.build.ports import Ports
from shardwright_operator.build.resources import RAY_OBJECT_STORE_BYTES, uses_ray
from shardwright_planner.engine import find_engine
from shardwright_planner.plan import Plan

__all__ = ["MODEL_FOLDER", "engine_command"]

DRAIN_S = 30
"""How long a leader that is told to stop finishes running requests (``--shutdown-timeout``, vLLM 0.18+)."""
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - inside the pod; the NetworkPolicy decides who gets there
EVERY_ADDRESS_OF_IPV6 = "::"
"""Takes IPv4 as well. Not the default: where a kernel has no IPv6 it cannot be bound."""
LEADER_ADDRESS = "$(LEADER_ADDRESS)"
NODE_RANK = "$(NODE_RANK)"


def engine_command(
    spec: ModelDeploymentSpec,
    plan: Plan,
    role: Role,
    *,
    startup_s: int,
    ports: Ports,
    api_host: str = EVERY_ADDRESS,
) -> list[str]:
    """The words of one rank's command, the program first.

    Raises:
        SpecError: the plan's sizes cannot be laid out over the pods, or Ray cannot run them.
    """
    _check_layout(spec, plan)
    serve = ["vllm", "serve", model_argument(spec)]
    words = [*serve, *_sizes(plan, ports), *_model(spec, plan), *_limits(plan), *_server(api_host, ports)]
    extra = list(spec.engine.extra_args or ())
    if plan.nodes == 1:
        return [*words, *extra]
    words += ["--distributed-timeout-seconds", str(startup_s)]
    if uses_ray(spec, plan):
        return [*_symmetric_run(plan, ports), *words, "--distributed-executor-backend", "ray", *extra]
    headless = [] if role is Role.LEADER else ["--headless"]
    return [*words, *_ranks(plan, ports), *headless, *extra]


def _check_layout(spec: ModelDeploymentSpec, plan: Plan) -> None:
    engine = plan.tensor_parallel * plan.pipeline_parallel
    ranks, per_pod = engine * plan.data_parallel, plan.gpus_per_node
    if ranks != plan.nodes * per_pod or (per_pod % engine and engine % per_pod):
        raise SpecError(
            field="spec.parallelism",
            value=f"TP {plan.tensor_parallel} x PP {plan.pipeline_parallel} x DP {plan.data_parallel}",
            limit=f"its {ranks} ranks cannot be laid evenly over {plan.nodes} pods of {per_pod} GPUs",
            remedy="pin sizes whose product is the number of GPUs",
        )
    if uses_ray(spec, plan) and plan.data_parallel > 1:
        raise SpecError(
            field="spec.engine.executor",
            value="ray",
            limit=f"the plan has {plan.data_parallel} data-parallel ranks, which need executor mp over nodes",
            remedy="leave executor out, or pin spec.parallelism.data to 1",
        )


def _sizes(plan: Plan, ports: Ports) -> list[str]:
    words = ["--tensor-parallel-size", str(plan.tensor_parallel)]
    words += ["--pipeline-parallel-size", str(plan.pipeline_parallel)]
    if plan.data_parallel > 1:
        words += ["--data-parallel-size", str(plan.data_parallel)]
        if plan.nodes > 1:
            words += ["--data-parallel-rpc-port", str(ports.data_parallel)]
    if plan.expert_parallel:
        words.append("--enable-expert-parallel")
    return words


def _ranks(plan: Plan, ports: Ports) -> list[str]:
    return [
        *("--nnodes", str(plan.nodes)),
        *("--node-rank", NODE_RANK),
        *("--master-addr", LEADER_ADDRESS),
        *("--master-port", str(ports.master)),
    ]


def _symmetric_run(plan: Plan, ports: Ports) -> list[str]:
    # The same words on every node: Ray sees by the address which of them is the head, starts the others,
    # waits for all, and runs the engine on the head only (Ray 2.58 ``scripts/symmetric_run.py``).
    return [
        *("ray", "symmetric-run"),
        *("--address", f"{LEADER_ADDRESS}:{ports.ray}"),
        *("--min-nodes", str(plan.nodes)),
        *("--num-gpus", str(plan.gpus_per_node)),
        *("--object-store-memory", str(RAY_OBJECT_STORE_BYTES)),
        "--disable-usage-stats",
        "--",
    ]


def _model(spec: ModelDeploymentSpec, plan: Plan) -> list[str]:
    model = spec.model
    words = ["--served-model-name", model.api_name, *revision_words(spec)]
    if plan.dtype != "auto":
        words += ["--dtype", plan.dtype]
    # A checkpoint that is quantized already says so itself, in words that vLLM checks against this flag. It
    # has no "auto" or "none", which are the planner's words for leaving it at that.
    if model.quantization not in {None, "auto", "none"}:
        words += ["--quantization", str(model.quantization)]
    if plan.quantization in find_engine(plan.engine_version).deprecated_quantizations:
        words.append("--allow-deprecated-quantization")
    # vLLM takes 16-bit names only for models whose own default is FP8 (vLLM 0.32 ``vllm serve --help``), so
    # that they are passed on when the user asks for them and left out when they are merely what was planned.
    if model.kv_cache_dtype is not None or plan.kv_cache_dtype.startswith("fp8"):
        words += ["--kv-cache-dtype", str(model.kv_cache_dtype or plan.kv_cache_dtype)]
    if model.trust_remote_code:
        words.append("--trust-remote-code")
    return [*words, *template_words(spec)]


def _limits(plan: Plan) -> list[str]:
    return [
        *("--max-model-len", str(plan.max_model_length)),
        *("--max-num-seqs", str(plan.max_num_seqs)),
        *("--max-num-batched-tokens", str(plan.max_num_batched_tokens)),
        *("--gpu-memory-utilization", f"{plan.gpu_memory_utilization:g}"),
    ]


def _server(host: str, ports: Ports) -> list[str]:
    return [
        *("--host", host),
        *("--port", str(ports.api)),
        *("--shutdown-timeout", str(DRAIN_S)),
    ]
