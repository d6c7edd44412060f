"""Sizes of a pod: the formulas, and the user's word over them."""

from collections.abc import Callable

import pytest

from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.resources import (
    GIB,
    cache_limit_bytes,
    container_resources,
    shared_memory_bytes,
)
from shardwright_planner.plan import Plan

LLAMA = {"name": "meta-llama/Llama-3.1-8B-Instruct"}
CLAIM = {**LLAMA, "source": {"persistentVolumeClaim": {"claimName": "weights"}}}


def test_one_gpu_fits_the_smallest_cloud_node(make_plan: Callable[..., Plan]) -> None:
    """A g5.xlarge offers about 3.9 cores and 14 GiB to pods."""
    requests = container_resources(parse_spec({"model": CLAIM}), make_plan())["requests"]
    assert requests == {"cpu": "3", "ephemeral-storage": "16Gi", "memory": "10Gi", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        pytest.param({"requests": {"memory": "20Gi"}}, "20Gi", "33Gi", id="request"),
        pytest.param({"requests": {"memory": "64Gi"}}, "64Gi", "64Gi", id="request lifts our limit"),
        pytest.param({"limits": {"memory": "8Gi"}}, "8Gi", "8Gi", id="limit lowers our request"),
        pytest.param(
            {"requests": {"memory": "1024Mi"}, "limits": {"memory": "2048Mi"}},
            "1Gi",
            "2Gi",
            id="canonical quantities",
        ),
    ],
)
def test_users_memory(
    given: dict[str, object], requests: str, limits: str, make_plan: Callable[..., Plan]
) -> None:
    spec = parse_spec({"model": LLAMA, "engine": {"resources": given}})
    found = container_resources(spec, make_plan())
    assert (found["requests"]["memory"], found["limits"]["memory"]) == (requests, limits)


def test_devices_are_asked_for_and_limited_alike(two_nodes: Plan) -> None:
    found = container_resources(parse_spec({"model": LLAMA}), two_nodes, {"rdma/a": 4})
    assert {kind: found[kind]["rdma/a"] for kind in found} == {"requests": "4", "limits": "4"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, 10 * GIB, id="two and one for each of eight ranks"),
        pytest.param({"engine": {"executor": "ray"}}, 11 * GIB, id="Ray's object store on top"),
        pytest.param({"storage": {"sharedMemory": "3Gi"}}, 3 * GIB, id="the user's size"),
    ],
)
def test_shared_memory(spec: dict[str, object], expected: int, two_nodes: Plan) -> None:
    assert shared_memory_bytes(parse_spec({"model": LLAMA, **spec}), two_nodes) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"model": LLAMA}, 62 * GIB, id="twice the checkpoint"),
        pytest.param(
            {"model": {**LLAMA, "quantization": "fp8"}}, 92 * GIB, id="larger on disk than as loaded"
        ),
        pytest.param({"model": CLAIM}, 32 * GIB, id="nothing is downloaded"),
        pytest.param({"model": LLAMA, "storage": {"cacheSize": "5Gi"}}, 5 * GIB, id="the user's size"),
    ],
)
def test_cache_is_bounded(spec: dict[str, object], expected: int, make_plan: Callable[..., Plan]) -> None:
    assert cache_limit_bytes(parse_spec(spec), make_plan()) == expected
