"""Network profiles: grammars, refusals and warnings. Their full rendering is in the golden files."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.nccl_variables import DOCUMENTED
from shardwright_operator.build.network import GroupNetwork, group_network
from shardwright_planner.plan import Plan

LLAMA = {"name": "meta-llama/Llama-3.1-8B-Instruct"}


def rendered(
    network: dict[str, object],
    plan: Plan,
    env: list[dict[str, str]] | None = None,
    *,
    launcher: bool = True,
) -> GroupNetwork:
    engine = {"launcher": launcher, "env": env or []}
    return group_network(parse_spec({"model": LLAMA, "network": network, "engine": engine}), plan)


def without_proxy(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.lower() != "no_proxy"}


@pytest.mark.parametrize(
    ("interface", "nccl", "gloo"),
    [
        pytest.param("eth0", "=eth0", "eth0", id="one name is exact for NCCL too"),
        pytest.param("=eth0", "=eth0", "eth0", id="NCCL's sign for an exact name"),
        pytest.param("eth0,eth1", "=eth0,eth1", "eth0", id="Gloo takes the first of a list"),
    ],
)
def test_each_library_gets_its_own_grammar(interface: str, nccl: str, gloo: str, two_nodes: Plan) -> None:
    found = rendered({"socketInterface": interface}, two_nodes).environment
    assert without_proxy(found) == {"NCCL_SOCKET_IFNAME": nccl, "GLOO_SOCKET_IFNAME": gloo}


@pytest.mark.parametrize(
    "network",
    [pytest.param({}, id="pod network"), pytest.param({"hostNetwork": True}, id="host network")],
)
def test_interface_is_found_in_the_pod(network: dict[str, object], two_nodes: Plan) -> None:
    found = rendered(network, two_nodes)
    assert (found.resolve_interface, without_proxy(found.environment)) == (True, {})


@pytest.mark.parametrize(
    ("network", "launcher"),
    [
        pytest.param({"socketInterface": "eth1"}, True, id="given"),
        pytest.param({"profile": "custom"}, True, id="the user's own"),
        pytest.param({}, False, id="nobody there to find it"),
    ],
)
def test_interface_is_not_looked_for(network: dict[str, object], *, launcher: bool, two_nodes: Plan) -> None:
    assert not rendered(network, two_nodes, launcher=launcher).resolve_interface


def test_without_launcher_the_usual_name_of_a_pods_interface(two_nodes: Plan) -> None:
    found = rendered({}, two_nodes, launcher=False).environment
    assert without_proxy(found) == {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"}


def test_host_network_without_launcher_needs_a_name(two_nodes: Plan) -> None:
    with pytest.raises(SpecError, match=r"or leave spec\.engine\.launcher on") as caught:
        rendered({"hostNetwork": True}, two_nodes, launcher=False)
    assert caught.value.field == "spec.network.socketInterface"


def test_excluding_is_for_nccl_while_gloo_has_a_name(two_nodes: Plan) -> None:
    env = [{"name": "GLOO_SOCKET_IFNAME", "value": "eth1"}]
    found = rendered({"socketInterface": "^docker0"}, two_nodes, env).environment
    assert without_proxy(found) == {"NCCL_SOCKET_IFNAME": "^docker0"}


def test_host_network_with_both_interfaces_in_the_users_environment(two_nodes: Plan) -> None:
    env = [{"name": f"{library}_SOCKET_IFNAME", "value": "bond0"} for library in ("NCCL", "GLOO")]
    assert rendered({"hostNetwork": True}, two_nodes, env).host


@pytest.mark.parametrize(
    ("network", "env", "field", "value"),
    [
        pytest.param({"profile": "roce"}, None, "spec.network.rdmaResource", None, id="RoCE without devices"),
        pytest.param(
            {"profile": "tcp", "rdmaResource": "rdma/a"},
            None,
            "spec.network.rdmaResource",
            "rdma/a",
            id="TCP with RDMA",
        ),
        pytest.param(
            {"socketInterface": "^docker0"},
            None,
            "spec.network.socketInterface",
            "^docker0",
            id="Gloo cannot exclude",
        ),
        pytest.param({"socketInterface": "lo"}, None, "spec.network.socketInterface", "lo", id="loopback"),
        pytest.param(
            {"socketInterface": "an-interface-name-too-long"},
            None,
            "spec.network.socketInterface",
            "an-interface-name-too-long",
            id="longer than Linux allows",
        ),
        pytest.param(
            {},
            [{"name": "GLOO_SOCKET_IFNAME", "value": "=eth0"}],
            "spec.engine.env",
            "=eth0",
            id="NCCL's grammar given to Gloo",
        ),
    ],
)
def test_a_network_that_cannot_work_is_refused_by_its_field(
    network: dict[str, object],
    env: list[dict[str, str]] | None,
    field: str,
    value: object,
    two_nodes: Plan,
) -> None:
    with pytest.raises(SpecError) as refusal:
        rendered(network, two_nodes, env)
    assert (refusal.value.field, refusal.value.value) == (field, value)


def test_a_pod_without_peers_needs_no_network(make_plan: Callable[..., Plan]) -> None:
    found = rendered({"profile": "roce", "rdmaResource": "rdma/a"}, make_plan(tensor_parallel=8))
    assert without_proxy(found.environment) == {}
    assert replace(found, environment={}, reasons={}) == GroupNetwork()


def test_warnings_of_rights_that_do_not_hold(two_nodes: Plan) -> None:
    network = {"profile": "roce", "rdmaResource": "rdma/a", "hostNetwork": True, "socketInterface": "eth1"}
    first, second = rendered(network, two_nodes).warnings
    assert "NetworkPolicy does not hold" in first
    assert "memlock" in second


TAKEN_BY_NCCL = {"NCCL_NET": {"IB", "Socket"}, "NCCL_SOCKET_FAMILY": {"AF_INET", "AF_INET6"}}
"""Values that the user guide lists, of variables that we set; built-in networks on Linux."""

EVERY_PROFILE = [
    pytest.param(None, {}, id="none"),
    pytest.param("auto", {}, id="auto"),
    pytest.param("tcp", {}, id="tcp"),
    pytest.param("roce", {"rdmaResource": "rdma/a"}, id="roce"),
    pytest.param("infiniband", {"rdmaResource": "rdma/a"}, id="infiniband"),
    pytest.param("efa", {}, id="efa"),
    pytest.param("custom", {}, id="custom"),
]


@pytest.mark.parametrize("launcher", [True, False], ids=["launcher", "bare"])
@pytest.mark.parametrize(("profile", "extra"), EVERY_PROFILE)
def test_every_variable_is_documented_and_has_its_reason(
    profile: str | None, extra: dict[str, object], *, launcher: bool, two_nodes: Plan
) -> None:
    """NCCL does not run without GPUs: its names and values can only be held against its documentation."""
    network = {**({"profile": profile} if profile else {}), **extra}
    found = rendered(network, two_nodes, launcher=launcher)

    assert found.reasons.keys() == found.environment.keys()
    for name, value in found.environment.items():
        if name.startswith("NCCL_"):
            assert name in DOCUMENTED
            assert value in TAKEN_BY_NCCL.get(name, {value})


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(
    ("env", "set_here"),
    [
        pytest.param([], True, id="nobody says anything"),
        pytest.param([{"name": "NO_PROXY", "value": "example.com"}], False, id="the user's own"),
        pytest.param([{"name": "no_proxy", "value": ""}], False, id="in small letters"),
    ],
)
def test_what_is_in_the_cluster_needs_no_proxy(
    env: list[dict[str, str]], nodes: int, *, set_here: bool, two_nodes: Plan, make_plan: Callable[..., Plan]
) -> None:
    found = rendered({}, two_nodes if nodes == 2 else make_plan(), env).environment
    assert ("NO_PROXY" in found, "no_proxy" in found) == (set_here, set_here)
    assert not set_here or ".svc" in found["NO_PROXY"].split(",")


def test_typing_error_in_a_name_that_nobody_would_report(two_nodes: Plan) -> None:
    env = [{"name": "NCCL_IB_HCAS", "value": "mlx5"}, {"name": "NCCL_DEBUG", "value": "INFO"}]
    assert rendered({}, two_nodes, env).warnings == (
        (
            "NCCL_IB_HCAS in spec.engine.env is not documented by NCCL, which ignores unknown names; "
            "did you mean NCCL_IB_HCA?"
        ),
    )


def test_efa_needs_a_plugin_in_the_image(two_nodes: Plan) -> None:
    assert any("aws-ofi-nccl" in warning for warning in rendered({"profile": "efa"}, two_nodes).warnings)


PASSES_CACHES_ON = {"extraArgs": ["--kv-transfer-config", '{"kv_connector": "NixlConnector"}']}


def of_a_prefiller(network: dict[str, object], plan: Plan) -> GroupNetwork:
    return group_network(parse_spec({"model": LLAMA, "network": network, "engine": PASSES_CACHES_ON}), plan)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(
    ("network", "transports", "devices"),
    [
        pytest.param(
            {"profile": "tcp"}, "tcp,cuda_copy,cuda_ipc,sm,self", {}, id="no RDMA: a way that is there"
        ),
        pytest.param(
            {"profile": "roce", "rdmaResource": "rdma/a"}, None, {"rdma/a": 1}, id="RDMA: in every pod"
        ),
        pytest.param({"profile": "custom"}, None, {}, id="the user's own"),
    ],
)
def test_caches_are_passed_on_by_a_way_that_the_pods_have(
    network: dict[str, object],
    transports: str | None,
    devices: dict[str, int],
    nodes: int,
    two_nodes: Plan,
    make_plan: Callable[..., Plan],
) -> None:
    found = of_a_prefiller(network, two_nodes if nodes == 2 else make_plan())
    assert (found.environment.get("UCX_TLS"), found.devices) == (transports, devices)
    assert found.reasons.keys() == found.environment.keys()


def test_caches_cannot_be_passed_on_by_rdma_without_devices(make_plan: Callable[..., Plan]) -> None:
    with pytest.raises(SpecError, match="needs RDMA devices in every pod"):
        of_a_prefiller({"profile": "infiniband"}, make_plan())


def test_caches_that_find_their_own_way_are_warned_of(make_plan: Callable[..., Plan]) -> None:
    assert [w.partition(",")[0] for w in of_a_prefiller({}, make_plan()).warnings] == [
        "UCX finds its own way to pass KV caches on"
    ]
    assert of_a_prefiller({"rdmaResource": "rdma/a"}, make_plan()).environment.get("UCX_TLS") is None


def test_one_pod_that_passes_caches_on_has_no_leader_to_reach(make_plan: Callable[..., Plan]) -> None:
    found = of_a_prefiller({"profile": "tcp"}, make_plan())
    assert (found.resolve_interface, without_proxy(found.environment).keys()) == (False, {"UCX_TLS"})
