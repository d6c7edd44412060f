"""The watches' session asks LISTs for their version alone, and tells of them; and no watch ends unseen."""

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from control_plane.certificates import make_certificates
from shardwright_operator import watching
from shardwright_operator.cluster import KINDS, Kind
from shardwright_operator.cluster.kinds import kind_named
from shardwright_operator.watch_session import Heard, open_session
from shardwright_operator.watching import UnservedError, WatchThread

METADATA_ALONE = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
DEAF = Heard(listed=lambda _kind: None, unserved=lambda _kind: None)
EMPTY = {"items": [], "metadata": {"resourceVersion": "7"}}


def write_kubeconfig(folder: Path, server: str, authority: Path | None = None) -> Path:
    """A file that leads to ``server``."""
    trust = {} if authority is None else {"certificate-authority": str(authority)}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{"name": "it", "cluster": {"server": server, **trust}}],
                "users": [{"name": "it", "user": {"token": "secret"}}],
            }
        )
    )
    return kubeconfig


@asynccontextmanager
async def served(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], folder: Path
) -> AsyncIterator[str]:
    """An API server that answers everything so; its kubeconfig."""
    application = web.Application()
    application.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield str(write_kubeconfig(folder, f"http://127.0.0.1:{runner.addresses[0][1]}"))
    await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        pytest.param("/api/v1/pods", 200, ["Pod"], id="a list of all namespaces"),
        pytest.param("/apis/apps/v1/namespaces/a/statefulsets", 200, ["StatefulSet"], id="of one namespace"),
        pytest.param("/k8s/clusters/c/api/v1/pods", 200, ["Pod"], id="behind a proxy with a path"),
        pytest.param(
            "/apis/scheduling.volcano.sh/v1beta1/podgroups",
            200,
            ["PodGroup.scheduling.volcano.sh"],
            id="of one of two groups that share a plural",
        ),
        pytest.param("/api/v1/pods?watch=true", 200, [], id="a watch"),
        pytest.param("/api/v1/pods", 503, [], id="a list that fails"),
        pytest.param("/apis/apps/v1", 200, [], id="discovery"),
    ],
)
async def test_lists_bring_nothing_and_are_told(
    tmp_path: Path, path: str, status: int, told: list[str]
) -> None:
    selectors: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        selectors.append(request.query.get("fieldSelector"))
        return web.json_response(EMPTY, status=status)

    heard: list[str] = []
    async with served(answer, tmp_path) as kubeconfig:
        server, session = await open_session(
            KINDS, kubeconfig, Heard(listed=heard.append, unserved=lambda _kind: None)
        )
        async with session, session.get(server + path) as response:
            await response.read()
    assert heard == told
    is_list = "watch" not in path and path != "/apis/apps/v1"
    assert selectors == ["metadata.name=_" if is_list else None]


@pytest.mark.parametrize(
    ("path", "accepted", "kept"),
    [
        pytest.param("/api/v1/pods", "*/*", False, id="whole objects come without managed fields"),
        pytest.param("/api/v1/configmaps", METADATA_ALONE, True, id="of some kinds metadata are asked for"),
        pytest.param("/apis/shardwright.dev/v1alpha1/modeldeployments", "*/*", True, id="defined kinds"),
    ],
)
async def test_watches_bring_what_is_of_use(tmp_path: Path, path: str, accepted: str, kept: bool) -> None:
    metadata = '{"name":"a","managedFields":[{"manager":"m"}]}'
    line = f'{{"type":"ADDED","object":{{"metadata":{metadata},"spec":{{}}}}}}\n'.encode()
    headers: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        headers.append(request.headers["Accept"])
        stream = web.StreamResponse()
        await stream.prepare(request)
        for part in (line[:70], line[70:] + line[:9], line[9:]):
            await stream.write(part)
            await asyncio.sleep(0)
        return stream

    async with served(answer, tmp_path) as kubeconfig:
        server, session = await open_session(KINDS, kubeconfig, DEAF)
        async with session, session.get(f"{server}{path}?watch=true") as response:
            read = b"".join([chunk async for chunk in response.content.iter_chunked(1024)])
    assert headers == [accepted]
    events = [json.loads(each) for each in read.splitlines()]
    assert ["managedFields" in event["object"]["metadata"] for event in events] == [kept, kept]


@pytest.mark.parametrize("query", ["", "?watch=true"], ids=["a list", "a watch"])
@pytest.mark.parametrize(
    ("path", "told"),
    [
        pytest.param("/apis/shardwright.dev/v1alpha1/modeldeployments", ["ModelDeployment"], id="our own"),
        pytest.param(
            "/apis/kueue.x-k8s.io/v1beta2/workloads", ["Workload.kueue.x-k8s.io"], id="a gang scheduler's"
        ),
        pytest.param("/api/v1/pods", [], id="built in, so that a proxy most likely says it"),
    ],
)
async def test_a_kind_that_is_not_served_any_more_is_told_and_not_answered(
    tmp_path: Path, path: str, query: str, told: list[str]
) -> None:
    # With the answer kopf printed a hundred lines of its calls and ended, and the operator with it.
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="404 page not found", status=404)

    gone: list[Kind] = []
    async with served(answer, tmp_path) as kubeconfig:
        heard = Heard(listed=lambda _kind: None, unserved=gone.append)
        server, session = await open_session(KINDS, kubeconfig, heard)
        async with session:
            asked = asyncio.ensure_future(session.get(server + path + query))
            await asyncio.wait([asked], timeout=0.5 if told else 20)
            assert asked.done() is not bool(told)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
    assert [kind.kind for kind in gone] == told


async def test_watching_ends_by_name_when_a_kind_is_not_served_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = kind_named("ModelDeployment")

    def lost(*arguments: object, stop: threading.Event, **_: object) -> None:
        (heard,) = (each for each in arguments if isinstance(each, Heard))
        heard.unserved(kind)
        stop.wait(30)

    monkeypatch.setattr(watching, "watch", lost)
    thread = WatchThread((), (), None, lambda *_: None, lambda _kind: None)
    with pytest.raises(UnservedError, match=r"does not serve ModelDeployment \(shardwright.dev/v1alpha1\)"):
        await asyncio.wait_for(thread.start(), timeout=20)
    await thread.stop()


async def test_watching_ends_when_kopf_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # A packed stream behind a proxy: one watcher failed on bytes that were no JSON, kopf ended the others and
    # never came to its own end. The process lived on, kept the Lease and saw nothing.
    end = threading.Event()

    def hangs(*_: object, ending: Callable[[], None], stop: threading.Event) -> None:
        ending()
        end.wait(30)

    monkeypatch.setattr(watching, "STOP_S", 0.1)
    monkeypatch.setattr(watching, "watch", hangs)
    thread = WatchThread((), (), None, lambda *_: None, lambda _kind: None)
    with pytest.raises(RuntimeError, match="kopf does not end"):
        await asyncio.wait_for(thread.start(), timeout=20)
    end.set()


async def test_a_closed_session_leaves_no_socket(tmp_path: Path) -> None:
    # A watch ends with a good-bye over TLS that a busy server answers late: the event loop ended before it,
    # and the socket of the watch was found by the garbage collector, in the middle of another test.
    certificates = make_certificates(tmp_path / "certificates")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server, certificates.server_key)
    gone = threading.Event()

    def serve_one_watch(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with context.wrap_socket(accepted, server_side=True) as over_tls:
            while b"\r\n\r\n" not in over_tls.recv(65536):
                pass
            over_tls.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            over_tls.settimeout(20)
            time.sleep(0.5)  # the server is busy
            plain = over_tls.unwrap()
            if plain.recv(1) == b"":
                gone.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server_thread = threading.Thread(target=serve_one_watch, args=(listener,), daemon=True)
        server_thread.start()
        kubeconfig = write_kubeconfig(
            tmp_path, f"https://127.0.0.1:{listener.getsockname()[1]}", certificates.authority
        )
        server, session = await open_session(KINDS, str(kubeconfig), DEAF)
        async with session:
            watch = await session.get(f"{server}/api/v1/pods?watch=true")
            watch.close()
        # The event loop does not turn while this waits, so what was open at the session's end stays open.
        assert gone.wait(5)
    server_thread.join(20)
