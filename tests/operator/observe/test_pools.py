"""Which nodes count as capacity: only those that the pods of a spec can use."""

from typing import Any

import pytest

from shardwright_operator.api.pod_spec import SchedulingSpec
from shardwright_operator.observe.pools import find_pools
from shardwright_operator.observe.views import NodeView, Taint


def node(**fields: Any) -> NodeView:
    standing: dict[str, Any] = {
        "name": "h100",
        "uid": "uid",
        "resource_version": 1,
        "ready": True,
        "unschedulable": False,
        "gpus": 8,
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    }
    extra = fields.pop("labels", {})
    return NodeView(**{**standing, "labels": {**standing["labels"], **extra}, **fields})


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, Any]:
    return {"taints": (Taint(key=key, value=value, effect=effect),)}


DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "models"}


@pytest.mark.parametrize(
    ("fields", "tolerations", "unusable"),
    [
        pytest.param({}, [], "", id="plain"),
        pytest.param(taint("nvidia.com/gpu", "present"), [], "", id="the GPU taint, of whatever value"),
        pytest.param(taint("nvidia.com/gpu", "h100", "NoExecute"), [], "", id="and of whatever effect"),
        pytest.param(
            taint("dedicated", "models"),
            [],
            "1 with a taint that the pods do not tolerate",
            id="a stranger's",
        ),
        pytest.param(taint("dedicated", "models"), [DEDICATED], "", id="tolerated by the user"),
        pytest.param(
            taint("dedicated", "training"),
            [DEDICATED],
            "1 with a taint that the pods do not tolerate",
            id="of another value than is tolerated",
        ),
        pytest.param(taint("dedicated", effect="PreferNoSchedule"), [], "", id="a mere preference"),
        pytest.param({"unschedulable": True}, [], "1 cordoned", id="cordoned"),
        pytest.param({"ready": False}, [], "1 not ready", id="not ready"),
        pytest.param(
            {"labels": {"nvidia.com/gpu.sharing-strategy": "time-slicing"}},
            [],
            "1 with shared GPUs",
            id="shared",
        ),
        pytest.param(
            {"labels": {"nvidia.com/gpu.product": "Abacus"}},
            [],
            "1 with a GPU that the catalogue does not know",
            id="unknown",
        ),
    ],
)
def test_nodes_that_count(fields: dict[str, Any], tolerations: list[dict[str, Any]], unusable: str) -> None:
    found = find_pools([node(**fields)], SchedulingSpec.model_validate({"tolerations": tolerations}))
    assert (found.gpu_nodes, found.describe_unusable()) == (1, unusable)
    assert [(p.gpu.name, p.gpus_per_node, p.nodes) for p in found.pools] == (
        [] if unusable else [("H100-SXM-80GB", 8, 1)]
    )
