"""Settings, logs, metrics, health and the watches' wiring."""

import asyncio
import io
import json
import logging
import os
import pty
import socket
import subprocess
import sys
import threading
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fake_cluster import FakeCluster
from shardwright_operator import handlers, logs
from shardwright_operator.api.constants import MANAGED_BY_VALUE
from shardwright_operator.api.gang import Gang
from shardwright_operator.cluster import (
    KINDS,
    AlreadyExistsError,
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from shardwright_operator.cluster.connection import NoClusterError, connect
from shardwright_operator.cluster.errors import error_from_answer
from shardwright_operator.cluster.kinds import kind_named
from shardwright_operator.ending import EXIT_BAD_INPUT
from shardwright_operator.health import HealthServer
from shardwright_operator.main import Operator
from shardwright_operator.metrics import Metrics, state_of
from shardwright_operator.observe.projection import project_resource
from shardwright_operator.preflight import find_gang_obstacles, find_obstacles
from shardwright_operator.queue import Run
from shardwright_operator.served_crd import ServedCrd
from shardwright_operator.settings import (
    LogFormat,
    LogLevel,
    Settings,
    SettingsError,
    add_arguments,
    settings_from,
)
from shardwright_operator.watch_session import Heard
from shardwright_operator.watching import watch


def parsed(*arguments: str) -> dict[str, Any]:
    parser = ArgumentParser()
    add_arguments(parser)
    return vars(parser.parse_args(arguments))


def test_flags_win_over_variables_and_variables_over_defaults() -> None:
    environment = {
        "SHARDWRIGHT_WORKERS": "3",
        "SHARDWRIGHT_LOG_FORMAT": "text",
        "SHARDWRIGHT_OPERATOR_VERSION": "9.9.9",
        "SHARDWRIGHT_NAMESPACES": "a, b",
        "SHARDWRIGHT_GANGS": "Kubernetes, Kueue",
        "SHARDWRIGHT_LEADER_ELECTION": "false",
        "POD_NAMESPACE": "ops",
    }
    found = settings_from(parsed("--workers", "5", "--resync-interval", "60"), environment)
    assert found == Settings(
        workers=5,
        resync_interval_s=60,
        log_format=LogFormat.TEXT,
        operator_version="9.9.9",
        namespaces=("a", "b"),
        gangs=(Gang.KUBERNETES, Gang.KUEUE),
        leader_election=False,
        lease_namespace="ops",
    )
    assert not found.cluster_wide


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param((), 1000, id="by default"),
        pytest.param(("--engine-user", "2000"), 2000, id="another"),
        pytest.param(("--engine-user", "namespace"), None, id="the cluster's choice"),
    ],
)
def test_user_of_the_engines(arguments: tuple[str, ...], want: int | None) -> None:
    assert settings_from(parsed(*arguments), {}).user_id == want


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("--workers", "many"), "--workers (or SHARDWRIGHT_WORKERS)", id="not a number"),
        pytest.param(("--health-port", "70000"), "--health-port", id="out of range"),
        pytest.param(("--log-format", "xml"), "--log-format", id="not one of"),
        pytest.param(("--gangs", "Slurm"), "--gangs", id="not a gang scheduler"),
        pytest.param(("--engine-user", "0"), "--engine-user", id="root"),
    ],
)
def test_bad_settings_are_refused_by_name(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from(parsed(*arguments), {})
    assert message in str(caught.value)
    assert arguments[1] in str(caught.value)


def test_json_logs_are_one_object_a_line_with_the_fields() -> None:
    stream = io.StringIO()
    before = logging.getLogger().handlers[:]
    try:
        logs.configure(LogFormat.JSON, LogLevel.INFO, stream)
        logger = logging.getLogger("shardwright_operator.test")
        logger.info("applied", extra={"key": "ns/a", "kind": "Service", "name_": "a", "why": "it\nis new"})
        logger.debug("not written")
        logging.getLogger("kopf.x").info("not written")
        try:
            _ = 1 / 0
        except ZeroDivisionError:
            logger.exception("failed")
    finally:
        logging.getLogger().handlers[:] = before
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert {name: first[name] for name in first if name != "time"} == {
        "level": "info",
        "logger": "shardwright_operator.test",
        "message": "applied",
        "key": "ns/a",
        "kind": "Service",
        "name": "a",
        "why": "it\nis new",
    }
    assert "ZeroDivisionError" in second["exception"]


def test_text_logs_are_for_people() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "applied", (), None)
    record.key, record.name_ = "ns/a", "a"
    record.created, record.msecs = 0.0, 5.0
    assert (
        logs.TextFormatter().format(record) == "1970-01-01T00:00:00.005Z INFO    applied  [key=ns/a name=a]"
    )


def resource(name: str, replicas: int, ready: int, *conditions: tuple[str, str]) -> Any:
    return project_resource(
        {
            "metadata": {"namespace": "n", "name": name},
            "spec": {"replicas": replicas},
            "status": {
                "readyReplicas": ready,
                "conditions": [{"type": type_, "status": status} for type_, status in conditions],
            },
        }
    )


def test_metrics_count_and_read_live_values() -> None:
    resources = [
        resource("a", 2, 2, ("Ready", "True")),
        resource("b", 3, 0, ("Ready", "False"), ("Stalled", "True")),
        resource("c", 1, 0),
    ]
    assert [state_of(r) for r in resources] == ["ready", "stalled", "reconciling"]
    metrics = Metrics()
    metrics.watch(version="1.2.3", depth=lambda: 4, waiting=lambda: 5, resources=lambda: iter(resources))
    metrics.reconciled(Run(seconds=0.2))
    metrics.reconciled(Run(seconds=0.2, error="Forbidden"))
    metrics.requested("patch", "Service", 201, 0.01)
    metrics.leading(True)
    text = metrics.expose().decode()
    for line in (
        'shardwright_info{version="1.2.3"} 1.0',
        "shardwright_reconcile_total 2.0",
        'shardwright_reconcile_errors_total{reason="Forbidden"} 1.0',
        "shardwright_reconcile_duration_seconds_count 2.0",
        'shardwright_api_requests_total{code="201",kind="Service",verb="patch"} 1.0',
        "shardwright_queue_depth 4.0",
        "shardwright_queue_waiting 5.0",
        'shardwright_resources{state="ready"} 1.0',
        'shardwright_resources{state="stalled"} 1.0',
        "shardwright_groups 6.0",
        "shardwright_groups_ready 2.0",
        "shardwright_leader 1.0",
    ):
        assert line in text.splitlines()
    assert Metrics().registry is not metrics.registry


def test_metrics_read_what_is_worked_on_now_after_a_second_beginning() -> None:
    # Two series of one name: Prometheus refuses the whole scrape.
    metrics = Metrics()
    for depth in (4, 7):
        metrics.watch(
            version="1.2.3", depth=lambda depth=depth: depth, waiting=lambda: 0, resources=lambda: iter(())
        )
    lines = metrics.expose().decode().splitlines()
    assert [line for line in lines if line.startswith("shardwright_queue_depth")] == [
        "shardwright_queue_depth 7.0"
    ]


@pytest.mark.parametrize("one_port", [False, True], ids=["two ports", "one port"])
async def test_health_server_answers(one_port: bool, unused_port: int) -> None:
    wrong: list[str] = []
    server = HealthServer(
        host="127.0.0.1",
        health_port=unused_port if one_port else 0,
        metrics_port=unused_port if one_port else 0,
        alive=lambda: wrong,
        ready=lambda: ["no CRD"],
        expose=lambda: b"metric 1\n",
    )
    await server.start()
    try:
        assert (server.health_port == server.metrics_port) is one_port
        async with aiohttp.ClientSession() as session:

            async def ask(port: int, path: str) -> tuple[int, str]:
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    return answer.status, await answer.text()

            assert await ask(server.health_port, "/healthz") == (200, "ok\n")
            wrong.append("a pass hangs")
            assert await ask(server.health_port, "/healthz") == (503, "a pass hangs\n")
            assert await ask(server.health_port, "/readyz") == (503, "no CRD\n")
            assert await ask(server.metrics_port, "/metrics") == (200, "metric 1\n")
    finally:
        await server.stop()


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("status", "answer", "want"),
    [
        pytest.param(404, {}, NotFoundError, id="not found"),
        pytest.param(409, {"reason": "Conflict"}, ConflictError, id="conflict"),
        pytest.param(409, {"reason": "AlreadyExists"}, AlreadyExistsError, id="already exists"),
        pytest.param(422, {"message": "spec.x"}, InvalidError, id="invalid"),
        pytest.param(400, {}, InvalidError, id="bad request"),
        pytest.param(403, {}, ForbiddenError, id="forbidden"),
        pytest.param(429, {}, UnavailableError, id="throttled"),
        pytest.param(500, {}, UnavailableError, id="server fault"),
        pytest.param(401, {}, UnavailableError, id="token rotated"),
    ],
)
def test_answers_map_to_the_few_errors(status: int, answer: dict[str, str], want: type[ClusterError]) -> None:
    error = error_from_answer(status, answer, "7")
    assert (type(error), error.status, error.retry_after_s) == (want, status, 7.0)
    assert str(error)


@pytest.mark.parametrize("header", [None, "", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_retry_after_that_is_no_number_is_ignored(header: str | None) -> None:
    assert error_from_answer(503, {}, header).retry_after_s is None


def test_paths_of_kinds() -> None:
    assert kind_named("Service").path("ns", "a") == "/api/v1/namespaces/ns/services/a"
    assert kind_named("Node").path("ns") == "/api/v1/nodes"
    assert kind_named("ModelDeployment").path("ns", "a", "status") == (
        "/apis/shardwright.dev/v1alpha1/namespaces/ns/modeldeployments/a/status"
    )
    assert kind_named("StatefulSet").path(None) == "/apis/apps/v1/statefulsets"


async def test_a_missing_kubeconfig_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NoClusterError, match="nowhere"):
        await connect(str(tmp_path / "nowhere"))


def operator_without_a_cluster(missing: Path, stderr: int) -> int:
    command = [sys.executable, "-m", "shardwright_operator.cli", "operator", "--kubeconfig", str(missing)]
    return subprocess.run(command, stderr=stderr, check=False, timeout=60).returncode


def test_a_person_without_a_kubeconfig_is_told_so_in_plain_words(tmp_path: Path) -> None:
    # A line of JSON on a terminal, with a logger's name in it, looked like a crash.
    reader, terminal = pty.openpty()
    code = operator_without_a_cluster(tmp_path / "nowhere", terminal)
    os.close(terminal)
    said = os.read(reader, 65536).decode()
    os.close(reader)
    assert code == EXIT_BAD_INPUT
    assert said.replace("\r\n", "\n") == (
        f"shardwright: no kubeconfig at {tmp_path / 'nowhere'}; give --kubeconfig, set KUBECONFIG, or run "
        "inside a pod.\n"
    )


def test_a_missing_kubeconfig_is_a_line_of_json_where_logs_are_gathered(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        code = operator_without_a_cluster(tmp_path / "nowhere", log.fileno())
    line = json.loads((tmp_path / "log").read_text())
    assert (code, line["level"]) == (EXIT_BAD_INPUT, "error")
    assert line["message"].startswith("no kubeconfig at ")


async def test_json_as_deep_as_the_api_server_keeps_it_can_be_read(tmp_path: Path) -> None:
    """One such resource would otherwise end every watch, and every operator that starts."""
    levels = 9900
    limit = sys.getrecursionlimit()
    try:
        code = await Operator(Settings(kubeconfig=str(tmp_path / "nowhere"))).run(asyncio.Event())
        read = json.loads('{"a":' * levels + "1" + "}" * levels)
    finally:
        sys.setrecursionlimit(limit)

    assert code == EXIT_BAD_INPUT
    assert list(read) == ["a"]


@pytest.mark.parametrize(
    ("version", "kinds", "want"),
    [
        pytest.param("v1.36.3", {"ModelDeployment"}, [], id="fine"),
        pytest.param("v1.31.9-gke.1", {"ModelDeployment"}, ["v1.31.9-gke.1 is too old"], id="too old"),
        pytest.param("v1.36.3", set(), ["install the CRD"], id="no CRD"),
    ],
)
async def test_preflight_says_what_to_do(version: str, kinds: set[str], want: list[str]) -> None:
    class Found(FakeCluster):
        async def server_version(self) -> str:
            return version

        async def served_kinds(self, group: str, version: str) -> frozenset[str]:
            return frozenset(kinds)

    cluster = Found()
    obstacles = await find_obstacles(cluster, ServedCrd(cluster))
    assert len(obstacles) == len(want)
    assert all(part in text for part, text in zip(want, obstacles, strict=True))


async def test_gang_schedulers_that_cannot_be_used_say_what_to_do() -> None:
    cluster = FakeCluster(served=frozenset({"ModelDeployment"}))
    found = await find_gang_obstacles(cluster, (Gang.VOLCANO,))
    assert found.keys() == set(Gang)
    assert found[Gang.VOLCANO] == (
        "the cluster does not serve PodGroup (scheduling.volcano.sh/v1beta1): install Volcano"
    )
    assert "gang.kueue=true (chart), or start it with --gangs=Kueue" in found[Gang.KUEUE]
    # Of those that nobody switched on nothing is asked.
    assert [name for verb, kind, name in cluster.calls] == ["scheduling.volcano.sh"]
    cluster = FakeCluster(served=frozenset({"PodGroup", "Workload"}))
    assert await find_gang_obstacles(cluster, tuple(Gang)) == {}


def test_kopf_is_set_to_watch_and_to_write_nothing() -> None:
    kinds = tuple(kind for kind in KINDS if kind.watched)
    registry = handlers.make_registry(
        kinds,
        None,
        lambda *_: None,
        Heard(listed=lambda _kind: None, unserved=lambda _kind: None),
        give_up=lambda: None,
        ending=lambda: None,
    )
    # Handlers that would store state on the user's objects, or make finalizers, must not exist.
    assert len(list(registry._watching.get_all_handlers())) == len(kinds)
    assert list(registry._changing.get_all_handlers()) == []
    assert list(registry._spawning.get_all_handlers()) == []
    assert list(registry._indexing.get_all_handlers()) == []
    assert list(registry._webhooks.get_all_handlers()) == []
    # Its own end is all that kopf tells of besides: it may take for ever.
    activities = sorted(str(handler.activity) for handler in registry._activities.get_all_handlers())
    assert activities == ["authentication", "cleanup"]
    settings = handlers.make_settings(kinds)
    assert not settings.posting.enabled
    assert settings.scanning.disabled
    assert settings.peering.standalone
    selectors = [str(selector) for selector in settings.watching.label_selectors.values()]
    assert len(selectors) == 8 + len(Gang)
    assert all(MANAGED_BY_VALUE in selector for selector in selectors)


def test_kopf_is_known_to_the_watching_modules_alone() -> None:
    package = Path(handlers.__file__).parent
    users = {path.name for path in package.rglob("*.py") if "import kopf" in path.read_text()}
    assert users == {"handlers.py", "statelessness.py", "watching.py"}
    assert len(Path(handlers.__file__).read_text().splitlines()) < 100


def test_a_watch_that_cannot_log_in_ends_instead_of_hanging(tmp_path: Path) -> None:
    stop = threading.Event()
    failures: list[str] = []

    def target() -> None:
        try:
            watch(
                KINDS[:1],
                (),
                str(tmp_path / "nowhere"),
                lambda *_: None,
                lambda _kind: None,
                ending=lambda: None,
                stop=stop,
            )
        except Exception as failure:  # noqa: BLE001 - compared below
            failures.append(str(failure))

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(20)
    assert (thread.is_alive(), stop.is_set()) == (False, True)
    assert failures == ["One or more handlers failed."]


CONTEXT = {"name": "c", "context": {"cluster": "c", "user": "u"}}
SERVER = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
USER = {"name": "u", "user": {"token": "t"}}


def kubeconfig(**sections: Any) -> dict[str, Any]:
    return {"current-context": "c", "contexts": [CONTEXT], "clusters": [SERVER], "users": [USER], **sections}


def cluster_with(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "c", "cluster": {**SERVER["cluster"], **fields}}]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"garbage", id="no mapping"),
        pytest.param(b"a: [\n", id="no YAML"),
        pytest.param(b"\xa4\xff\x00", id="no text"),
        pytest.param(b"[1, 2]", id="a list"),
        pytest.param(kubeconfig(users=[]), id="no user"),
        pytest.param(kubeconfig(users=[{"name": "u", "user": "x"}]), id="a user that is a text"),
        pytest.param(
            kubeconfig(users=[{"name": "u", "user": {"tokenFile": "/nowhere"}}]), id="no token file"
        ),
        pytest.param(kubeconfig(clusters=cluster_with(server=5)), id="a server that is a number"),
        pytest.param(kubeconfig(clusters=cluster_with(server="here")), id="a server without a scheme"),
        pytest.param(kubeconfig(clusters=[{"name": "c", "cluster": {}}]), id="no server"),
        pytest.param(
            kubeconfig(clusters=cluster_with(**{"certificate-authority-data": "aGVsbG8="})),
            id="no certificate",
        ),
        pytest.param(kubeconfig(**{"current-context": "other"}), id="another context"),
    ],
)
async def test_a_kubeconfig_that_is_none_is_refused_in_one_line(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "config"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(NoClusterError) as caught:
        await connect(str(path))
    assert "\n" not in str(caught.value)
    assert "config" in str(caught.value)


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig()))
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "shardwright_operator.cli", "operator", "--log-format", "text"),
                *("--kubeconfig", str(path), "--health-port", str(port), "--metrics-port", "0"),
            ],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == EXIT_BAD_INPUT
    assert len(done.stderr.splitlines()) == 1
    assert f"{port}): address already in use; give others with --health-port" in done.stderr
