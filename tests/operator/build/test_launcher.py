"""The launcher's place in a pod: its words before the engine's, its files, and the way to do without."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright_operator import launcher as sources
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build import launcher
from shardwright_operator.build.owner import Manifest, Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.template import render_templates
from shardwright_operator.launcher.options import parse
from shardwright_planner.plan import Plan

MODEL = {"model": {"name": "meta-llama/Llama-3.1-8B-Instruct"}}


def rendered(owner: Owner, plan: Plan, **engine: object) -> list[Manifest]:
    templates = render_templates(parse_spec({**MODEL, "engine": engine}), plan, PoolSelection(), owner)
    return [template["spec"] for template in templates if template is not None]


def words(pod: Manifest) -> list[str]:
    (container,) = pod["containers"]
    return [*container["command"], *container["args"]]


@pytest.mark.parametrize("executor", ["mp", "ray"])
def test_engine_stands_in_plain_sight_after_the_launcher(
    owner: Owner, two_nodes: Plan, executor: str
) -> None:
    with_it = rendered(owner, two_nodes, executor=executor)
    bare = rendered(owner, two_nodes, executor=executor, launcher=False)
    for pod, other in zip(with_it, bare, strict=True):
        place = words(pod).index("--")
        assert words(pod)[:2] == ["python3", "/opt/shardwright/launcher.py"]
        assert words(pod)[place + 1 :] == words(other)
        assert "launcher" not in {volume["name"] for volume in other["volumes"]}


def test_what_the_operator_writes_the_launcher_reads(owner: Owner, two_nodes: Plan) -> None:
    leader, worker = rendered(owner, two_nodes, port=9000)
    read = [vars(parse([_expanded(w) for w in words(pod)[2:]])[0]) for pod in (leader, worker)]
    same = {
        "gpus": 8,
        "shared_memory": 10 * 1024**3,
        "memory": 28 * 1024**3,
        "rank": 1,
        "members": 2,
        "leader": "llama-0-leader-0",
        "peer_port": 29600,
        "start_within": 3850.0,
        "resolve_interface": True,
        "stop_within": 5.0,
    }
    assert {**read[0], **same} == read[0]
    assert {**read[1], **same} == read[1]
    assert [(r["port"], r["drain_within"]) for r in read] == [(9000, 35.0), (None, 35.0)]


def test_group_of_one_has_nobody_to_watch(owner: Owner, make_plan: Callable[..., Plan]) -> None:
    (leader,) = rendered(owner, make_plan())
    read = vars(parse(words(leader)[2:])[0])

    assert (read["members"], read["leader"], read["resolve_interface"]) == (1, "", False)


def test_engine_is_given_the_time_that_the_pod_has(owner: Owner, two_nodes: Plan) -> None:
    """The launcher's last word must come before the kubelet's."""
    for pod in rendered(owner, two_nodes):
        (container,) = pod["containers"]
        read = vars(parse([_expanded(w) for w in words(pod)[2:]])[0])
        delay = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        longest = read["drain_within"] if read["port"] else read["stop_within"]
        assert delay + longest < pod["terminationGracePeriodSeconds"]


def test_all_sources_are_mounted_where_python_looks(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    launcher.files.cache_clear()
    name = launcher.config_name(owner)
    config = launcher.launcher_config(owner, name)
    volume = launcher.launcher_volume(owner)["configMap"]
    mounted = {item["path"]: config["data"][item["key"]] for item in volume["items"]}
    expected = {
        ("" if path.name == "launcher.py" else "shardwright_operator/launcher/") + path.name
        for path in Path(sources.__file__).parent.glob("*.py")
    }

    assert set(mounted) == expected | {"shardwright_operator/__init__.py"}
    assert volume["name"] == name == config["metadata"]["name"]
    assert len(name) <= 63
    assert sum(map(len, config["data"].values())) < 100_000, (
        "a ConfigMap may hold 1 MiB, etcd would thank for less"
    )


def test_pods_with_an_older_launcher_s_files_run_the_newer_one(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A deleted ConfigMap comes back under its name; the pods' volumes name what the older one had."""
    monkeypatch.undo()
    launcher.files.cache_clear()
    config = launcher.launcher_config(owner, "llama-launcher-0123456789")
    newer = "shardwright_operator/launcher/start.py"
    for item in launcher.launcher_volume(owner)["configMap"]["items"]:
        if item["path"] != newer:
            file = tmp_path / item["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(config["data"][item["key"]])
    command = [
        sys.executable,
        "-I",
        "-S",
        "launcher.py",
        "--termination-log",
        "last",
        "--",
        "sh",
        "-c",
        "exit 3",
    ]

    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert (found.returncode, found.stderr.count("Traceback")) == (3, 0), found.stderr
    assert sum(map(len, config["data"].values())) < 200_000


def test_name_follows_the_content(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    before = launcher.config_name(owner)
    monkeypatch.setattr(launcher, "files", lambda: {"launcher.py": "run(2)\n"})

    assert launcher.config_name(owner) != before


def _expanded(word: str) -> str:
    values: dict[str, Any] = {"$(NODE_RANK)": "1", "$(LEADER_ADDRESS)": "llama-0-leader-0"}
    return str(values.get(word, word))
