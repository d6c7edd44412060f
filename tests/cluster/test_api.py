"""The CRD on a real API server: accepted, explained, defaulted, and refusing bad input in clear words."""

import copy
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bad_specs import BAD_SPECS, MODEL, BadSpec
from control_plane.client import MERGE, ApiError, Client
from control_plane.cluster import CommandError
from control_plane.waiting import wait_for
from full_spec import FULL_SPEC
from operator_process import MDEP, crd
from shardwright_operator.api.constants import ConditionType
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.manifest import parse_manifest
from shardwright_operator.api.plan_request import declared_pool, plan_request
from shardwright_operator.api.status import cut_to_bounds
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_planner import plan

__all__ = ["crd"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crd")]

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

Kubectl = Callable[..., str]


def _document(name: str = "llama", spec: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name},
        "spec": spec or {"model": {"name": MODEL}},
    }


def _apply(kubectl: Kubectl, namespace: str, document: dict[str, Any], *options: str) -> str:
    return kubectl("apply", "--server-side", "-n", namespace, *options, "-f", "-", stdin=json.dumps(document))


def _get(kubectl: Kubectl, namespace: str, name: str = "llama") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", "mdep", name, "-n", namespace, "-o", "json"))
    return found


def test_crd_is_structural_and_established(api: Client) -> None:
    found = api.get("customresourcedefinitions.apiextensions.k8s.io", MDEP)
    conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}

    assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_every_field_is_explained(kubectl: Kubectl) -> None:
    def published() -> bool:
        # The API server publishes the schema some time after it serves the resource.
        try:
            return "timePerOutputToken" in kubectl("explain", "modeldeployments", "--recursive")
        except CommandError:
            return False

    wait_for(published, "the schema is published")

    assert "<no description>" not in kubectl("explain", "mdep.spec.slo")
    assert "Wanted mean time per output token" in kubectl("explain", "mdep.spec.slo.timePerOutputToken")
    assert "ENUM:" in kubectl("explain", "mdep.spec.slo.policy")


def test_short_name_and_category(kubectl: Kubectl, namespace: str) -> None:
    _apply(kubectl, namespace, _document())

    assert "llama" in kubectl("get", "shardwright", "-n", namespace)
    assert kubectl("get", "mdep", "-n", namespace).split("\n")[0].split() == [
        "NAME",
        "MODEL",
        "TP",
        "PP",
        "GROUPS",
        "READY",
        "REASON",
        "AGE",
    ]


@pytest.mark.parametrize("bad", [pytest.param(bad, id=bad.id) for bad in BAD_SPECS if bad.server])
def test_bad_spec_is_refused(bad: BadSpec, kubectl: Kubectl, namespace: str) -> None:
    with pytest.raises(CommandError) as caught:
        kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(_document(spec=bad.spec())))

    assert str(bad.server) in caught.value.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("a" * 63, "metadata.name may have at most 40 characters", id="63 characters"),
        pytest.param("a" * 41, "metadata.name may have at most 40 characters", id="41 characters"),
        pytest.param("8b", "metadata.name must begin with a letter", id="begins with a digit"),
        pytest.param("llama.8b", "metadata.name must begin with a letter", id="with a dot"),
        pytest.param("vllm", "metadata.name may not be vllm", id="vllm"),
        pytest.param("vllm-8b", "metadata.name may not be vllm", id="begins with vllm-"),
        pytest.param("a-0-ranks", "metadata.name may not end in a number and -ranks", id="ranks Service"),
    ],
)
def test_bad_name_is_refused(name: str, said: str, kubectl: Kubectl, namespace: str) -> None:
    with pytest.raises(CommandError) as caught:
        kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(_document(name)))

    assert said in caught.value.stderr


def test_longest_name_is_taken(kubectl: Kubectl, namespace: str) -> None:
    _apply(kubectl, namespace, _document("a" * 40))


def test_defaults_are_one_replica_and_a_status_in_progress(kubectl: Kubectl, namespace: str) -> None:
    _apply(kubectl, namespace, _document())

    found = _get(kubectl, namespace)

    assert found["spec"] == {"model": {"name": MODEL}, "replicas": 1}
    assert found["status"] == {"observedGeneration": -1}


def test_scale_reads_and_writes_groups(kubectl: Kubectl, api: Client, namespace: str) -> None:
    _apply(kubectl, namespace, _document())
    path = f"/apis/shardwright.dev/v1alpha1/namespaces/{namespace}/modeldeployments/llama/scale"

    before = api.request("GET", path)
    kubectl("scale", "mdep", "llama", "-n", namespace, "--replicas=3")

    assert before["spec"] == {"replicas": 1}
    assert api.request("GET", path)["spec"] == {"replicas": 3}


def test_inline_config_keeps_every_key(kubectl: Kubectl, namespace: str) -> None:
    config = {"model_type": "llama", "rope_scaling": {"factor": 8.0, "kind": ["a", 1, None]}}
    _apply(kubectl, namespace, _document(spec={"model": {"name": "own/model", "config": config}}))

    assert _get(kubectl, namespace)["spec"]["model"]["config"] == config


def test_unknown_fields_are_pruned_when_the_client_does_not_insist(kubectl: Kubectl, namespace: str) -> None:
    spec = {"model": {"name": MODEL}, "slo": {"concurrency": 8, "typo": 1}}
    kubectl("create", "--validate=false", "-n", namespace, "-f", "-", stdin=json.dumps(_document(spec=spec)))

    assert _get(kubectl, namespace)["spec"]["slo"] == {"concurrency": 8}


def test_every_field_is_taken(kubectl: Kubectl, namespace: str) -> None:
    _apply(kubectl, namespace, _document(spec=FULL_SPEC))

    assert _get(kubectl, namespace)["spec"] == FULL_SPEC


def test_largest_status_is_taken_and_shown(kubectl: Kubectl, api: Client, namespace: str) -> None:
    """A status at all its bounds, with the plan of the largest example, as the operator writes it."""
    _apply(kubectl, namespace, _document())
    status = _largest_status()

    written = api.request(
        "PATCH",
        f"/apis/shardwright.dev/v1alpha1/namespaces/{namespace}/modeldeployments/llama/status",
        body={"status": status},
        content_type=MERGE,
    )

    assert written["status"] == status
    row = kubectl("get", "mdep", "llama", "-n", namespace, "-o", "wide", "--no-headers").split()
    assert row[:7] == ["llama", MODEL, "8", "2", "1/1", "True", "GroupsReady"]
    assert row[8:11] == ["16", "H100-SXM-80GB", "llama-0123456789"]
    scale = api.request(
        "GET", f"/apis/shardwright.dev/v1alpha1/namespaces/{namespace}/modeldeployments/llama/scale"
    )
    assert scale["status"] == {"replicas": 1, "selector": "a=b"}


def _largest_status() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "examples" / "llama-3.1-405b.yaml").read_text(encoding="utf-8"))
    spec = parse_manifest(document).spec
    pool = declared_pool(spec)
    assert pool is not None
    long = "x" * 5000
    conditions = [
        {
            "type": kind,
            "status": "True",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": "GroupsReady",
            "message": long,
        }
        for kind in ConditionType
    ]
    groups = [
        {
            "index": index,
            "phase": "Ready",
            "reason": "GroupsReady",
            "message": long,
            "revision": "llama-0123456789",
            "restarts": 1,
            "members": 64,
            "readyMembers": 64,
            "nodes": [f"node-{n}.example" for n in range(100)],
            "firstFailure": {
                "time": "2026-01-01T00:00:00Z",
                "reason": "OutOfMemory",
                "nodeRank": 1,
                "pod": "p",
                "node": "n",
                "message": long,
                "exitCode": 137,
                "terminationMessage": long,
            },
        }
        for index in range(200)
    ]
    return cut_to_bounds(
        {
            "observedGeneration": 1,
            "conditions": conditions,
            "replicas": 1,
            "readyReplicas": 1,
            "ready": "1/1",
            "selector": "a=b",
            "revision": "llama-0123456789",
            "image": "vllm/vllm-openai:v0.32.0",
            "plan": plan(plan_request(spec, (pool,))).to_wire(),
            "groups": groups,
        }
    )


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"model": {"name": MODEL}, "workload": {"inputTokens": None}}, id="number"),
        pytest.param({"model": {"name": MODEL, "dtype": None}, "slo": None}, id="enumeration and section"),
        pytest.param({"model": {"name": MODEL}, "engine": {"env": None, "extraArgs": None}}, id="lists"),
        pytest.param({"model": {"name": MODEL}, "replicas": None}, id="value with a default"),
    ],
)
def test_null_is_absent(spec: dict[str, Any], kubectl: Kubectl, namespace: str) -> None:
    """Templates render an unset value as null."""
    kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(_document(spec=spec)))

    found = _get(kubectl, namespace)["spec"]
    assert found["model"] == {"name": MODEL}
    assert found["replicas"] == 1
    assert "null" not in json.dumps(found)


def test_server_side_apply_again_changes_nothing(kubectl: Kubectl, namespace: str) -> None:
    spec = {
        "model": {"name": MODEL},
        "engine": {"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]},
        "storage": {"sharedMemory": "16Gi", "cacheSize": "1Ti"},
        "workload": {"requestsPerSecond": 2.5},
    }
    # The status default is stored with the first write after creation; from then on nothing is written.
    _apply(kubectl, namespace, _document(spec=spec))
    _apply(kubectl, namespace, _document(spec=spec))
    before = _get(kubectl, namespace)
    _apply(kubectl, namespace, _document(spec=spec))

    assert _get(kubectl, namespace) == before
    assert before["metadata"]["generation"] == 1
    assert (
        kubectl("diff", "--server-side", "-n", namespace, "-f", "-", stdin=json.dumps(_document(spec=spec)))
        == ""
    )


def test_variables_of_two_managers_are_merged(kubectl: Kubectl, namespace: str) -> None:
    for manager, variable in (("team", "A"), ("platform", "B")):
        spec = {"model": {"name": MODEL}, "engine": {"env": [{"name": variable, "value": "1"}]}}
        _apply(kubectl, namespace, _document(spec=spec), f"--field-manager={manager}")

    assert [v["name"] for v in _get(kubectl, namespace)["spec"]["engine"]["env"]] == ["A", "B"]


@pytest.mark.parametrize("example", [pytest.param(path, id=path.stem) for path in EXAMPLES])
def test_example_is_accepted(example: Path, kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "--dry-run=server", "-n", namespace, "-f", str(example))


ODD_VALUES: tuple[Any, ...] = (None, True, -1, 0, 0.5, "", "A b", "25h", "x" * 300, [1], {"a": 1})


def test_both_judges_agree_on_odd_values_in_every_place(api: Client, namespace: str) -> None:
    """What the API server takes the operator must understand, and the command line must not refuse."""
    path = f"/apis/shardwright.dev/v1alpha1/namespaces/{namespace}/modeldeployments"
    good = {**FULL_SPEC, "model": {k: v for k, v in FULL_SPEC["model"].items() if k != "config"}}
    disagreements = []
    for place, value in itertools.product(_places(good), ODD_VALUES):
        spec = _with(good, place, value)
        here = there = ""
        try:
            parse_spec(spec)
        except SpecError as error:
            here = str(error)
        try:
            query = {"dryRun": "All", "fieldValidation": "Strict"}
            api.request("POST", path, body=_document(spec=spec), query=query)
        except ApiError as error:
            there = error.message
        if bool(here) != bool(there):
            disagreements.append((place, value, here, there))

    assert disagreements == []


Place = tuple[str | int, ...]


def _places(value: Any, path: Place = ()) -> list[Place]:
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [*([path] if path else []), *(p for key, child in children for p in _places(child, (*path, key)))]


def _with(spec: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    altered: Any = copy.deepcopy(spec)
    target = altered
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    found: dict[str, Any] = altered
    return found
