"""Pods that are not ours: what is kept of them, and that everything else is dropped unparsed."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from shardwright_operator import strangers
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import Key
from shardwright_operator.strangers import StrangerWatch


def pod(name: str, *, gpus: int = 8, node: str = "node-0", phase: str = "Running", version: int = 5) -> Any:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {"limits": {"cpu": "1"}}
    return {
        "metadata": {"name": name, "namespace": "elsewhere", "uid": name, "resourceVersion": str(version)},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x", "resources": resources}]},
        "status": {"phase": phase},
    }


def taken(store: Store) -> Mapping[str, int] | None:
    capacity = store.observe(Key("models", "llama")).capacity
    return None if capacity is None else capacity.taken


def test_usage_is_unknown_before_the_first_list() -> None:
    store = Store()
    store.put_stranger(pod("a"), deleted=False)
    assert taken(store) is None
    store.replace_strangers([pod("a")], version=9)
    assert taken(store) == {"node-0": 8}


def test_usage_in_one_namespace_stays_unknown() -> None:
    store = Store(nodes_visible=False)
    store.replace_strangers([pod("a")], version=9)
    assert taken(store) is None


def test_gpus_come_and_go_with_pods() -> None:
    store = Store()
    store.replace_strangers([pod("a"), pod("b", gpus=2, node="node-1"), pod("c", gpus=0)], version=9)
    assert taken(store) == {"node-0": 8, "node-1": 2}
    store.put_stranger(pod("b", gpus=2, node="node-1", phase="Succeeded"), deleted=False)
    store.put_stranger(pod("d", gpus=4), deleted=False)
    store.put_stranger(pod("d", gpus=4), deleted=False)
    assert taken(store) == {"node-0": 12}
    store.put_stranger(pod("a"), deleted=True)
    store.put_stranger(pod("a"), deleted=False)
    assert taken(store) == {"node-0": 4}


def test_a_list_removes_what_it_lacks_unless_that_is_newer() -> None:
    store = Store()
    store.replace_strangers([pod("a"), pod("b", node="node-1", version=20)], version=9)
    store.replace_strangers([], version=10)
    assert taken(store) == {"node-1": 8}


async def serve(
    events: list[bytes], asked: list[Mapping[str, str]], *, refusals: Sequence[int] = ()
) -> tuple[web.AppRunner, str]:
    """An API server with two pages of pods and one watch; it begins with refusals, if there are any."""
    coming = list(refusals)

    async def pods(request: web.Request) -> web.StreamResponse:
        asked.append(dict(request.query))
        if coming:
            return web.json_response({}, status=coming.pop(0))
        if "watch" not in request.query:
            last = "continue" in request.query
            items = [pod("b", node="node-1")] if last else [pod("a"), pod("c", gpus=0)]
            metadata = {"resourceVersion": "9", **({} if last else {"continue": "more"})}
            return web.json_response({"metadata": metadata, "items": items})
        answer = web.StreamResponse()
        await answer.prepare(request)
        for event in events:
            await answer.write(event)
        return answer

    application = web.Application()
    application.router.add_get("/api/v1/pods", pods)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def kubeconfig_of(folder: Path, url: str) -> str:
    path = folder / "config"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}],
                "current-context": "c",
            }
        )
    )
    return str(path)


@pytest.mark.parametrize(
    ("refusals", "asked_times", "usage"),
    [
        pytest.param([429, 503], 4, {"node-0": 8, "node-1": 8}, id="busy: asked again until it answers"),
        pytest.param([403], 1, None, id="forbidden: usage stays unknown"),
    ],
)
async def test_the_first_list(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    refusals: list[int],
    asked_times: int,
    usage: dict[str, int] | None,
) -> None:
    # With one 429 at its start an operator would make all groups that wait for GPUs.
    monkeypatch.setattr(strangers, "SYNC_RETRY_S", 0.01)
    asked: list[Mapping[str, str]] = []
    runner, url = await serve([], asked, refusals=refusals)
    store = Store()

    def take_all(bodies: Any, version: int) -> None:
        store.replace_strangers(bodies, version=version)

    await StrangerWatch(kubeconfig_of(tmp_path, url), lambda _body, _deleted: None, take_all).sync()
    await runner.cleanup()
    assert (len(asked), taken(store)) == (asked_times, usage)


async def test_a_list_in_pages_and_a_watch_of_which_most_is_never_parsed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    long = pod("d", gpus=1, node="node-2", version=12)
    long["metadata"]["managedFields"] = ["x" * 300_000]
    lines = [
        b'{"type":"ADDED","object": this is no JSON, and nobody looks at it\n',
        json.dumps({"type": "ADDED", "object": long}).encode() + b"\n",
        json.dumps({"type": "DELETED", "object": pod("a", version=13)}).encode() + b"\n",
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"77"}}}\n',
        b'{"type":"ERROR","object":{"code":410}}\n',
    ]
    asked: list[Mapping[str, str]] = []
    runner, url = await serve(lines, asked)
    store = Store()
    versions: list[int] = []
    listed_anew = asyncio.Event()

    def take(body: Mapping[str, Any], deleted: bool) -> None:
        store.put_stranger(body, deleted=deleted)

    def take_all(bodies: Any, version: int) -> None:
        versions.append(version)
        store.replace_strangers(bodies, version=version)
        if len(versions) == 2:
            listed_anew.set()

    monkeypatch.setattr(strangers, "RETRY_S", 0.01)
    watch = StrangerWatch(kubeconfig_of(tmp_path, url), take, take_all)
    await watch.sync()
    assert taken(store) == {"node-0": 8, "node-1": 8}
    running = asyncio.create_task(watch.run())
    async with asyncio.timeout(20):
        # The error makes it list anew, which shows the pod of the first page again: its end was seen before.
        await listed_anew.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await runner.cleanup()
    assert versions[:2] == [9, 9]
    assert taken(store) == {"node-1": 8, "node-2": 1}
    assert {query["labelSelector"] for query in asked} == {"app.kubernetes.io/managed-by!=shardwright"}
    assert asked[2]["resourceVersion"] == "9"
