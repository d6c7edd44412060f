"""``render`` prints what the operator would apply, from the operator's own decision."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Run = Callable[..., Any]

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_all_manifests_of_a_model_over_two_nodes(run: Run) -> None:
    answer = run("render", "-f", str(EXAMPLES / "llama-3.1-405b.yaml"))

    documents = list(yaml.safe_load_all(answer.out))
    shown = [(d["kind"], d["metadata"]["name"]) for d in documents if d]
    assert answer.code == 0
    assert shown[0][0] == "ControllerRevision"
    assert shown[1][0] == "ConfigMap"
    assert shown[2:] == [
        ("Service", "llama-405b"),
        ("Service", "llama-405b-0-ranks"),
        ("NetworkPolicy", "llama-405b-0"),
        ("PodDisruptionBudget", "llama-405b-0"),
        ("StatefulSet", "llama-405b-0-leader"),
        ("StatefulSet", "llama-405b-0-worker"),
    ]


def test_one_gpu_model_in_json(run: Run) -> None:
    answer = run("render", "-f", str(EXAMPLES / "llama-3.1-8b.yaml"), "-o", "json")

    items = json.loads(answer.out)["items"]
    assert [i["metadata"]["name"] for i in items if i["kind"] == "StatefulSet"] == ["llama-8b-0-leader"]


def test_replicas_become_groups(run: Run) -> None:
    answer = run("render", "-f", str(EXAMPLES / "llama-3.1-70b.yaml"))

    sets = [d["metadata"]["name"] for d in yaml.safe_load_all(answer.out) if d and d["kind"] == "StatefulSet"]
    assert sets == ["llama-70b-0-leader", "llama-70b-1-leader"]


def test_options_alter_the_manifest(run: Run) -> None:
    answer = run("render", "-f", str(EXAMPLES / "llama-3.1-8b.yaml"), "--tensor", "2", "-o", "json")

    leader = json.loads(answer.out)["items"][-1]
    (engine,) = leader["spec"]["template"]["spec"]["containers"]
    assert engine["resources"]["limits"]["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize(
    "example", [pytest.param(path, id=path.stem) for path in sorted(EXAMPLES.glob("*.yaml"))]
)
def test_every_example_is_rendered(example: Path, run: Run) -> None:
    answer = run("render", "-f", str(example))

    assert (answer.code, answer.err) == (0, "")
    assert "kind: StatefulSet" in answer.out


def test_plan_that_does_not_fit_renders_nothing(run: Run) -> None:
    answer = run("render", "-f", str(EXAMPLES / "llama-3.1-405b.yaml"), "--nodes", "1")

    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("llama-405b: ")


def test_output_is_the_same_each_time(run: Run) -> None:
    arguments = ("render", "-f", str(EXAMPLES / "llama-3.1-405b.yaml"))

    assert run(*arguments).out == run(*arguments).out
