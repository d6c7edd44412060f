"""Plans by hand: the builders are tested against what a plan says, not against what the planner would say."""

from collections.abc import Callable

import pytest

from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build import launcher
from shardwright_operator.build.gang_wish import GangWish
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.pool import LabelTerm, PoolSelection
from shardwright_operator.build.revision import Revision
from shardwright_operator.build.template import pod_inputs_hash, render_templates
from shardwright_planner.plan import Communication, Goal, Plan, Stage

GIB = 1024**3
LLAMA_405B_BYTES = 811_706_548_224
LLAMA_8B_BYTES = 16_060_522_496


def _plan(**changed: object) -> Plan:
    """A plan of TP 1 on one GPU unless told otherwise; sizes that follow from others are filled in."""
    values: dict[str, object] = {
        "feasible": True,
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "data_parallel": 1,
        "expert_parallel": False,
        "nodes": 1,
        "recommended_replicas": 1,
        "gpu": "H100-SXM-80GB",
        "gpu_memory_bytes": 79 * GIB,
        "pool": "declared",
        "rule": "OneGpu",
        "reason": "By hand.",
        "split_cause": "NotSplit",
        "goal": Goal(input_tokens=2048, output_tokens=256, concurrency=32, policy="BestEffort"),
        "max_model_length": 8192,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 8192,
        "gpu_memory_utilization": 0.92,
        "dtype": "bfloat16",
        "kv_cache_dtype": "bfloat16",
        "engine_version": "0.32",
        "weights_bytes": LLAMA_8B_BYTES,
        "stages": (
            Stage(
                layers=32,
                weights_bytes=LLAMA_8B_BYTES,
                kv_cache_bytes=40 * GIB,
                activation_bytes=GIB,
                overhead_bytes=GIB,
                margin_bytes=GIB,
                free_bytes=GIB,
                missing_bytes=0,
            ),
        ),
        "kv_cache_tokens": 327_680,
        "max_concurrency": 40.0,
        "slo_concurrency": 140.0,
        "communication": Communication(
            all_reduces_per_step=0,
            all_reduce_bytes=0,
            all_reduce_sent_bytes=0,
            all_reduce_ms=0,
            sends_per_step=0,
            send_bytes=0,
            send_ms=0,
            all_to_alls_per_step=0,
            all_to_all_bytes=0,
            all_to_all_ms=0,
            pipeline_bubble=0,
            tensor_link="none",
        ),
        "input_hash": "0123456789",
        "planner_version": "1",
        **changed,
    }
    ranks = values["tensor_parallel"] * values["pipeline_parallel"] * values["data_parallel"]  # type: ignore[operator]
    values.setdefault("gpus_per_replica", ranks)
    values.setdefault("gpus_per_node", ranks // values["nodes"])  # type: ignore[operator]
    return Plan.model_validate(values)


def _revision(raw_spec: dict[str, object], plan: Plan, owner: Owner, pool: PoolSelection) -> Revision:
    leader, worker = render_templates(parse_spec(raw_spec), plan, pool, owner)
    return Revision(
        number=1,
        plan=plan,
        pool=pool,
        image="vllm/vllm-openai:v0.32.0",
        default_image="vllm/vllm-openai:v0.32.0",
        engine_version="0.32",
        planner_version="1",
        operator_version="0.1.0",
        plan_inputs="0123456789",
        pod_inputs=pod_inputs_hash(raw_spec, plan),
        members=plan.nodes,
        leader_template=leader,
        worker_template=worker,
        gang=GangWish.of(parse_spec(raw_spec).scheduling),
    )


@pytest.fixture(autouse=True)
def launcher_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for the launcher's sources: a change of theirs must not change every reviewed file."""
    monkeypatch.setattr(launcher, "files", lambda: {"launcher.py": "run()\n"})


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., Plan]:
    return _plan


@pytest.fixture(scope="session")
def make_revision() -> Callable[..., Revision]:
    return _revision


@pytest.fixture(scope="session")
def owner() -> Owner:
    return Owner(name="llama", namespace="serving", uid="7d2f9b1e-3c52-4d0f-9c86-0f6a1f1f0c11")


@pytest.fixture(scope="session")
def pool() -> PoolSelection:
    return PoolSelection(
        name="H100-SXM-80GB",
        terms=(
            LabelTerm(key="nvidia.com/gpu.product", values=("NVIDIA-H100-80GB-HBM3",)),
            LabelTerm(key="cloud.google.com/gke-accelerator", values=("nvidia-h100-80gb",)),
        ),
    )


@pytest.fixture(scope="session")
def two_nodes(make_plan: Callable[..., Plan]) -> Plan:
    """405B over two nodes of eight GPUs: TP 8 inside, PP 2 across."""
    return make_plan(
        model="meta-llama/Llama-3.1-405B-Instruct",
        tensor_parallel=8,
        pipeline_parallel=2,
        nodes=2,
        weights_bytes=LLAMA_405B_BYTES,
    )
