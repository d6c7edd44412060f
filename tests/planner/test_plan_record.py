"""The plan's record: bounded for a CRD, plain on the wire, rounded, and free of numbers that are none."""

import math
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shardwright_planner import Plan, PlanRequest, Pool, ServiceLevel, Workload, find_gpu, find_model, plan

DOCUMENTED = (
    "feasible tensorParallel pipelineParallel dataParallel expertParallel nodes gpusPerNode "
    "gpusPerReplica recommendedReplicas gpu pool rule reason sloPredicted sloMessage "
    "maxModelLength maxNumSeqs maxNumBatchedTokens gpuMemoryUtilization kvCacheDtype dtype "
    "weightsBytes stages kvCacheTokens maxConcurrency predicted communication alternatives "
    "warnings remedies inputHash plannerVersion"
)


def walk(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, f"{path}[]")
    else:
        yield path, value


def schema_nodes(node: object, path: str) -> Iterator[tuple[str, dict[str, object]]]:
    if isinstance(node, dict):
        yield path, node
        for key, inner in node.items():
            yield from schema_nodes(inner, f"{path}/{key}")
    elif isinstance(node, list):
        for inner in node:
            yield from schema_nodes(inner, path)


def answer(nodes: int = 2) -> Plan:
    facts = find_model("meta-llama/Llama-3.1-405B-Instruct")
    assert facts is not None
    return plan(
        PlanRequest(
            model=facts,
            pools=(Pool(gpu=find_gpu("H100"), gpus_per_node=8, nodes=nodes),),
            workload=Workload(max_model_length=8192),
            service_level=ServiceLevel(time_per_output_token_s=0.15, time_to_first_token_s=30.0),
        )
    )


def test_every_string_and_list_is_bounded_and_every_number_has_limits():
    schema = Plan.model_json_schema(by_alias=True)
    unbounded = [
        path
        for path, node in schema_nodes(schema, "")
        if (node.get("type") == "string" and not ({"maxLength", "enum", "const"} & node.keys()))
        or (node.get("type") == "array" and "maxItems" not in node)
        or (node.get("type") in {"integer", "number"} and not {"minimum", "maximum"} <= node.keys())
    ]
    assert unbounded == []


def test_every_field_is_described():
    schema = Plan.model_json_schema(by_alias=True)
    records = [schema, *schema["$defs"].values()]
    missing = [
        (record["title"], name)
        for record in records
        for name, entry in record.get("properties", {}).items()
        if not entry.get("description")
    ]
    assert missing == []


@pytest.mark.parametrize("nodes", [1, 2, 8])
def test_the_wire_form_is_plain_and_finite(nodes):
    for path, value in walk(answer(nodes).to_wire()):
        assert isinstance(value, bool | int | float | str), path
        if isinstance(value, float):
            assert math.isfinite(value), path
            assert float(f"{value:.6g}") == value, path


def test_the_wire_form_has_the_documented_keys():
    wire = answer().to_wire()
    assert [key for key in DOCUMENTED.split() if key not in wire] == []
    assert "pipelinePartition" not in wire
    assert "quantization" not in wire


def test_alternatives_are_cut_to_their_bound():
    assert len(answer(16).alternatives) == 32


def test_the_planner_runs_without_kubernetes_and_loads_the_catalogue_late():
    code = (
        "import sys\n"
        "for name in ('kopf', 'kubernetes', 'aiohttp', 'yaml', 'prometheus_client'):\n"
        "    sys.modules[name] = None\n"
        "import shardwright_planner as planner\n"
        "from shardwright_planner import catalogue\n"
        "assert catalogue._data.cache_info().currsize == 0\n"
        "assert planner.find_model('meta-llama/Llama-3.1-8B') is not None\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
