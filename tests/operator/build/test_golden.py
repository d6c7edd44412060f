"""Whole groups against reviewed files: a change of what users' clusters get is seen in a diff.

``SHARDWRIGHT_UPDATE_GOLDEN=1`` writes the files anew.
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kubernetes.client import (
    V1ControllerRevision,
    V1Job,
    V1NetworkPolicy,
    V1PodDisruptionBudget,
    V1PodTemplateSpec,
    V1Service,
    V1StatefulSet,
)

from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.disruption_budget import disruption_budget
from shardwright_operator.build.download import download_job
from shardwright_operator.build.launcher import config_name, launcher_config
from shardwright_operator.build.network import group_network
from shardwright_operator.build.network_policy import download_policy, network_policy
from shardwright_operator.build.owner import Manifest, Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.references import reference_check
from shardwright_operator.build.revision import Revision, named, to_manifest
from shardwright_operator.build.service import client_service, ranks_service
from shardwright_operator.build.stateful_set import leader_set, worker_set
from shardwright_operator.build.template import render_download
from shardwright_planner.plan import Plan

GOLDEN = Path(__file__).parent / "golden"
MODELS = {
    "ControllerRevision": V1ControllerRevision,
    "NetworkPolicy": V1NetworkPolicy,
    "PodDisruptionBudget": V1PodDisruptionBudget,
    "Service": V1Service,
    "StatefulSet": V1StatefulSet,
}

LLAMA_405B = "meta-llama/Llama-3.1-405B-Instruct"
QWEN_MOE = "Qwen/Qwen3-235B-A22B"
TP8_PP2 = {"tensor_parallel": 8, "pipeline_parallel": 2, "nodes": 2, "weights_bytes": 811_706_548_224}

GROUPS = [
    pytest.param("405b-two-nodes", {"model": {"name": LLAMA_405B}}, TP8_PP2, id="405B, TP8 x PP2, mp"),
    pytest.param(
        "8b-one-pod",
        {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}},
        {},
        id="8B, one pod, no workers",
    ),
    pytest.param(
        "405b-ray", {"model": {"name": LLAMA_405B}, "engine": {"executor": "ray"}}, TP8_PP2, id="405B, Ray"
    ),
    pytest.param(
        "moe-data-expert",
        {"model": {"name": QWEN_MOE}},
        {"data_parallel": 16, "expert_parallel": True, "nodes": 2, "weights_bytes": 470_000_000_000},
        id="MoE, data-parallel attention and expert parallel over two nodes",
    ),
    pytest.param(
        "claim-and-secrets",
        {
            "model": {
                "name": "llama-3.1-70b",
                "servedName": "llama",
                "source": {"persistentVolumeClaim": {"claimName": "weights", "subPath": "models"}},
            },
            "engine": {
                "apiKeySecretRef": {"name": "llama-key", "key": "key"},
                "env": [
                    {"name": "NCCL_DEBUG", "value": "INFO"},
                    {"name": "HF_HOME", "value": "/home/engine/hub"},
                ],
                "extraArgs": ["--enable-prefix-caching"],
                "imagePullSecrets": [{"name": "registry"}],
                "resources": {"requests": {"cpu": "8", "memory": "100Gi"}},
            },
            "network": {"clients": [{"namespaceSelector": {"matchLabels": {"team": "chat"}}}]},
            "scheduling": {
                "nodeSelector": {"zone": "a"},
                "tolerations": [{"key": "dedicated", "operator": "Exists"}],
                "topologyKey": "topology.kubernetes.io/block",
                "priorityClassName": "serving",
            },
        },
        {
            "tensor_parallel": 4,
            "pipeline_parallel": 2,
            "nodes": 2,
            "pipeline_partition": (41, 39),
            "kv_cache_dtype": "fp8",
            "weights_bytes": 141_107_412_992,
        },
        id="claim, API key, own environment and placement",
    ),
]

CACHED = {
    "model": {"name": LLAMA_405B, "chatTemplateRef": {"name": "templates", "key": "llama.jinja"}},
    "storage": {"modelCache": {"claimName": "models"}},
}

NAMED = {
    "model": {
        "name": LLAMA_405B,
        "source": {"huggingFace": {"tokenSecretRef": {"name": "hub"}}},
        "chatTemplateRef": {"name": "templates", "key": "llama.jinja"},
    },
    "engine": {
        "apiKeySecretRef": {"name": "llama-key", "key": "key"},
        "imagePullSecrets": [{"name": "mirror"}],
    },
    "scheduling": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
}

PROFILES = [
    pytest.param("auto", {}, id="auto"),
    pytest.param("tcp", {"profile": "tcp", "socketInterface": "eth1"}, id="tcp"),
    pytest.param("roce", {"profile": "roce", "rdmaResource": "rdma/roce", "rdmaCount": 8}, id="roce"),
    pytest.param("infiniband", {"profile": "infiniband", "rdmaResource": "rdma/ib"}, id="infiniband"),
    pytest.param("efa", {"profile": "efa"}, id="efa"),
    pytest.param("custom", {"profile": "custom"}, id="custom"),
    pytest.param("host", {"hostNetwork": True, "socketInterface": "bond0"}, id="host network"),
]


def group_manifests(
    revision: Revision, owner: Owner, raw_spec: dict[str, object], group: int = 0
) -> list[Manifest]:
    """What the operator applies for one group, in the order of ``shardwright render``, less the revision."""
    spec = parse_spec(raw_spec)
    manifests = [
        client_service(owner),
        ranks_service(owner, group),
        network_policy(owner, group, spec.network),
        disruption_budget(owner, group, members=revision.members),
        leader_set(
            owner, revision, group, replicas=1, annotations={"shardwright.dev/revision": revision.name}
        ),
    ]
    if revision.members > 1:
        manifests.append(worker_set(owner, revision, group, replicas=revision.members - 1))
    return manifests


def check(name: str, documents: list[Manifest]) -> None:
    """Hold documents against the golden file of this name."""
    path = GOLDEN / f"{name}.yaml"
    text = yaml.safe_dump_all(documents, sort_keys=False, width=110, default_flow_style=False)
    assert "&id" not in text, "two places share one object: a change of one would change the other"
    if os.environ.get("SHARDWRIGHT_UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert list(yaml.safe_load_all(path.read_text())) == documents
    assert path.read_text() == text, "same content in another order"


@pytest.mark.parametrize(("name", "raw_spec", "sizes"), GROUPS)
def test_group_is_as_reviewed(
    *,
    name: str,
    raw_spec: dict[str, object],
    sizes: dict[str, object],
    owner: Owner,
    pool: PoolSelection,
    make_plan: Callable[..., Plan],
    make_revision: Callable[..., Revision],
) -> None:
    revision = named(make_revision(raw_spec, make_plan(**sizes), owner, pool), owner)
    manifests = group_manifests(revision, owner, raw_spec)
    for manifest in manifests:
        MODELS[manifest["kind"]].model_validate(manifest)
    check(name, manifests)


def test_check_of_references_is_as_reviewed(
    owner: Owner, pool: PoolSelection, two_nodes: Plan, make_revision: Callable[..., Revision]
) -> None:
    revision = make_revision(NAMED, two_nodes, owner, pool)
    job = reference_check(owner, revision, "registry.example/shardwright:1.0.0")
    assert job is not None
    V1Job.model_validate(job)
    check("references", [job])


@pytest.mark.parametrize(("name", "network"), PROFILES)
def test_network_profile_is_as_reviewed(
    *,
    name: str,
    network: dict[str, object],
    owner: Owner,
    pool: PoolSelection,
    two_nodes: Plan,
    make_revision: Callable[..., Revision],
) -> None:
    raw_spec: dict[str, object] = {"model": {"name": LLAMA_405B}, "network": network}
    revision = make_revision(raw_spec, two_nodes, owner, pool)
    templates = [dict(revision.leader_template), dict(revision.worker_template or {})]
    for template in templates:
        V1PodTemplateSpec.model_validate(template)
    check(f"network-{name}", templates)


def test_network_profiles_and_why_are_as_reviewed(two_nodes: Plan) -> None:
    """One page of what each profile sets and why; the launcher finds the interface where none is given."""
    documents = []
    for (name, network), launcher in itertools.product((p.values for p in PROFILES), (True, False)):
        given = {**network} if launcher or name != "host" else {**network, "socketInterface": "bond0"}
        raw = {"model": {"name": LLAMA_405B}, "network": given, "engine": {"launcher": launcher}}
        found = group_network(parse_spec(raw), two_nodes)
        documents.append(
            {
                "network": dict(given),
                "launcher": launcher,
                "interfaceFoundInPod": found.resolve_interface,
                "variables": [
                    {"name": key, "value": value, "because": found.reasons[key]}
                    for key, value in found.environment.items()
                ],
                "devices": dict(found.devices),
                "capabilities": list(found.capabilities),
                "hostNetwork": found.host,
                "warnings": list(found.warnings),
            }
        )
    check("network-profiles", documents)


def test_cached_model_is_as_reviewed(
    owner: Owner, pool: PoolSelection, two_nodes: Plan, make_revision: Callable[..., Revision]
) -> None:
    revision = make_revision(CACHED, two_nodes, owner, pool)
    spec = parse_spec(CACHED)
    pods = render_download(spec, owner)
    assert pods is not None
    job = download_job(owner, pods, retry="")
    V1Job.model_validate(job)
    policy = download_policy(owner, job["metadata"]["name"], spec.network)
    V1NetworkPolicy.model_validate(policy)
    config = launcher_config(owner, config_name(owner))
    check("cached-model", [config, policy, job, dict(revision.leader_template)])


def test_revision_is_as_reviewed(
    owner: Owner, pool: PoolSelection, make_plan: Callable[..., Plan], make_revision: Callable[..., Revision]
) -> None:
    raw_spec: dict[str, object] = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}
    manifest = to_manifest(make_revision(raw_spec, make_plan(), owner, pool), owner)
    V1ControllerRevision.model_validate(manifest)
    check("revision", [manifest])
