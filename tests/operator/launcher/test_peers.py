"""Launchers of a group that watch each other over real sockets: each way to lose a rank is told in time."""

import os
import signal
import time
from typing import Any

import pytest

Launch = Any

WAITS = "import time; print('engine is up'); time.sleep(60)"


@pytest.fixture
def group(launch: Launch, free_port: int) -> Any:
    """Start a rank of a group of three whose leader is on this machine."""

    def start(rank: int, *options: str, members: int = 3, engine: str = WAITS, address: str = "") -> Any:
        return launch(
            *("--rank", str(rank), "--members", str(members), "--leader", "localhost"),
            *("--peer-port", str(free_port), "--peer-timeout", "1.6", "--stop-within", "0.5"),
            *options,
            engine=engine,
            SHARDWRIGHT_SKIP="address,interface",
            VLLM_HOST_IP=address or f"10.0.0.{rank}",
        )

    return start


def formed(leader: Any, *workers: Any) -> None:
    for rank in range(1, len(workers) + 1):
        leader.await_log(f"rank {rank} is there")
    for worker in workers:
        worker.await_log("rank 0 is there")


def test_quiet_group_is_left_alone(group: Any) -> None:
    ranks = [group(rank) for rank in range(3)]
    formed(*ranks)
    time.sleep(2.5)

    assert [rank.process.poll() for rank in ranks] == [None, None, None]


def test_engine_of_a_worker_that_ends_ends_all(group: Any) -> None:
    dies = "import time; time.sleep(3); print('CUDA error: unspecified launch failure')"
    ranks = [group(0), group(1, engine=dies), group(2)]
    formed(*ranks)
    leader, first, second = (rank.end() for rank in ranks)

    assert first[0] == 1
    assert first[1].startswith("shardwright: GpuLost: the engine ended with exit code 0: CUDA error")
    assert leader[0] == 70
    assert leader[1].startswith("shardwright: PeerLost: rank 1 has ended: GpuLost the engine ended with exit")
    assert second[1].startswith("shardwright: PeerLost: rank 0 has ended: PeerLost rank 1 has ended")


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGSTOP, id="silent")]
)
def test_lost_worker(group: Any, how: int) -> None:
    ranks = [group(rank) for rank in range(3)]
    formed(*ranks)
    before = time.monotonic()
    os.kill(ranks[2].process.pid, how)
    code, words = ranks[0].end()

    assert code == 70
    assert words.startswith("shardwright: PeerLost: rank 2 is silent for ")
    assert time.monotonic() - before < 6


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGSTOP, id="silent")]
)
def test_lost_leader(group: Any, how: int) -> None:
    ranks = [group(rank) for rank in range(3)]
    formed(*ranks)
    os.kill(ranks[0].process.pid, how)

    for worker in ranks[1:]:
        code, words = worker.end()
        assert code == 70
        assert words.startswith("shardwright: PeerLost: rank 0 cannot be reached for ")


def test_leader_that_starts_anew_is_another_group(group: Any) -> None:
    old, worker = group(0, members=2), group(1, members=2)
    formed(old, worker)
    old.process.kill()
    old.process.wait()
    group(0, members=2)

    code, words = worker.end()
    assert code == 70
    assert "rank 0 started anew; this rank belongs to the group before" in words


def test_worker_before_its_leader_waits_for_ever(group: Any) -> None:
    worker = group(1, members=2)
    worker.await_log("engine is up")
    time.sleep(2.5)
    assert worker.process.poll() is None

    formed(group(0, members=2), worker)


def test_planned_stop_is_no_loss(group: Any) -> None:
    leader, worker = group(0, members=2), group(1, members=2)
    formed(leader, worker)
    leader.stop()
    assert leader.end() == (128 + signal.SIGTERM, "")
    time.sleep(2.5)

    assert worker.process.poll() is None, (
        "its own stop signal comes when the leader has finished its requests"
    )
    worker.stop()
    assert worker.end() == (128 + signal.SIGTERM, "")


@pytest.mark.parametrize(
    ("second", "refusal"),
    [
        pytest.param({"rank": 1}, "rank 1 started anew or there are two of it", id="a rank twice"),
        pytest.param({"rank": 2, "members": 4}, "rank 2 of 4 in a group of 3", id="another size"),
        pytest.param(
            {"rank": 2, "address": "10.0.0.1"}, "has the address 10.0.0.1 of another rank", id="one IP"
        ),
    ],
)
def test_what_vllm_takes_and_then_hangs_on_is_refused(
    group: Any, second: dict[str, Any], refusal: str
) -> None:
    leader, worker = group(0), group(1)
    formed(leader, worker)
    group(**second)

    leader.await_log(f"refused a worker: {'rank 2 ' if 'address' in second else ''}{refusal}")
    assert leader.process.poll() is None


def test_rank_that_never_came_is_named(group: Any) -> None:
    gives_up = (
        "import time; time.sleep(2.5); raise RuntimeError('DistStoreError: Timed out. 2/3 clients joined.')"
    )
    leader, worker = group(0, engine=gives_up), group(1)
    formed(leader, worker)

    code, words = leader.end()
    assert code == 1
    assert words.startswith(
        "shardwright: RendezvousTimeout: the engine ended with exit code 1; never heard from rank 2"
    )


def test_strangers_on_the_port_do_no_harm(group: Any, free_port: int) -> None:
    import socket

    leader, worker = group(0, members=2), group(1, members=2)
    formed(leader, worker)
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"hello 1 2\n", b"\xff" * 9000, b""):
        with socket.create_connection(("localhost", free_port)) as stranger:
            stranger.sendall(said)
    time.sleep(2.5)

    assert [one.process.poll() for one in (leader, worker)] == [None, None]
