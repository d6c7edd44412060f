"""The loop over engines, against real HTTP servers on this machine."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from shardwright_operator.api.constants import Role
from shardwright_operator.launcher.progress import ProgressServer
from shardwright_operator.measuring import Measurer
from shardwright_operator.observe.measurement import Measurement
from shardwright_operator.observe.views import Key, LoaderView, PodView

READY = datetime(2030, 1, 1, 0, 2, tzinfo=UTC)
METRICS = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'


def leader(name: str, port: int, *, address: str = "127.0.0.1") -> PodView:
    return PodView(
        key=Key("models", name),
        name=f"{name}-0-leader-0",
        uid=f"uid-{name}",
        resource_version=1,
        role=Role.LEADER,
        group=0,
        node_rank=0,
        pods_hash="0123456789",
        created_at=READY,
        ready_since=READY,
        address=address,
        api_port=port,
        running_since=datetime(2030, 1, 1, tzinfo=UTC),
    )


class Engines:
    """What the store is to the loop."""

    def __init__(self, *leaders: PodView, loaders: Iterable[LoaderView] = ()) -> None:
        self.leaders = leaders
        self.loaders = loaders
        self.found: dict[Key, Measurement] = {}
        self.bytes: dict[str, int] = {}

    def serving_leaders(self) -> Iterable[PodView]:
        return self.leaders

    def measured(self, key: Key, measurement: Measurement) -> bool:
        news = self.found.get(key) != measurement
        self.found[key] = measurement
        return news

    def telling_loaders(self) -> Iterable[LoaderView]:
        return self.loaders

    def loaded(self, key: Key, uid: str, bytes_there: int) -> bool:
        news = self.bytes.get(uid) != bytes_there
        self.bytes[uid] = bytes_there
        return news


@pytest.fixture
async def engine() -> AsyncIterator[tuple[int, list[str]]]:
    """An engine that keeps the paths it was asked for, and has no chat template."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "m", "max_model_len": 8192}]})
        if request.path == "/tokenize":
            words = "default chat template is no longer allowed, so you must provide a chat template"
            return web.json_response({"error": {"message": words, "code": 400}}, status=400)
        return web.Response(text=METRICS)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1], asked
    await runner.cleanup()


async def one_round(measurer: Measurer) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.5)) as session:
        await measurer.round(session, 0.05)


async def test_news_are_enqueued_once(engine: tuple[int, list[str]]) -> None:
    port, asked = engine
    engines, enqueued = Engines(leader("a", port)), []
    measurer = Measurer(engines, enqueued.append)
    await one_round(measurer)
    await one_round(measurer)

    assert enqueued == [Key("models", "a")]
    assert engines.found[Key("models", "a")] == Measurement(
        group=0,
        pod_uid="uid-a",
        pods_hash="0123456789",
        kv_cache_blocks=100,
        kv_block_tokens=16,
        kv_cache_tokens=1600,
        max_model_length=8192,
        chat_template=False,
        startup_s=120,
    )
    assert asked == ["/metrics", "/v1/models", "/tokenize", "/metrics"], "the rest does not change"


async def test_engines_that_do_not_answer_hold_nobody_up(
    engine: tuple[int, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    port, _ = engine
    dead = leader("dead", 1)
    engines = Engines(dead, leader("nowhere", 0), leader("b", port))
    measurer = Measurer(engines, lambda _key: None)
    with caplog.at_level("INFO"):
        await one_round(measurer)
        await one_round(measurer)

    assert set(engines.found) == {Key("models", "b")}
    told = [r.getMessage() for r in caplog.records if r.name == "shardwright_operator.measuring"]
    assert told == ["an engine cannot be measured"], "said once"


async def test_interval_of_nothing_asks_never() -> None:
    engines = Engines(leader("a", 1))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await Measurer(engines, lambda _key: None).run(0)
    assert engines.found == {}


def loader(name: str, port: int) -> LoaderView:
    return LoaderView(
        key=Key("models", name),
        name=f"{name}-download-x-y",
        uid=f"uid-{name}",
        resource_version=1,
        job=f"{name}-download-x",
        created_at=READY,
        phase="Running",
        address="127.0.0.1",
        progress_port=port,
    )


async def test_downloads_are_asked_how_far_they_are(
    tmp_path: Path, engine: tuple[int, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """Two downloads that tell, one that is an engine by mistake, and one that is not there."""
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "weights.incomplete").write_bytes(b"w" * 8192)
    half, none = ProgressServer(tmp_path / "half", 0), ProgressServer(tmp_path / "none", 0)
    loaders = [
        loader("half", half.port),
        loader("none", none.port),
        loader("odd", engine[0]),
        loader("dead", 1),
    ]
    engines, enqueued = Engines(loaders=loaders), []
    measurer = Measurer(engines, enqueued.append)
    with caplog.at_level("INFO"):
        await one_round(measurer)
        await one_round(measurer)
    half.close()
    none.close()

    assert engines.bytes == {"uid-half": 8192, "uid-none": 0}
    assert sorted(enqueued) == [Key("models", "half"), Key("models", "none")]
    told = [r.getMessage() for r in caplog.records if r.name == "shardwright_operator.measuring"]
    assert told == ["a download cannot be measured"] * 2, "said once of each"


@pytest.mark.parametrize(
    ("status", "body", "takes_chat"),
    [
        pytest.param(200, '{"tokens": [1], "count": 1}', True, id="it has a template"),
        pytest.param(
            400, '{"error": {"message": "you must provide a chat template"}}', False, id="it has none"
        ),
        pytest.param(400, '{"error": {"message": "no such model"}}', None, id="refused for another reason"),
        pytest.param(404, "not found", None, id="no such route"),
        pytest.param(401, "chat template", None, id="a key is asked for"),
    ],
)
async def test_whether_an_engine_takes_chats(status: int, body: str, *, takes_chat: bool | None) -> None:
    """Without a template every chat fails after a deployment that looks well (vllm issue 29849)."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/tokenize":
            assert (await request.json())["messages"] == [{"role": "user", "content": "hello"}]
            return web.Response(text=body, status=status)
        return web.Response(text=METRICS)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    engines = Engines(leader("a", runner.addresses[0][1]))
    await one_round(Measurer(engines, lambda _key: None))
    await runner.cleanup()
    assert engines.found[Key("models", "a")].chat_template is takes_chat
