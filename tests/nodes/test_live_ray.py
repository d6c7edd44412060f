"""The executor ray: the rendered words of both roles start a real Ray, which becomes one cluster.

The engine on it is a stand-in, since vLLM's CPU build refuses Ray; its words are held against vLLM's parser.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_environment import Environment
from engine_parser import ParserService
from live_engine import TOPOLOGIES, Live, Models, Row
from live_engine.deployment import READY_TIMEOUT_S
from live_ray import IMAGE, RayEnvironment
from rendered_group import RAY
from shardwright_operator.build.command import MODEL_FOLDER

pytestmark = [pytest.mark.engine, pytest.mark.extended]

GROUP = TOPOLOGIES["TP2 x PP2"]


def test_both_roles_form_one_cluster(
    live: Live,
    ray: RayEnvironment,
    engine: Environment,
    models: Models,
    tmp_path: Path,
    note: Callable[[Row], None],
) -> None:
    changes = {
        "engine": {
            "executor": "ray",
            "image": IMAGE,
            "env": [{"name": "SHARDWRIGHT_SKIP", "value": "gpus,memory"}],
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "6Gi"}},
        },
        "storage": {"cacheSize": "1Gi"},
    }
    began = time.monotonic()
    with live.deployment(GROUP, **changes) as deployment:
        deployment.wait_ready(timeout_s=READY_TIMEOUT_S)
        note(Row(group=f"{GROUP} with Ray, no engine", ready_s=time.monotonic() - began))
        found = json.loads(deployment.request("GET", "/", None)[1])
        words = found.pop("words")
        found["node_ranks"].sort()
        assert found == {"nodes": 2, "gpus": 4.0, "node_ranks": ["0", "0", "1", "1"]}

    serve, model, *rest = words
    assert (serve, model) == ("serve", f"{MODEL_FOLDER}/{models.dense.name}")
    assert [word for word in rest if word in RAY] == list(RAY)
    own = [str(models.dense.folder), *(word for word in rest if word not in RAY)]
    with ParserService(engine, log=tmp_path / "vllm.log") as vllm:
        answer = vllm.ask(own)
    assert answer.refusal is None
    facts = answer.facts
    assert (facts["tensorParallel"], facts["pipelineParallel"], facts["nodes"]) == (2, 2, 1)
