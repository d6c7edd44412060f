"""``explain``: a resource's plan out of the cluster, planned against measured."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from shardwright_operator.cli import explain
from shardwright_operator.cluster.errors import ClusterError, ForbiddenError, NotFoundError, UnavailableError
from shardwright_operator.served_crd import NOT_SERVED
from simulated_world import SimulatedWorld

Run = Callable[..., Any]

LOADED = {
    "group": 0,
    "kvCacheBlocks": 20_000,
    "kvBlockTokens": 16,
    "kvCacheTokens": 320_000,
    "maxModelLength": 8192,
    "startupSeconds": 95,
    "load": {
        "requests": 400,
        "running": 30.0,
        "inputTokens": 1000.0,
        "timePerOutputTokenMs": 21.0,
        "timeToFirstTokenMs": 180.0,
        "preemptions": 0,
    },
}


@pytest.fixture
def status() -> dict[str, Any]:
    world = SimulatedWorld(
        {
            "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
            "workload": {"inputTokens": 1000, "outputTokens": 200, "maxModelLength": 8192},
            "slo": {"concurrency": 32},
        }
    )
    world.settle()
    return world.status


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, status: dict[str, Any]) -> dict[str, Any]:
    """The one object in the cluster, and what was asked for."""
    asked: dict[str, Any] = {"status": status}

    def read(kubeconfig: str | None, namespace: str | None, name: str) -> Mapping[str, Any]:
        asked["for"] = (kubeconfig, namespace, name)
        return {"status": asked["status"]}

    monkeypatch.setattr(explain, "_read", read)
    return asked


def test_plan_and_measurement(run: Run, cluster: dict[str, Any]) -> None:
    cluster["status"]["measured"] = LOADED
    cluster["status"]["conditions"].append(
        {"type": "PlanVerified", "status": "True", "message": "the KV cache holds 320,000 tokens"}
    )
    answer = run("explain", "llama", "-n", "serving")
    planned = cluster["status"]["plan"]["kvCacheTokens"]

    assert (answer.code, answer.err, cluster["for"]) == (0, "", (None, "serving", "llama"))
    assert answer.out.startswith("meta-llama/Llama-3.1-8B-Instruct: ")
    row = next(line for line in answer.out.splitlines() if "KV cache, tokens" in line)
    assert row.split() == [
        "KV",
        "cache,",
        "tokens",
        f"{planned:,}",
        "320,000",
        f"{320_000 / planned - 1:+.0%}",
    ]
    assert "PlanVerified=True: the KV cache holds 320,000 tokens" in answer.out
    assert max(map(len, answer.out.splitlines()[:-1])) <= 100


def test_line_that_can_be_sent_back(run: Run, cluster: dict[str, Any]) -> None:
    cluster["status"]["measured"] = LOADED
    line = run("explain", "llama").out.splitlines()[-1]
    fields = dict(pair.split("=", 1) for pair in line.split()[1:])
    plan = cluster["status"]["plan"]
    bounds = plan["predicted"]["timePerOutputTokenMs"]

    assert line.startswith("shardwright-report/1 model=meta-llama/Llama-3.1-8B-Instruct ")
    assert fields["goal"] == "1000+200@32"
    assert fields["load"] == "1000@30"
    assert fields["kvTokens"] == f"{plan['kvCacheTokens']}/320000"
    assert fields["tpotMs"] == f"{bounds['low']:.3g}..{bounds['high']:.3g}/21"
    assert not any(word in line for word in ("llama-0", "node-", "serving")), "nobody's names"


def test_not_measured_yet(run: Run, cluster: dict[str, Any]) -> None:
    assert "Not measured yet." in run("explain", "llama").out


def test_json_has_the_measurement_beside_the_plan(run: Run, cluster: dict[str, Any]) -> None:
    cluster["status"]["measured"] = LOADED
    answer = json.loads(run("explain", "llama", "-o", "json").out)

    assert answer["measured"] == LOADED
    assert answer["plan"]["tensorParallel"] == 1


def test_load_beyond_the_plan_is_told(run: Run, cluster: dict[str, Any]) -> None:
    cluster["status"]["measured"] = {**LOADED, "load": {**LOADED["load"], "running": 300.0}}
    assert "The load is beyond what the plan was made for" in run("explain", "llama").out


def test_resource_without_a_plan(run: Run, cluster: dict[str, Any]) -> None:
    cluster["status"] = {
        "conditions": [
            {"type": "PlanAccepted", "status": "False", "message": "no usable node with a known GPU"}
        ]
    }
    answer = run("explain", "llama")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "shardwright: llama has no plan: no usable node with a known GPU.\n"


def test_reason_that_is_a_sentence_ends_in_one_full_stop(run: Run, cluster: dict[str, Any]) -> None:
    cluster["status"] = {
        "conditions": [{"type": "PlanAccepted", "status": "False", "message": "use 8, or leave it out."}]
    }
    assert run("explain", "llama").err == "shardwright: llama has no plan: use 8, or leave it out.\n"


def test_a_kubeconfig_that_is_not_there_is_told_in_one_line(run: Run, tmp_path: Any) -> None:
    answer = run("explain", "llama", "--kubeconfig", str(tmp_path / "none"))

    assert answer.code == 2
    assert "no kubeconfig at" in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ForbiddenError("not you", status=403), "the cluster refuses: not you"),
        (UnavailableError("no connection"), "the cluster does not answer: no connection"),
        (NotFoundError("404 page not found", status=404), NOT_SERVED),
    ],
    ids=["no-right", "no-connection", "no-crd"],
)
def test_refusal_is_told_from_silence(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: ClusterError, said: str
) -> None:
    async def fetch(*_: object) -> Mapping[str, Any]:
        raise error

    monkeypatch.setattr("shardwright_operator.cli.live._read_resource", fetch)
    answer = run("explain", "llama")

    assert (answer.code, answer.out, answer.err) == (2, "", f"shardwright: {said}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("",), "'' is no name of a ModelDeployment", id="an empty name is the whole list"),
        pytest.param(("../x",), "'../x' is no name of a ModelDeployment", id="a path"),
        pytest.param(("..",), "'..' is no name of a ModelDeployment", id="the folder above"),
        pytest.param(("llama", "-n", "a/b"), "'a/b' is no namespace", id="a namespace of two parts"),
    ],
)
def test_what_is_no_name_is_not_asked_for(arguments: tuple[str, ...], said: str, run: Run) -> None:
    answer = run("explain", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"shardwright: {said}: it has lower-case letters, digits, - and . alone.\n"
