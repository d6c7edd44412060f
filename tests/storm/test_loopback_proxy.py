"""Each fault of the way is what it is called."""

import http.client
import http.server
import threading
from collections.abc import Callable, Iterator

import pytest

from control_plane.credentials import Credentials
from loopback_proxy import GARBAGE, LoopbackProxy

EVENT = b'{"type":"ADDED"}\n'


class Upstream(http.server.BaseHTTPRequestHandler):
    """A watch of one event, and an answer to everything else."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(f"{self.path} {self.headers['Authorization']} {self.headers['Accept-Encoding']}")
        body = EVENT if "watch" in self.path else b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def proxy(asked: list[str]) -> Iterator[LoopbackProxy]:
    handler = type("Handler", (Upstream,), {"asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with LoopbackProxy(Credentials(server=f"http://127.0.0.1:{server.server_port}"), seed=1) as proxy:
            yield proxy
        server.shutdown()
        thread.join()


def ask(proxy: LoopbackProxy, path: str = "/x?a=%2F") -> tuple[int, str, bytes]:
    """Code, Retry-After and body; code 0 when the connection broke."""
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=20)
    try:
        connection.request("GET", path, headers={"Authorization": "Bearer t"})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Retry-After", ""), answer.read()
    except (http.client.HTTPException, OSError):
        return 0, "", b""
    finally:
        connection.close()


def test_in_fair_weather_all_is_passed_on_unpacked(proxy: LoopbackProxy, asked: list[str]) -> None:
    assert ask(proxy) == (200, "", b"{}")
    assert ask(proxy, "/pods?watch=1") == (200, "", EVENT)
    assert asked == ["/x?a=%2F Bearer t identity", "/pods?watch=1 Bearer t identity"]


@pytest.mark.parametrize(
    ("begin", "answers", "arrive"),
    [
        pytest.param(lambda proxy: proxy.sever(60), {(0, "")}, "none", id="severed"),
        pytest.param(lambda proxy: proxy.refuse(60), {(429, "1"), (200, "")}, "some", id="429"),
        pytest.param(lambda proxy: proxy.lose_answers(60), {(0, ""), (200, "")}, "all", id="answers lost"),
    ],
)
def test_a_fault_is_what_clients_meet_and_what_reaches_the_server(
    proxy: LoopbackProxy,
    asked: list[str],
    begin: Callable[[LoopbackProxy], None],
    answers: set[tuple[int, str]],
    arrive: str,
) -> None:
    begin(proxy)
    found = [ask(proxy)[:2] for _ in range(20)]
    assert set(found) == answers
    assert {"none": 0, "all": 20, "some": found.count((200, ""))}[arrive] == len(asked)
    proxy.clear()
    assert ask(proxy) == (200, "", b"{}")


def test_one_watch_is_garbled(proxy: LoopbackProxy) -> None:
    proxy.garble_a_watch()
    assert [ask(proxy, "/pods?watch=1")[2] for _ in range(2)] == [GARBAGE + EVENT, EVENT]
