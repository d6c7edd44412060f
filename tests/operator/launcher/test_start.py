"""What the launcher says of an engine that is stopped before it has ever served.

A time of 10 s for the start is used up at once, as far as the launcher can know: the kubelet's first probe
may come at any moment of the first 10 s.
"""

import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from shardwright_operator.launcher.start import age_s

Launch = Any

USED_UP = ("--start-within", "10")
LASTS = ("--start-within", "1800")
JOINED = "rank 0 in world size 4 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank N/A"


def waiting(said: str = "loading", *, listens_at: int | None = None) -> str:
    """An engine that says something and then waits, as rank 0 does at its rendezvous port."""
    server = "" if listens_at is None else f"server = socket.create_server(('127.0.0.1', {listens_at}))\n"
    return f"import socket, time\n{server}print({said!r}); print('waits'); time.sleep(60)"


def stopped(launch: Launch, *options: str, engine: Any, **environment: str) -> tuple[int, str]:
    """Exit code and first line of the last words, after a stop signal."""
    running = launch(*options, engine=engine, **environment)
    running.await_log("waits")
    running.stop()
    code, words = running.end()
    return code, words.partition("\n")[0]


def test_rank_0_that_waits_at_its_port(launch: Launch, free_port: int) -> None:
    engine = ["python3", "-c", waiting(listens_at=free_port), "--master-port", str(free_port)]
    options = ("--members", "2", "--leader", "localhost", "--port", "1", *USED_UP)
    said = stopped(launch, *options, engine=engine, SHARDWRIGHT_SKIP="address,peers,interface")
    words = (
        "shardwright: RendezvousTimeout: the engine is not ready within 10 s: rank 0 waits at port "
        f"{free_port}, which the engines of the other ranks do not reach, though their launchers reach this "
        "one"
    )
    assert said == (70, words)


def test_rank_that_never_came(launch: Launch, free_port: int) -> None:
    options = ("--members", "3", "--port", "1", "--peer-port", str(free_port), "--leader", "localhost")
    said = stopped(launch, *options, *USED_UP, engine=waiting(), SHARDWRIGHT_SKIP="address,interface")
    assert said == (
        70,
        "shardwright: RendezvousTimeout: the engine is not ready within 10 s; never heard from rank 1, 2",
    )


@pytest.mark.parametrize(
    ("said", "words"),
    [
        pytest.param(
            JOINED,
            "StartupTimeout: the engine is not ready within 10 s; if it was getting on, raise "
            "spec.recovery.startupTimeout",
            id="found each other, and then were slow",
        ),
        pytest.param(
            "ERROR (Worker_TP1) torch.OutOfMemoryError: CUDA out of memory.",
            "OutOfMemory: the engine is not ready within 10 s: ERROR (Worker_TP1) torch.OutOfMemoryError: "
            "CUDA out of memory.",
            id="its own words",
        ),
        pytest.param(
            "WARNING async output is not supported on this platform",
            "RendezvousTimeout: the engine is not ready within 10 s: rank 0 waits at port PORT, which the "
            "engines of the other ranks do not reach, though their launchers reach this one",
            id="a warning is no cause",
        ),
    ],
)
def test_how_far_it_got(launch: Launch, free_port: int, said: str, words: str) -> None:
    engine = ["python3", "-c", waiting(said, listens_at=free_port), "--master-port", str(free_port)]
    options = ("--members", "2", "--leader", "localhost", "--port", "1", *USED_UP)
    found = stopped(launch, *options, engine=engine, SHARDWRIGHT_SKIP="address,peers,interface")
    assert found == (70, f"shardwright: {words.replace('PORT', str(free_port))}")


def test_engine_of_one_pod(launch: Launch) -> None:
    code, words = stopped(launch, "--port", "1", *USED_UP, engine=waiting())
    assert (code, words.partition(": the")[0]) == (70, "shardwright: StartupTimeout")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--port", "1", *LASTS), id="there is time left: somebody else wants it so"),
        pytest.param(USED_UP, id="a worker has no probe"),
    ],
)
def test_stop_that_explains_itself(launch: Launch, options: tuple[str, ...]) -> None:
    assert stopped(launch, *options, engine=waiting()) == (128 + signal.SIGTERM, "")


def test_engine_that_has_served_is_not_late(launch: Launch, free_port: int) -> None:
    engine = f"""
import socket, time
server = socket.create_server(("127.0.0.1", {free_port}))
server.accept(); server.close()
print("waits"); time.sleep(60)
"""
    assert stopped(launch, "--port", str(free_port), *USED_UP, engine=engine) == (128 + signal.SIGTERM, "")


def test_name_of_the_leader_is_given_up_before_the_probe_is(launch: Launch) -> None:
    code, words = launch(
        *("--members", "2", "--port", "1", "--leader", "no-such-name.invalid", *USED_UP),
        engine="print('started')",
        SHARDWRIGHT_SKIP="address",
    ).end()
    assert (code, words.partition(" (")[0]) == (
        78,
        "shardwright: RendezvousTimeout: the leader's name no-such-name.invalid does not resolve after 0 s",
    )


def test_verdict_stands_though_a_stop_follows(launch: Launch, free_port: int) -> None:
    """The operator takes the group down while the engine is still ending."""
    engine = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('waits'); time.sleep(60)"
    )
    options = ("--members", "2", "--rank", "1", "--leader", "localhost", "--peer-port", str(free_port))
    with socket.create_server(("127.0.0.1", free_port)) as leader:
        running = launch(
            *options,
            *("--peer-timeout", "4", "--stop-within", "3"),
            engine=engine,
            SHARDWRIGHT_SKIP="address,interface",
        )
        connection, _ = leader.accept()
        connection.sendall(b"welcome abc\nbye GpuLost: fallen off\n")
        running.await_log("ending the engine")
        running.stop()
        code, words = running.end()
        connection.close()
    assert (code, words.partition("\n")[0]) == (
        70,
        "shardwright: PeerLost: rank 0 has ended: GpuLost: fallen off",
    )


def test_age_is_that_of_the_process(tmp_path: Path) -> None:
    began = time.monotonic()
    first = age_s()
    time.sleep(0.2)
    assert 0.1 < age_s() - first <= time.monotonic() - began + 0.05
    (tmp_path / "stat").write_text("")
    assert age_s(tmp_path / "stat") == 0
