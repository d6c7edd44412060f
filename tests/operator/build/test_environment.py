"""The environment: precedence, and which secrets go to which rank."""

from collections.abc import Callable

import pytest

from shardwright_operator.api.constants import Role
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.environment import environment
from shardwright_operator.build.owner import Manifest, Owner
from shardwright_operator.build.ports import ports_of
from shardwright_planner.plan import Plan

LLAMA = {"name": "meta-llama/Llama-3.1-8B-Instruct"}


def entries(raw: dict[str, object], plan: Plan, owner: Owner, role: Role = Role.LEADER) -> list[Manifest]:
    spec = parse_spec(raw)
    network, ports = {"NCCL_NET": "IB"}, ports_of(spec, plan)
    return environment(spec, plan, owner, role, network=network, startup_s=600, ports=ports)


def test_users_value_wins_in_our_place(owner: Owner, make_plan: Callable[..., Plan]) -> None:
    own = [
        {"name": "NCCL_NET", "value": "Socket"},
        {"name": "MINE", "value": "$(HOME)/mine"},
        {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "levels", "key": "vllm"}}},
    ]
    plain = entries({"model": LLAMA}, make_plan(), owner)
    found = entries({"model": LLAMA, "engine": {"env": own}}, make_plan(), owner)
    assert [own[0] if entry["name"] == "NCCL_NET" else entry for entry in plain] + own[1:] == found


def test_names_are_unique_and_what_is_referred_to_comes_first(owner: Owner, two_nodes: Plan) -> None:
    found = [
        entry["name"] for entry in entries({"model": LLAMA, "engine": {"executor": "ray"}}, two_nodes, owner)
    ]
    assert len(set(found)) == len(found)
    assert found.index("GROUP_INDEX") < found.index("LEADER_ADDRESS") < found.index("RAY_ADDRESS")


@pytest.mark.parametrize("role", Role)
def test_token_on_all_ranks_and_api_key_on_the_leader(role: Role, owner: Owner, two_nodes: Plan) -> None:
    raw: dict[str, object] = {
        "model": {
            **LLAMA,
            "source": {"huggingFace": {"tokenSecretRef": {"name": "hub"}, "endpoint": "https://hub.example"}},
        },
        "engine": {"apiKeySecretRef": {"name": "key", "key": "k"}},
    }
    found = {entry["name"]: entry for entry in entries(raw, two_nodes, owner, role)}
    assert found["HF_ENDPOINT"]["value"] == "https://hub.example"
    assert found["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert ("VLLM_API_KEY" in found) is (role is Role.LEADER)


def test_nothing_is_written_outside_the_volumes(owner: Owner, make_plan: Callable[..., Plan]) -> None:
    found = {entry["name"]: entry.get("value", "") for entry in entries({"model": LLAMA}, make_plan(), owner)}
    assert found.pop("TMPDIR") == "/tmp"  # noqa: S108 - a volume of the pod's own
    folders = {name: value for name, value in found.items() if value.startswith("/")}
    assert {value for value in folders.values() if not value.startswith("/home/engine")} == set()
    assert folders.keys() >= {
        "HOME",
        "HF_HOME",
        "VLLM_CACHE_ROOT",
        "VLLM_CONFIG_ROOT",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "NUMBA_CACHE_DIR",
    }


@pytest.mark.parametrize("role", list(Role))
def test_kv_connector_advertises_the_pods_own_address(role: Role, owner: Owner, two_nodes: Plan) -> None:
    """Its default is localhost, at which a decoding engine would find itself and a foreign engine id."""
    arguments = ["--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}']
    raw: dict[str, object] = {"model": LLAMA, "engine": {"extraArgs": arguments}}
    found = {entry["name"]: entry.get("value") for entry in entries(raw, two_nodes, owner, role)}
    assert found["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "$(VLLM_HOST_IP)"
