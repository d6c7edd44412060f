"""Which edits change pods, and that rendering follows from spec and plan alone."""

from collections.abc import Callable
from typing import Any

import pytest

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.template import pod_inputs_hash, render_templates
from shardwright_planner.plan import Plan

NAME = "meta-llama/Llama-3.1-8B-Instruct"
BASE: dict[str, Any] = {"replicas": 1, "model": {"name": NAME}}


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"replicas": 5}, id="replicas"),
        pytest.param({"slo": {"concurrency": 64}}, id="service level"),
        pytest.param({"workload": {"inputTokens": 100}}, id="workload"),
        pytest.param({"hardware": {"gpu": "H100-SXM-80GB"}}, id="hardware"),
        pytest.param({"rollout": {"paused": True}}, id="rollout"),
        pytest.param({"recovery": {"maxRestarts": 2}}, id="recovery"),
        pytest.param({"scheduling": {"admission": "Create"}}, id="admission"),
        pytest.param({"network": {"clients": [{"podSelector": {}}]}}, id="clients of the API"),
        pytest.param({"network": {"nodeBandwidthGbps": 400}}, id="bandwidth for predictions"),
        pytest.param(
            {"model": {"name": NAME, "config": {"hidden_size": 1}}}, id="config, which is planned with"
        ),
        pytest.param({"engine": {"env": [], "extraArgs": None}}, id="empty sections"),
        pytest.param({"engine": {"maxNumSeqs": 64}}, id="a pin of what was planned anyway"),
    ],
)
def test_edit_without_effect_on_pods(edit: dict[str, Any], make_plan: Callable[..., Plan]) -> None:
    assert pod_inputs_hash({**BASE, **edit}, make_plan()) == pod_inputs_hash(BASE, make_plan())


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"model": {"name": NAME, "servedName": "chat"}}, id="served name"),
        pytest.param({"engine": {"env": [{"name": "A", "value": "1"}]}}, id="environment"),
        pytest.param({"engine": {"image": "vllm/vllm-openai:v0.33.0"}}, id="image"),
        pytest.param({"network": {"profile": "tcp"}}, id="network profile"),
        pytest.param({"storage": {"sharedMemory": "4Gi"}}, id="shared memory"),
        pytest.param({"scheduling": {"nodeSelector": {"zone": "a"}}}, id="placement"),
        pytest.param({"recovery": {"startupTimeout": "1h"}}, id="start-up time"),
    ],
)
def test_edit_that_changes_pods(edit: dict[str, Any], make_plan: Callable[..., Plan]) -> None:
    assert pod_inputs_hash({**BASE, **edit}, make_plan()) != pod_inputs_hash(BASE, make_plan())


def test_plan_counts_by_what_the_engine_gets(make_plan: Callable[..., Plan]) -> None:
    plain = pod_inputs_hash(BASE, make_plan())
    assert pod_inputs_hash(BASE, make_plan(reason="Said otherwise.", max_concurrency=1.0)) == plain
    assert pod_inputs_hash(BASE, make_plan(max_num_seqs=65)) != plain


def test_rendering_is_repeatable(owner: Owner, pool: PoolSelection, two_nodes: Plan) -> None:
    first, second = (render_templates(parse_spec(BASE), two_nodes, pool, owner) for _ in range(2))
    assert str(first) == str(second)


def test_user_left_to_the_cluster(owner: Owner, make_plan: Callable[..., Plan]) -> None:
    leader, _ = render_templates(parse_spec(BASE), make_plan(), PoolSelection(), owner, user_id=None)
    assert leader["spec"]["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_all_that_is_written_by_default_lies_on_volumes_that_any_user_may_write_to(
    owner: Owner, two_nodes: Plan
) -> None:
    """An emptyDir has mode 0777; a folder of the image, or of the root of the file system, is root's."""
    templates = render_templates(parse_spec(BASE), two_nodes, PoolSelection(), owner, user_id=None)
    for template in filter(None, templates):
        (engine,) = template["spec"]["containers"]
        writable = {v["name"] for v in template["spec"]["volumes"] if "emptyDir" in v}
        mounts = [f"{m['mountPath']}/" for m in engine["volumeMounts"] if m["name"] in writable]
        folders = [e["value"] for e in engine["env"] if e.get("value", "").startswith("/")]
        assert {"HOME", "TMPDIR", "VLLM_CACHE_ROOT"} <= {e["name"] for e in engine["env"]}
        assert [f for f in folders if not f"{f}/".startswith(tuple(mounts))] == []


def test_unknown_engine_is_refused(owner: Owner, pool: PoolSelection, make_plan: Callable[..., Plan]) -> None:
    spec = parse_spec({**BASE, "engine": {"image": "registry.example:5000/vllm:nightly"}})
    with pytest.raises(SpecError, match=r"0\.32"):
        render_templates(spec, make_plan(), pool, owner)


@pytest.mark.parametrize(
    ("executor", "sizes", "ports"),
    [
        pytest.param(
            "ray", {"tensor_parallel": 8, "pipeline_parallel": 2}, [8100, 20196, 20195], id="Ray's head"
        ),
        pytest.param("mp", {"data_parallel": 16}, [8100, 20193, 20194, 20195], id="data-parallel handshake"),
    ],
)
def test_fixed_ports_are_declared_on_the_host(
    executor: str,
    sizes: dict[str, object],
    ports: list[int],
    owner: Owner,
    make_plan: Callable[..., Plan],
) -> None:
    spec = parse_spec(
        {
            **BASE,
            "engine": {"executor": executor, "port": 8100},
            "network": {"hostNetwork": True, "socketInterface": "eth1"},
        }
    )
    plan = make_plan(nodes=2, **sizes)
    leader, worker = render_templates(spec, plan, PoolSelection(), owner, port_block=3)
    assert worker is not None
    assert [port["hostPort"] for port in leader["spec"]["containers"][0]["ports"]] == ports
    assert "ports" not in worker["spec"]["containers"][0]
    for template in (leader, worker):
        text = str(template["spec"])
        assert [number for number in ("29500", "29550", "29600", "6379") if number in text] == []
        assert template["metadata"]["annotations"]["shardwright.dev/port-block"] == "3"


def test_side_channels_are_declared_on_every_rank(owner: Owner, make_plan: Callable[..., Plan]) -> None:
    """Each rank has its handshake on the node's network, and two groups on a node must not share a port."""
    arguments = ["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}']
    spec = parse_spec({**BASE, "engine": {"extraArgs": arguments}, "network": {"hostNetwork": True}})
    plan = make_plan(nodes=2, tensor_parallel=2, data_parallel=2)
    for template in render_templates(spec, plan, PoolSelection(), owner, port_block=1):
        assert template is not None
        (engine,) = template["spec"]["containers"]
        ports = {
            port["name"]: port["hostPort"] for port in engine["ports"] if port["name"].startswith("nixl")
        }
        assert ports == {"nixl-0": 20080, "nixl-1": 20081, "nixl-2": 20082, "nixl-3": 20083}
        (first,) = [e["value"] for e in engine["env"] if e["name"] == "VLLM_NIXL_SIDE_CHANNEL_PORT"]
        assert first == "20080"


def test_more_side_channels_than_a_block_has(owner: Owner, make_plan: Callable[..., Plan]) -> None:
    arguments = ["--kv-transfer-config", "{}"]
    spec = parse_spec({**BASE, "engine": {"extraArgs": arguments}, "network": {"hostNetwork": True}})
    plan = make_plan(nodes=8, tensor_parallel=1, data_parallel=64)
    with pytest.raises(SpecError, match=r"64 ranks pass KV caches on .* room for 48"):
        render_templates(spec, plan, PoolSelection(), owner)


@pytest.mark.parametrize("port", [20000, 29983, 32768, 60999])
def test_a_host_port_that_others_may_take_is_refused(
    port: int, owner: Owner, make_plan: Callable[..., Plan]
) -> None:
    spec = parse_spec({**BASE, "engine": {"port": port}, "network": {"hostNetwork": True}})
    with pytest.raises(SpecError) as caught:
        render_templates(spec, make_plan(), PoolSelection(), owner)
    assert caught.value.field == "spec.engine.port"
    in_a_pod = parse_spec({**BASE, "engine": {"port": port}})
    leader, _ = render_templates(in_a_pod, make_plan(), PoolSelection(), owner)
    assert leader["spec"]["containers"][0]["ports"][0]["containerPort"] == port


def test_pull_policy_of_every_container(owner: Owner, two_nodes: Plan) -> None:
    spec = parse_spec({**BASE, "engine": {"executor": "ray", "imagePullPolicy": "Always"}})
    leader, _ = render_templates(spec, two_nodes, PoolSelection(), owner)
    pod = leader["spec"]
    assert [c["imagePullPolicy"] for c in pod["initContainers"] + pod["containers"]] == ["Always", "Always"]


def test_scheduler_of_the_users_choice(owner: Owner, make_plan: Callable[..., Plan]) -> None:
    spec = parse_spec({**BASE, "scheduling": {"schedulerName": "volcano"}})
    leader, _ = render_templates(spec, make_plan(), PoolSelection(), owner)
    assert leader["spec"]["schedulerName"] == "volcano"
