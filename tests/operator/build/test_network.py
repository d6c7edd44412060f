"""Network profiles: grammars, refusals and warnings. Their full rendering is in the golden files."""

from collections.abc import Callable

import pytest

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import parse_spec
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
    assert found == {"NCCL_SOCKET_IFNAME": nccl, "GLOO_SOCKET_IFNAME": gloo}


@pytest.mark.parametrize(
    "network",
    [pytest.param({}, id="pod network"), pytest.param({"hostNetwork": True}, id="host network")],
)
def test_interface_is_found_in_the_pod(network: dict[str, object], two_nodes: Plan) -> None:
    found = rendered(network, two_nodes)
    assert (found.resolve_interface, found.environment) == (True, {})


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
    assert found == {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"}


def test_host_network_without_launcher_needs_a_name(two_nodes: Plan) -> None:
    with pytest.raises(SpecError, match=r"or leave spec\.engine\.launcher on") as caught:
        rendered({"hostNetwork": True}, two_nodes, launcher=False)
    assert caught.value.field == "spec.network.socketInterface"


def test_excluding_is_for_nccl_while_gloo_has_a_name(two_nodes: Plan) -> None:
    env = [{"name": "GLOO_SOCKET_IFNAME", "value": "eth1"}]
    found = rendered({"socketInterface": "^docker0"}, two_nodes, env).environment
    assert found == {"NCCL_SOCKET_IFNAME": "^docker0"}


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
def test_refused(
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
    assert (
        rendered({"profile": "roce", "rdmaResource": "rdma/a"}, make_plan(tensor_parallel=8))
        == GroupNetwork()
    )


def test_warnings_of_rights_that_do_not_hold(two_nodes: Plan) -> None:
    network = {"profile": "roce", "rdmaResource": "rdma/a", "hostNetwork": True, "socketInterface": "eth1"}
    first, second = rendered(network, two_nodes).warnings
    assert "NetworkPolicy does not hold" in first
    assert "memlock" in second
