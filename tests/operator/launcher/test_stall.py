"""A hung engine is told from a busy one and from one that cannot answer."""

from typing import Any

import pytest

from shardwright_operator.launcher.stall import StallClock, engine_counts

Launch = Any

SERVER = """
import http.server, itertools, sys, time
mode, port = sys.argv[1], int(sys.argv[2])
steps = itertools.count()
class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        step = next(steps)
        if mode == "deaf" and step > 2:
            time.sleep(30)
        count = step if mode == "busy" else 7
        running = 0 if mode == "idle" else 3
        body = (f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}.0\\n'
                f'vllm:iteration_tokens_total_count{{engine="0",model_name="m"}} {count}.0\\n').encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Metrics)
import threading
threading.Thread(target=server.serve_forever, daemon=True).start()
print("serving"); time.sleep(5); print("still there"); sys.exit(9)
"""


def test_hung_engine(launch: Launch, free_port: int) -> None:
    code, words = _run(launch, "hung", free_port)

    assert code == 70
    assert words.startswith("shardwright: EngineStalled: engine 0 made no step for ")
    assert "with 3 requests running" in words


@pytest.mark.parametrize("mode", ["busy", "idle", "deaf"])
def test_engine_that_is_no_stall(launch: Launch, free_port: int, mode: str) -> None:
    assert _run(launch, mode, free_port)[0] == 9


def _run(launch: Launch, mode: str, port: int) -> tuple[int, str]:
    import sys

    return launch(  # type: ignore[no-any-return]
        *("--port", str(port), "--stall-timeout", "1.5", "--stop-within", "0.5"),
        engine=[sys.executable, "-c", SERVER, mode, str(port)],
    ).end()


def test_counts_by_data_parallel_rank() -> None:
    text = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="a"} 2.0
vllm:num_requests_running{engine="1",model_name="a"} 0.0
vllm:iteration_tokens_total_count{engine="0",model_name="a"} 1.2e+06
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="a"} 5.0
vllm:iteration_tokens_total_count{engine="1",model_name="a"} 9.0
vllm:num_requests_running{engine="2",model_name="a"} 4.0
"""
    assert engine_counts(text) == {"0": (2.0, 1.2e6), "1": (0.0, 9.0)}


def test_one_stalled_engine_of_two() -> None:
    clock = StallClock()
    clock.observe({"0": (1, 10), "1": (1, 10)}, 0.0)

    assert clock.observe({"0": (1, 11), "1": (1, 10)}, 60.0) == ("1", 60.0, 1)
    assert clock.observe({"0": (1, 12), "1": (0, 10)}, 90.0) == ("", 0.0, 0.0)
    assert clock.observe({"0": (1, 13), "1": (2, 10)}, 91.0) == ("1", 1.0, 2)
