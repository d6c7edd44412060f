"""The engine's command line: what each field adds, and what is refused instead of rendered wrongly."""

from collections.abc import Callable

import pytest

from shardwright_operator.api.constants import Role
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.command import engine_command
from shardwright_operator.build.ports import ports_of
from shardwright_planner.plan import Plan

LLAMA = {"name": "meta-llama/Llama-3.1-8B-Instruct"}
CLAIM = {"persistentVolumeClaim": {"claimName": "weights"}}


def words(raw: dict[str, object], plan: Plan, role: Role = Role.LEADER) -> list[str]:
    spec = parse_spec(raw)
    return engine_command(spec, plan, role, startup_s=600, ports=ports_of(spec, plan))


@pytest.mark.parametrize(
    ("model", "sizes", "expected"),
    [
        pytest.param({"revision": "abc123"}, {}, ["--revision", "abc123"], id="pinned revision"),
        pytest.param({"revision": "refs/pr/3"}, {}, ["--revision", "refs/pr/3"], id="a reference"),
        pytest.param(
            {"quantization": "fp8"}, {}, ["--quantization", "fp8"], id="engine's word for quantization"
        ),
        pytest.param(
            {"kvCacheDtype": "bfloat16"}, {}, ["--kv-cache-dtype", "bfloat16"], id="asked 16-bit cache"
        ),
        pytest.param(
            {}, {"kv_cache_dtype": "fp8_e4m3"}, ["--kv-cache-dtype", "fp8_e4m3"], id="planned FP8 cache"
        ),
        pytest.param({"trustRemoteCode": True}, {}, ["--trust-remote-code"], id="remote code when asked"),
        pytest.param({"servedName": "chat"}, {}, ["--served-model-name", "chat"], id="served name"),
        pytest.param(
            {}, {"gpu_memory_utilization": 0.9}, ["--gpu-memory-utilization", "0.9"], id="plain number"
        ),
        pytest.param({}, {"dtype": "float16"}, ["--dtype", "float16"], id="planned dtype"),
    ],
)
def test_field_reaches_the_command_line(
    model: dict[str, object],
    sizes: dict[str, object],
    expected: list[str],
    make_plan: Callable[..., Plan],
) -> None:
    found = words({"model": {**LLAMA, **model}}, make_plan(**sizes))
    start = found.index(expected[0])
    assert found[start : start + len(expected)] == expected


def test_what_is_merely_planned_stays_out(make_plan: Callable[..., Plan]) -> None:
    """vLLM refuses 16-bit cache names for most models, and --quantization against the checkpoint's own."""
    found = words({"model": LLAMA}, make_plan(quantization="compressed-tensors", dtype="auto"))
    assert not {"--kv-cache-dtype", "--quantization", "--dtype", "--trust-remote-code", "--nnodes"} & set(
        found
    )


def test_ranks_share_all_words_but_headless(two_nodes: Plan) -> None:
    raw: dict[str, object] = {"model": LLAMA, "engine": {"extraArgs": ["--seed", "1"]}}
    leader, worker = words(raw, two_nodes), words(raw, two_nodes, Role.WORKER)
    assert worker == [*leader[:-2], "--headless", "--seed", "1"]


def test_data_parallel_ranks_on_one_node_need_no_port(make_plan: Callable[..., Plan]) -> None:
    found = words({"model": LLAMA}, make_plan(data_parallel=4, expert_parallel=True))
    assert found[found.index("--data-parallel-size") :][:3] == [
        "--data-parallel-size",
        "4",
        "--enable-expert-parallel",
    ]


def test_ray_in_one_pod_is_plain_vllm(make_plan: Callable[..., Plan]) -> None:
    found = words({"model": LLAMA, "engine": {"executor": "ray"}}, make_plan(tensor_parallel=4))
    assert found[:2] == ["vllm", "serve"]
    assert "--distributed-executor-backend" not in found


@pytest.mark.parametrize(
    ("raw", "sizes", "message"),
    [
        pytest.param(
            {"model": LLAMA},
            {"tensor_parallel": 8, "nodes": 2, "gpus_per_node": 8},
            "spec.parallelism is 'TP 8 x PP 1 x DP 1', but its 8 ranks cannot be laid evenly over 2 pods of "
            "8 GPUs; pin sizes whose product is the number of GPUs.",
            id="more GPUs than ranks",
        ),
        pytest.param(
            {"model": LLAMA},
            {"tensor_parallel": 2, "data_parallel": 3, "nodes": 2, "gpus_per_node": 3},
            "spec.parallelism is 'TP 2 x PP 1 x DP 3', but its 6 ranks cannot be laid evenly over 2 pods of "
            "3 GPUs; pin sizes whose product is the number of GPUs.",
            id="a data-parallel rank torn over two pods",
        ),
        pytest.param(
            {"model": LLAMA, "engine": {"executor": "ray"}},
            {"data_parallel": 16, "nodes": 2},
            "spec.engine.executor is 'ray', but the plan has 16 data-parallel ranks, which need executor mp "
            "over nodes; leave executor out, or pin spec.parallelism.data to 1.",
            id="Ray with data parallelism over nodes",
        ),
        pytest.param(
            {"model": {**LLAMA, "revision": "main", "source": CLAIM}},
            {},
            "spec.model.revision is 'main', but a claim holds the files of one revision; leave it out, or "
            "let source be huggingFace.",
            id="revision of a claim",
        ),
    ],
)
def test_refused(
    raw: dict[str, object], sizes: dict[str, object], message: str, make_plan: Callable[..., Plan]
) -> None:
    with pytest.raises(SpecError) as refusal:
        words(raw, make_plan(**sizes))
    assert str(refusal.value) == message


def test_path_on_the_claim(make_plan: Callable[..., Plan]) -> None:
    found = words({"model": {"name": "/llama/8b/", "source": CLAIM}}, make_plan())
    assert found[2] == "/models/llama/8b"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_address_of_the_api(make_plan: Callable[..., Plan], host: str) -> None:
    """An engine on 0.0.0.0 cannot be reached by the IPv6 address that a kubelet probes."""
    spec, plan = parse_spec({"model": LLAMA}), make_plan()
    ports = ports_of(spec, plan)
    found = engine_command(spec, plan, Role.LEADER, startup_s=600, ports=ports, api_host=host)
    assert found[found.index("--host") + 1] == host
