"""What must hold for any group: GPUs, ranks, secrets and rights, over generated plans and specs."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.owner import Manifest, Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.revision import Revision
from shardwright_operator.build.stateful_set import leader_set, worker_set
from shardwright_operator.build.template import render_templates
from shardwright_planner.plan import Plan

MODEL = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}
SECRETS: dict[str, object] = {
    "model": {
        "name": "meta-llama/Llama-3.1-8B-Instruct",
        "source": {"huggingFace": {"tokenSecretRef": {"name": "hub-token-secret"}}},
    },
    "engine": {"apiKeySecretRef": {"name": "api-key-secret", "key": "key"}},
}


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, object]:
    """Sizes that can be laid over nodes: whole engines on a node, or an engine over whole nodes."""
    tensor = draw(st.sampled_from([1, 2, 4, 8]))
    pipeline = draw(st.integers(1, 4))
    data = draw(st.sampled_from([1, 2, 4]))
    engine = tensor * pipeline
    nodes = draw(
        st.sampled_from(
            [n for n in range(1, engine * data + 1) if engine * data % n == 0 and even(engine, data, n)]
        )
    )
    return {
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "data_parallel": data,
        "nodes": nodes,
        "expert_parallel": data > 1,
    }


def even(engine: int, data: int, nodes: int) -> bool:
    per_node = engine * data // nodes
    return per_node % engine == 0 or engine % per_node == 0


def sets_of(revision: Revision, owner: Owner, group: int) -> list[Manifest]:
    sets = [leader_set(owner, revision, group, replicas=1, annotations={})]
    if revision.members > 1:
        sets.append(worker_set(owner, revision, group, replicas=revision.members - 1))
    return sets


def containers(template: Manifest) -> Iterator[Manifest]:
    yield from template["spec"].get("initContainers", [])
    yield from template["spec"]["containers"]


def not_restricted(template: Manifest) -> set[str]:
    """What in a pod template violates the ``restricted`` Pod Security Standard (Kubernetes 1.34 docs)."""
    spec = template["spec"]
    found = {field for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)}
    found |= {
        "volumes"
        for volume in spec["volumes"]
        if not {"emptyDir", "persistentVolumeClaim", "configMap"} & volume.keys()
    }
    if not spec["securityContext"].get("runAsNonRoot") or spec["securityContext"].get("runAsUser") == 0:
        found.add("runAsNonRoot")
    if spec["securityContext"]["seccompProfile"]["type"] != "RuntimeDefault":
        found.add("seccompProfile")
    for container in containers(template):
        security = container["securityContext"]
        if security.get("privileged") or security["allowPrivilegeEscalation"]:
            found.add("privileges")
        if security["capabilities"]["drop"] != ["ALL"]:
            found.add("capabilities")
        found |= {f"add {added}" for added in security["capabilities"].get("add", [])}
        found |= {"hostPort" for port in container.get("ports", []) if port.get("hostPort")}
    return found


@settings(max_examples=60, deadline=None)
@given(chosen=sizes(), group=st.integers(0, 999))
def test_gpus_and_ranks_of_a_group(
    *,
    chosen: dict[str, object],
    group: int,
    owner: Owner,
    pool: PoolSelection,
    make_plan: Callable[..., Plan],
    make_revision: Callable[..., Revision],
) -> None:
    plan = make_plan(**chosen)
    gpus, ranks = 0, []
    for made in sets_of(make_revision(MODEL, plan, owner, pool), owner, group):
        spec = made["spec"]
        (engine,) = spec["template"]["spec"]["containers"]
        resources = engine["resources"]
        assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"]
        gpus += spec["replicas"] * int(resources["limits"]["nvidia.com/gpu"])
        start = spec.get("ordinals", {}).get("start", 0)
        ranks += range(start, start + spec["replicas"])
        headless = "--headless" in engine["args"]
        assert headless is (start > 0)
    assert gpus == plan.tensor_parallel * plan.pipeline_parallel * plan.data_parallel
    assert ranks == list(range(plan.nodes))


@settings(max_examples=30, deadline=None)
@given(chosen=sizes(), one=st.integers(0, 999), other=st.integers(0, 999))
def test_groups_differ_by_their_index_only(
    *,
    chosen: dict[str, object],
    one: int,
    other: int,
    owner: Owner,
    pool: PoolSelection,
    make_plan: Callable[..., Plan],
    make_revision: Callable[..., Revision],
) -> None:
    revision = make_revision(MODEL, make_plan(**chosen), owner, pool)
    kept = copy.deepcopy(revision)
    texts = [
        str(sets_of(revision, owner, group))
        .replace(f"'shardwright.dev/group-index': '{group}'", "INDEX")
        .replace(f"llama-{group}-", "llama-INDEX-")
        for group in (one, other)
    ]
    assert texts[0] == texts[1]
    assert revision == kept, "building a set changed the stored template"


@settings(max_examples=30, deadline=None)
@given(chosen=sizes(), executor=st.sampled_from(["mp", "ray"]))
def test_no_secret_and_no_right_beyond_restricted(
    chosen: dict[str, object],
    executor: str,
    owner: Owner,
    pool: PoolSelection,
    make_plan: Callable[..., Plan],
) -> None:
    raw: dict[str, Any] = copy.deepcopy(SECRETS)
    raw["engine"]["executor"] = executor
    plan = make_plan(**({**chosen, "data_parallel": 1, "nodes": 1} if executor == "ray" else chosen))
    leader, worker = render_templates(parse_spec(raw), plan, pool, owner)
    for template in filter(None, (leader, worker)):
        assert not_restricted(template) == set()
        assert template["spec"]["automountServiceAccountToken"] is False
        for container in containers(template):
            words = str([container.get("command"), container.get("args")])
            assert "secret" not in words
            assert all(
                "value" not in entry
                for entry in container["env"]
                if entry["name"] in {"HF_TOKEN", "VLLM_API_KEY"}
            )


@pytest.mark.parametrize(
    ("network", "needed"),
    [
        pytest.param({"profile": "tcp"}, set(), id="tcp needs nothing"),
        pytest.param({"profile": "roce", "rdmaResource": "rdma/a"}, {"add IPC_LOCK"}, id="RDMA locks memory"),
        pytest.param({"profile": "efa"}, {"add IPC_LOCK"}, id="EFA locks memory"),
        pytest.param(
            {"hostNetwork": True, "socketInterface": "eth1"}, {"hostNetwork", "hostPort"}, id="host network"
        ),
    ],
)
def test_a_network_profile_takes_exactly_the_rights_it_needs(
    network: dict[str, object], needed: set[str], owner: Owner, pool: PoolSelection, two_nodes: Plan
) -> None:
    spec = parse_spec({**MODEL, "network": network})
    leader, _ = render_templates(spec, two_nodes, pool, owner)
    assert not_restricted(leader) == needed


def test_ray_waits_within_the_restricted_profile(owner: Owner, pool: PoolSelection, two_nodes: Plan) -> None:
    leader, worker = render_templates(
        parse_spec({**MODEL, "engine": {"executor": "ray"}}), two_nodes, pool, owner
    )
    assert worker is not None
    assert [not_restricted(leader), not_restricted(worker)] == [set(), set()]
    assert [t["spec"]["initContainers"][0]["command"][-1] for t in (leader, worker)] == ["0", "6379"]
