"""The life of a container under the launcher: exit codes, signals, output and last words."""

import contextlib
import http.client
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tiny_hub

Launch = Any


@pytest.mark.parametrize(
    ("engine", "code", "reason"),
    [
        pytest.param(
            "print('Worker proc VllmWorker-3 died unexpectedly')", 1, "PeerLost", id="0 is no success"
        ),
        pytest.param("raise SystemExit(3)", 3, "Unknown", id="its own code stays"),
        pytest.param("import os; os.kill(os.getpid(), 9)", 137, "Unknown", id="killed"),
        pytest.param(
            "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')",
            1,
            "OutOfMemory",
            id="memory",
        ),
        pytest.param(
            "import sys; sys.exit('vllm serve: error: unrecognized arguments: --foo')",
            1,
            "ConfigRejected",
            id="arguments",
        ),
    ],
)
def test_end_of_an_engine_that_nobody_stopped(launch: Launch, engine: str, code: int, reason: str) -> None:
    ended, words = launch(engine=engine).end()

    assert ended == code
    assert words.splitlines()[0].startswith(f"shardwright: {reason}: the engine ")


def test_a_download_that_breaks_off_tells_how_much_is_there(launch: Launch, tmp_path: Path) -> None:
    """Each attempt goes on where the former one ended: whoever waits sees whether it gets on."""
    folder = tmp_path / "model"
    (folder / ".cache").mkdir(parents=True)
    (folder / "config.json").write_bytes(b"{}")
    (folder / ".cache" / "weights.incomplete").write_bytes(b"w" * 160 * 1024**2)
    engine = "import sys; sys.exit('ReadTimeout: the mirror is slow')"
    _, words = launch("--folder", str(folder), engine=engine).end()
    assert words.splitlines()[0].endswith("; 0.2 GiB are there by now")
    _, words = launch("--folder", str(tmp_path / "nowhere"), engine=engine).end()
    assert "GiB" not in words


def test_a_download_that_ends_well_has_succeeded(launch: Launch, tmp_path: Path) -> None:
    """Of an engine exit code 0 is a failure; a Job that never ends well would hold every group back."""
    assert launch("--folder", str(tmp_path), engine="print('downloaded')").end() == (0, "")
    assert launch("--folder", str(tmp_path), engine="raise SystemExit(3)").end()[0] == 3


def test_a_download_tells_how_much_is_there(launch: Launch, tmp_path: Path, free_port: int) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_bytes(b"w" * 123_456)
    options = ("--folder", str(folder), "--progress-port", str(free_port))
    running = launch(*options, engine="print('downloading', flush=True); import time; time.sleep(60)")
    running.await_log("downloading")
    asked = http.client.HTTPConnection("127.0.0.1", free_port, timeout=5)
    asked.request("GET", "/metrics")
    answer = asked.getresponse()

    assert (answer.status, answer.read().decode()) == (200, "shardwright_download_bytes 123456\n")
    asked.close()


def test_who_hangs_up_leaves_no_word_in_the_download_s_log(
    launch: Launch, tmp_path: Path, free_port: int
) -> None:
    (tmp_path / "weights").write_bytes(b"w")
    options = ("--folder", str(tmp_path), "--progress-port", str(free_port))
    running = launch(*options, engine="print('downloading', flush=True); import time; time.sleep(60)")
    running.await_log("downloading")
    for said in (b"GET / HT", b"GET / HTTP/1.1\r\n\r\n"):
        asked = socket.create_connection(("127.0.0.1", free_port), timeout=5)
        asked.sendall(said)
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        asked.close()
    patient = http.client.HTTPConnection("127.0.0.1", free_port, timeout=5)
    patient.request("GET", "/metrics")

    assert patient.getresponse().status == 200
    patient.close()
    time.sleep(0.5)
    assert running.logged().split("downloading")[1:] == ["\n"], running.logged()


def test_progress_of_a_real_download(launch: Launch, tmp_path: Path, free_port: int) -> None:
    """The Hub's own client under the launcher: what is written so far counts, in however many files."""
    with tiny_hub.serving() as hub:
        files = {"config.json": b"{}", "a.bin": os.urandom(400_000), "b.bin": os.urandom(2_000_000)}
        hub.models["a/b"] = tiny_hub.HubModel(files=files, bytes_per_s=400_000)
        folder = tmp_path / "model"
        program = str(Path(sys.executable).with_name("hf"))
        running = launch(
            *("--folder", str(folder), "--progress-port", str(free_port)),
            engine=[program, "download", "a/b", "--local-dir", str(folder)],
            HF_ENDPOINT=hub.endpoint,
            HOME=str(tmp_path),
            HF_HUB_DISABLE_XET="1",
        )
        seen: list[int] = []
        while running.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                asked = http.client.HTTPConnection("127.0.0.1", free_port, timeout=5)
                asked.request("GET", "/metrics")
                seen.append(int(asked.getresponse().read().split()[1]))
                asked.close()
            time.sleep(0.2)
        assert running.end() == (0, ""), running.logged()
    assert seen == sorted(seen)
    assert any(400_000 <= there < 2_400_000 for there in seen), seen


def test_a_progress_port_that_is_taken_does_not_end_the_download(launch: Launch, tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        options = ("--folder", str(tmp_path), "--progress-port", port)
        running = launch(*options, engine="print('done')")
        running.end()
    assert "done" in running.logged()


def test_last_words_hold_head_and_tail_and_no_secret(launch: Launch) -> None:
    engine = """
import sys
for i in range(3000): print("INFO loading", i)
print("ERROR could not use token hunter2-and-more at https://me:pass@mirror/x", file=sys.stderr)
for i in range(3000): print("INFO cleaning up", i)
sys.exit(5)
"""
    running = launch(engine=engine, HF_TOKEN="hunter2-and-more")  # noqa: S106
    code, words = running.end()

    assert code == 5
    assert len(words.encode()) <= 2048
    assert "ERROR could not use token [secret] at https://[secret]@mirror/x" in words
    assert "INFO cleaning up 2999" in words
    assert "hunter2" not in words
    assert "hunter2" in running.logged(), "the log is the engine's own and passes as it is"
    assert running.logged().count("INFO loading") == 3000


def test_no_such_program(launch: Launch) -> None:
    code, words = launch(engine=["no-such-engine", "serve"]).end()

    assert (code, words) == (
        78,
        "shardwright: ConfigRejected: no-such-engine cannot be started: No such file or directory\n",
    )


def test_stop_signal_reaches_the_engine_and_its_answer_counts(launch: Launch) -> None:
    engine = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up"); time.sleep(60)
"""
    running = launch(engine=engine)
    running.await_log("up")
    running.stop()

    assert running.end() == (0, ""), "a pod that was told to stop has nothing to explain"


def test_engine_that_ignores_the_signal_ends_in_time_with_all_its_children(launch: Launch) -> None:
    engine = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("child", child.pid, "runs"); time.sleep(60)
"""
    running = launch("--stop-within", "0.5", engine=engine)
    # Its last word: what is printed comes in pieces, and the first one was once read alone.
    running.await_log("runs")
    child = int(running.logged().split("child ")[1].split()[0])
    before = time.monotonic()
    running.stop()
    code, _ = running.end()

    assert code == 128 + signal.SIGKILL
    assert time.monotonic() - before < 5
    deadline = time.monotonic() + 5
    while _alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_serving_leader_gets_time_for_its_requests(launch: Launch, free_port: int) -> None:
    engine = f"""
import signal, socket, sys, time
server = socket.create_server(("127.0.0.1", {free_port}))
def drain(*_):
    time.sleep(1.5); print("drained"); sys.exit(0)
signal.signal(signal.SIGTERM, drain)
print("serving"); time.sleep(60)
"""
    running = launch("--port", str(free_port), "--stop-within", "0.3", "--drain-within", "15", engine=engine)
    running.await_log("serving")
    running.stop()

    assert running.end()[0] == 0
    assert "drained" in running.logged()


def test_five_restarts_in_place_find_their_shared_memory_empty(mounted: Path, tmp_path: Path) -> None:
    """Each start leaves most of a small /dev/shm full behind, as engines do that crash (llm-d issue 352)."""
    engine = "open('/dev/shm/psm_left', 'xb').write(b'x' * 6 * 2**20); raise SystemExit('crashed')"
    start = shlex.join(
        [
            *(sys.executable, str(mounted / "launcher.py"), "--shared-memory", str(8 * 2**20)),
            *("--termination-log", str(tmp_path / "words"), "--", *_python(engine)),
        ]
    )
    mount = "mount -t tmpfs -o size=8m none /dev/shm"
    script = f"{mount} && for i in 1 2 3 4 5 6; do {start}; done; exit 0"
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*alone, *mount.split()], check=False).returncode:
        pytest.skip("this machine gives no mount namespace away, and its own /dev/shm is not ours to fill")
    done = subprocess.run(
        [*alone, "sh", "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.count("removed 1 leftovers from /dev/shm") == 5
    assert done.stderr.count("crashed\n") >= 6
    assert "No space left" not in done.stderr + (tmp_path / "words").read_text()


def test_stop_during_patient_checks(launch: Launch) -> None:
    running = launch(
        *("--members", "2", "--rank", "1", "--leader", "no-such-name.invalid"),
        engine="print('started')",
        SHARDWRIGHT_SKIP="address",
    )
    running.await_log("skipped address")
    running.stop()

    assert running.end() == (128 + signal.SIGTERM, "")
    assert "started" not in running.logged()


def test_failed_check_starts_no_engine(launch: Launch) -> None:
    running = launch("--gpus", "999", engine="print('started')")
    code, words = running.end()

    assert code == 78
    assert words.startswith("shardwright: GpuLost: the plan counts on 999 GPUs in this pod and ")
    assert "started" not in running.logged()


def test_skipped_check_is_told(launch: Launch) -> None:
    running = launch("--gpus", "999", engine="print('started')", SHARDWRIGHT_SKIP="gpus, stall")
    running.end()

    assert "shardwright: skipped gpus: SHARDWRIGHT_SKIP says so" in running.logged()
    assert "started" in running.logged()


def test_command_is_as_it_would_be_without_a_launcher(launch: Launch) -> None:
    engine = "import sys; print(sys.argv[1:], open('/proc/self/stat').read().split()[4] != '0')"
    running = launch(engine=[*_python(engine), "serve", "--a", "--", "b"])
    running.end()

    assert "['serve', '--a', '--', 'b'] True" in running.logged()


def _python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
