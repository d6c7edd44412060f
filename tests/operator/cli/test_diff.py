"""``diff``: its answer is held against what the operator then does, in a simulated cluster."""

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright_operator.api.constants import Label
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.cli.change import change, standing
from shardwright_operator.cli.diff import rendered
from shardwright_operator.cli.pod_changes import pod_changes
from simulated_world import NAMESPACE, SimulatedWorld

Run = Callable[..., Any]
Spec = dict[str, Any]

EXAMPLES = Path(__file__).parents[3] / "examples"
BIG = str(EXAMPLES / "llama-3.1-405b.yaml")
LARGE: Spec = {
    "replicas": 1,
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "slo": {"concurrency": 32, "timePerOutputToken": "150ms"},
}
SMALL: Spec = {"replicas": 2, "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}


def altered(spec: Spec, **sections: Any) -> Spec:
    found = copy.deepcopy(spec)
    for name, value in sections.items():
        found[name] = {**found.get(name, {}), **value} if isinstance(value, dict) else value
    return found


def settled(spec: Spec, nodes: int) -> SimulatedWorld:
    world = SimulatedWorld(copy.deepcopy(spec), nodes=nodes)
    world.settle()
    world.writes.clear()
    return world


def groups_of(world: SimulatedWorld) -> dict[int, set[str]]:
    """UIDs of the pods of each group."""
    found: dict[int, set[str]] = {}
    for pod in world.pods.values():
        if label := pod["metadata"].get("labels", {}).get(Label.GROUP_INDEX):
            found.setdefault(int(label), set()).add(pod["metadata"]["uid"])
    return found


@pytest.mark.parametrize(
    ("spec", "new"),
    [
        pytest.param(LARGE, LARGE, id="nothing"),
        pytest.param(LARGE, altered(LARGE, workload={"maxModelLength": 16384}), id="longer requests"),
        pytest.param(LARGE, altered(LARGE, slo={"concurrency": 16}), id="a service level"),
        pytest.param(LARGE, altered(LARGE, engine={"env": [{"name": "A", "value": "b"}]}), id="environment"),
        pytest.param(LARGE, altered(LARGE, replicas=2), id="another group"),
        pytest.param(LARGE, altered(LARGE, replicas=0), id="no group"),
        pytest.param(LARGE, altered(LARGE, parallelism={"tensor": 4}), id="a pin"),
        pytest.param(LARGE, altered(LARGE, parallelism={"tensor": 7}), id="a pin that is refused"),
        pytest.param(
            LARGE,
            altered(LARGE, workload={"maxModelLength": 16384}, rollout={"paused": True}),
            id="longer requests, paused",
        ),
        pytest.param(LARGE, altered(LARGE, recovery={"maxRestarts": 9}), id="recovery"),
        pytest.param(LARGE, altered(LARGE, model={"name": "no/such"}), id="a model that nobody knows"),
        pytest.param(SMALL, altered(SMALL, replicas=3), id="one of three groups is new"),
        pytest.param(SMALL, altered(SMALL, replicas=1), id="one of two groups goes"),
        pytest.param(
            SMALL, altered(SMALL, model={"quantization": "fp8"}, replicas=3), id="all restart, one is new"
        ),
    ],
)
def test_the_operator_does_what_was_told(spec: Spec, new: Spec) -> None:
    world = settled(spec, nodes=4)
    before = groups_of(world)
    try:
        parsed = parse_spec(new)
    except ValueError:
        pytest.fail("the case must parse")
    told = change(standing(world.store.observe(world.key)), new, parsed)

    world.edit(lambda live: (live.clear(), live.update(copy.deepcopy(new))))
    world.settle(limit=200)

    after = groups_of(world)
    restarted = {i for i in before if i in after and before[i] != after[i]}
    # With surge a restarting group may be replaced by one of another index; what counts is how many stay.
    untouched = sum(before[i] == after.get(i) for i in before)
    expected = len(before) - (0 if told.held else len(told.restarting)) - max(0, told.now - told.then)
    assert untouched == expected
    assert len(after) == told.then
    assert len(restarted) <= len(told.restarting)
    assert told.accepted == (world.condition("PlanAccepted") or ("", ""))[0].startswith("True")
    if told.is_nothing:
        assert not [write for write in world.writes if write != "status"]
    elif told.accepted and told.new is not None and not told.held and told.old != told.new:
        assert f"apply ControllerRevision {told.new.name}" in world.writes


def test_gpus_needed_and_free() -> None:
    world = settled(LARGE, nodes=5)
    new = altered(LARGE, replicas=3)

    told = change(standing(world.store.observe(world.key)), new, parse_spec(new))

    assert (told.gpus_now, told.gpus_then, told.free_gpus) == (16, 48, 24)
    assert (told.to_place, told.placed) == (2, 1)


def test_what_restarts_gives_its_gpus_back() -> None:
    world = settled(LARGE, nodes=2)
    new = altered(LARGE, workload={"maxModelLength": 16384})

    told = change(standing(world.store.observe(world.key)), new, parse_spec(new))

    assert (told.free_gpus, told.to_place, told.placed) == (0, 1, 1)


def test_groups_that_wait_already_are_no_change() -> None:
    spec = altered(LARGE, replicas=3)
    world = settled(spec, nodes=2)

    told = change(standing(world.store.observe(world.key)), spec, parse_spec(spec))
    other = change(
        standing(world.store.observe(world.key)),
        altered(spec, replicas=4),
        parse_spec(altered(spec, replicas=4)),
    )

    text = rendered("llama", told, width=100, color=False)
    assert told.then > told.now
    assert (told.is_nothing, other.is_nothing) == (True, False)
    assert text.startswith("llama: nothing changes\n")
    assert "group of 2 pods wanted already, and not made yet" in text


def test_a_rollout_that_is_under_way_is_no_change() -> None:
    # The applied file was said to restart the groups whose turn had not come yet, with exit code 1.
    spec = altered(SMALL, rollout={"maxSurge": 0})
    new = altered(spec, engine={"env": [{"name": "A", "value": "b"}]})
    later = altered(spec, engine={"env": [{"name": "A", "value": "c"}]})
    world = settled(spec, nodes=4)
    world.edit(lambda live: live.update(copy.deepcopy(new)))
    world.reconcile()
    observed = world.store.observe(world.key)

    told, back, other, paused = (
        change(standing(observed), each, parse_spec(each))
        for each in (new, spec, later, altered(new, rollout={"paused": True}))
    )

    text = rendered("llama", told, width=100, color=False)
    assert (told.restarting, told.is_nothing) == ((0, 1), True)
    assert text.startswith("llama: nothing changes\n")
    assert "Groups 0, 1 restart in the rollout that is under way." in text
    assert [each.is_nothing for each in (back, other, paused)] == [False, False, False]

    world.edit(lambda live: (live.clear(), live.update(copy.deepcopy(spec))))
    world.reconcile()
    undone = change(standing(world.store.observe(world.key)), spec, parse_spec(spec))
    assert undone.is_nothing


@pytest.mark.parametrize(
    ("paused", "nothing"), [(True, True), (False, False)], ids=["paused still", "paused no more"]
)
def test_what_is_held_back_already_is_no_change(paused: bool, nothing: bool) -> None:
    new = altered(SMALL, engine={"env": [{"name": "A", "value": "b"}]}, rollout={"paused": True})
    world = settled(SMALL, nodes=4)
    world.edit(lambda live: live.update(copy.deepcopy(new)))
    world.settle()
    applied = altered(new, rollout={"paused": paused})

    told = change(standing(world.store.observe(world.key)), applied, parse_spec(applied))

    assert (told.restarting, told.held, told.is_nothing) == ((0, 1), paused, nothing)


def test_a_resource_that_is_not_there_is_all_new() -> None:
    world = SimulatedWorld(LARGE, nodes=2)
    world.remove("ModelDeployment", "llama")

    told = change(standing(world.store.observe(world.key)), LARGE, parse_spec(LARGE))

    assert (told.now, told.then, told.gpus_now, told.gpus_then, told.placed) == (0, 1, 0, 16, 1)
    assert told.new is not None
    assert told.old is None
    assert rendered("llama", told, width=100, color=False).startswith("llama: new, nothing of it runs yet\n")
    assert "1 group of 2 pods would be made" in rendered("llama", told, width=100, color=False)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    world = settled(LARGE, nodes=2)
    for new in (
        altered(LARGE, parallelism={"tensor": 4}),
        altered(LARGE, parallelism={"tensor": 7}),
        altered(LARGE, engine={"env": [{"name": "A", "value": "b"}]}),
    ):
        told = change(standing(world.store.observe(world.key)), new, parse_spec(new))
        text = rendered("llama", told, width=columns, color=False)
        assert [line for line in text.splitlines() if len(line) > columns] == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        pytest.param((), 0, "nothing changes", id="nothing"),
        pytest.param(("--max-model-len", "16384"), 1, "--max-model-len 8192 -> 16384", id="a restart"),
        pytest.param(("--concurrency", "16"), 1, "changes, and no pod restarts", id="no restart"),
        pytest.param(("--nodes", "1"), 3, "Refused: Does not fit", id="refused"),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int, said: str, run: Run) -> None:
    answer = run("diff", "-f", BIG, "--against", BIG, *arguments)

    assert (answer.code, answer.err) == (code, "")
    assert said in " ".join(answer.out.split())


def test_a_missed_service_level_says_by_how_much(run: Run) -> None:
    answer = run("diff", "-f", BIG, "--against", BIG, "--tpot", "40ms", "--ttft", "1s")

    (line,) = [" ".join(line.split()) for line in answer.out.splitlines() if "service level" in line]
    assert re.fullmatch(
        r"service level met \(predicted\) missed by \d+ % per output token, \d+ % to first token", line
    )


def test_json_has_both_plans(run: Run) -> None:
    answer = run("diff", "-f", BIG, "--against", BIG, "--tensor", "4", "-o", "json")

    record = json.loads(answer.out)
    sizes = [record["plan"][when]["tensorParallel"] for when in ("now", "then")]
    assert (answer.code, sizes) == (1, [8, 4])
    assert (record["restarting"], record["changes"], record["accepted"]) == ([0], True, True)
    assert "--tensor-parallel-size 8 -> 4" in record["podChanges"]


def test_the_cluster_is_the_default(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled(LARGE, nodes=2)
    asked = []

    def observe(kubeconfig: str | None, namespace: str | None, name: str) -> Any:
        asked.append((kubeconfig, namespace, name))
        return world.store.observe(world.key)

    monkeypatch.setattr("shardwright_operator.cli.live.observe", observe)
    file = tmp_path / "new.yaml"
    document = {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": NAMESPACE},
        "spec": altered(LARGE, workload={"maxModelLength": 16384}),
    }
    file.write_text(yaml.safe_dump(document), encoding="utf-8")

    answer = run("diff", "-f", str(file))

    assert asked == [(None, NAMESPACE, "llama")]
    assert (answer.code, answer.err) == (1, "")
    assert "Group 0: all pods restart" in answer.out


def test_a_file_without_replicas_leaves_those_of_an_autoscaler(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = settled({**LARGE, "replicas": 2}, nodes=4)
    monkeypatch.setattr("shardwright_operator.cli.live.observe", lambda *_: world.store.observe(world.key))
    spec = {key: value for key, value in LARGE.items() if key != "replicas"}
    file = tmp_path / "new.yaml"
    document = {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama"},
        "spec": spec,
    }
    file.write_text(yaml.safe_dump(document), encoding="utf-8")

    assert run("diff", "-f", str(file)).code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param((), "a manifest must be given with -f", id="no file"),
        pytest.param(
            ("-f", BIG, "--against", str(EXAMPLES / "llama-3.1-8b.yaml")),
            "has no ModelDeployment 'llama-405b' to compare with",
            id="another resource",
        ),
        pytest.param(("-f", BIG, "--kubeconfig", "/nowhere"), "no kubeconfig at /nowhere", id="no cluster"),
    ],
)
def test_refusals_are_one_line(arguments: tuple[str, ...], said: str, run: Run) -> None:
    answer = run("diff", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"metadata": ["llama"]}, "has no ModelDeployment 'llama'", id="metadata is a list"),
        pytest.param({"spec": "llama"}, "llama: spec is a text", id="spec is a text"),
        pytest.param(
            {"spec": {**SMALL, "hardware": "H100"}}, "spec.hardware is 'H100'", id="hardware is a text"
        ),
    ],
)
def test_a_malformed_file_to_compare_with_is_refused_in_one_line(
    changes: dict[str, Any], said: str, run: Run, tmp_path: Path
) -> None:
    # Only the new file was looked at before it was taken apart: these ended with a traceback.
    good = {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama"},
        "spec": altered(SMALL, hardware={"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 1}),
    }
    new, old = tmp_path / "new.yaml", tmp_path / "old.yaml"
    new.write_text(yaml.safe_dump(good), encoding="utf-8")
    old.write_text(yaml.safe_dump({**good, **changes}), encoding="utf-8")

    answer = run("diff", "-f", str(new), "--against", str(old))
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err


def container(**parts: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "engine", "image": "a:1", **parts}]}}


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        pytest.param(container(), container(), [], id="nothing"),
        pytest.param(container(), container(image="a:2"), ["engine.image: a:1 -> a:2"], id="image"),
        pytest.param(
            container(args=["--port", "1", "--", "vllm", "--port", "2"]),
            container(args=["--port", "1", "--", "vllm", "--port", "3", "--trust"]),
            ["--port (2) 2 -> 3", "--trust is new"],
            id="arguments of two programs",
        ),
        pytest.param(
            container(env=[{"name": "A", "value": "secret"}]),
            container(env=[{"name": "A", "value": "other"}, {"name": "B", "value": "x"}]),
            ["engine.env.A.value: another value", "engine.env: B is new"],
            id="environment, whose values are not shown",
        ),
        pytest.param(container(), None, ["the number of pods in a group"], id="no workers any more"),
    ],
)
def test_words_for_what_differs_in_pods(
    old: dict[str, Any], new: dict[str, Any] | None, lines: list[str]
) -> None:
    assert pod_changes(old, new) == lines
    assert "secret" not in " ".join(lines)


def test_a_rollout_that_waits_for_something_is_told_with_what_the_operator_says_of_it() -> None:
    # "Group 0 restarts in the rollout that is under way", and for as long as a Secret was missing none did.
    world = settled(SMALL, nodes=4)
    world.settings = dataclasses.replace(world.settings, check_image="shardwright:1")
    key = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "door", "key": "api"}}}
    new = altered(SMALL, engine={"env": [key]})
    world.edit(lambda live: live.update(copy.deepcopy(new)))
    world.settle()

    told = change(standing(world.store.observe(world.key)), new, parse_spec(new))
    text = " ".join(rendered("llama", told, width=100, color=False).split())
    assert "restart in the rollout that is under way. - The operator says of it: CheckingReferences: " in text
