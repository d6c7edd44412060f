"""Asks running engines about themselves, one of each resource, and downloads how far they are: once a minute,
and nothing that costs them work.

It goes straight to the pod's API port, where the engine's metrics are, or to that of the download's launcher.
NetworkPolicies leave these ports open; a resource whose ``network.clients`` do not count the operator in is
simply not measured. No answer is no news.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, Protocol

import aiohttp

from shardwright_operator.launcher.progress import METRIC
from shardwright_operator.measure_text import sample_of
from shardwright_operator.measure_window import Window
from shardwright_operator.observe.measurement import Measurement
from shardwright_operator.observe.views import Key, LoaderView, PodView

TIMEOUT_S = 2.0
AT_ONCE = 8
LARGEST_ANSWER_BYTES = 8 * 1024**2
LARGEST_REFUSAL_BYTES = 65_536

_PROGRESS = re.compile(rf"^{METRIC} (\d{{1,18}})$", re.MULTILINE)

log = logging.getLogger(__name__)


class Engines(Protocol):
    """Where engines and downloads are found and their answers are kept: the store."""

    def serving_leaders(self) -> Iterable[PodView]:
        """One serving rank 0 of each resource."""
        ...

    def measured(self, key: Key, measurement: Measurement) -> bool:
        """Keep a measurement; whether it is news."""
        ...

    def telling_loaders(self) -> Iterable[LoaderView]:
        """Pods of downloads that can be asked how far they are."""
        ...

    def loaded(self, key: Key, uid: str, bytes_there: int) -> bool:
        """Keep the bytes that a download's pod tells; whether that is news."""
        ...


class _Facts(NamedTuple):
    """What stays as it is while an engine lives, and is asked for once."""

    model_length: int | None
    takes_chat: bool | None


class Measurer:
    """A loop over all engines and downloads that spreads its requests over each round."""

    def __init__(self, engines: Engines, enqueue: Callable[[Key], None]) -> None:
        self._engines = engines
        self._enqueue = enqueue
        self._windows: dict[str, Window] = {}
        self._facts: dict[str, _Facts] = {}
        self._silent: set[str] = set()

    async def run(self, interval_s: float) -> None:
        """Ask for ever; an interval of 0 asks never."""
        if interval_s <= 0:
            await asyncio.Event().wait()
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        # A connection a minute is not worth keeping open; a proxy has no business inside the cluster.
        connector = aiohttp.TCPConnector(limit=AT_ONCE, force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, trust_env=False) as session:
            while True:
                await self.round(session, interval_s)

    async def round(self, session: aiohttp.ClientSession, seconds: float) -> None:
        """Ask each engine and each download once, spread over so many seconds."""
        leaders = [pod for pod in self._engines.serving_leaders() if pod.address and pod.api_port]
        asked: tuple[PodView | LoaderView, ...] = (*leaders, *self._engines.telling_loaders())
        self._forget_all_but({pod.uid for pod in asked})
        pause_s = seconds / max(1, len(asked))
        async with asyncio.TaskGroup() as group:
            for pod in asked:
                look = self._measure(session, pod) if isinstance(pod, PodView) else self._weigh(session, pod)
                group.create_task(self._ask(pod, look))
                await asyncio.sleep(pause_s)
        if not asked:
            await asyncio.sleep(seconds)

    async def _ask(self, pod: PodView | LoaderView, look: Awaitable[None]) -> None:
        try:
            await look
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._complain(pod, str(error) or type(error).__name__)
        except Exception:
            # One odd answer must not end the operator.
            log.exception("a pod's answer could not be read", extra={"key": str(pod.key), "pod": pod.name})
        else:
            self._silent.discard(pod.uid)

    async def _weigh(self, session: aiohttp.ClientSession, pod: LoaderView) -> None:
        found = _PROGRESS.search(await _get(session, f"{_base(pod.address, pod.progress_port)}/metrics"))
        if found is None:
            raise ValueError("does not say how many bytes are there")
        if self._engines.loaded(pod.key, pod.uid, int(found[1])):
            self._enqueue(pod.key)

    async def _measure(self, session: aiohttp.ClientSession, pod: PodView) -> None:
        base = _base(pod.address, pod.api_port)
        text = await _get(session, f"{base}/metrics")
        if pod.uid not in self._facts:
            self._facts[pod.uid] = _Facts(
                await _model_length(session, base), await _takes_chat(session, base)
            )
        facts = self._facts[pod.uid]
        sample = sample_of(text)
        load = self._windows.setdefault(pod.uid, Window()).add(sample, asyncio.get_running_loop().time())
        found = Measurement(
            group=pod.group,
            pod_uid=pod.uid,
            pods_hash=pod.pods_hash,
            kv_cache_blocks=sample.kv_cache_blocks,
            kv_block_tokens=sample.kv_block_tokens,
            kv_cache_tokens=sample.kv_cache_tokens,
            max_model_length=facts.model_length,
            chat_template=facts.takes_chat,
            startup_s=_startup_s(pod),
            load=load,
        )
        if self._engines.measured(pod.key, found):
            self._enqueue(pod.key)

    def _complain(self, pod: PodView | LoaderView, why: str) -> None:
        """Say once of each pod that it does not answer."""
        if pod.uid not in self._silent:
            self._silent.add(pod.uid)
            extra = {"key": str(pod.key), "pod": pod.name, "why": why}
            log.info(
                "%s cannot be measured",
                "an engine" if isinstance(pod, PodView) else "a download",
                extra=extra,
            )

    def _forget_all_but(self, uids: set[str]) -> None:
        self._windows = {uid: window for uid, window in self._windows.items() if uid in uids}
        self._facts = {uid: facts for uid, facts in self._facts.items() if uid in uids}
        self._silent &= uids


def _base(address: str, port: int) -> str:
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


async def _get(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status != 200:
            raise ValueError(f"answers {answer.status}")
        body = await answer.content.read(LARGEST_ANSWER_BYTES)
        while not answer.content.at_eof() and len(body) < LARGEST_ANSWER_BYTES:
            body += await answer.content.read(LARGEST_ANSWER_BYTES - len(body))
        return body.decode(errors="replace")


async def _model_length(session: aiohttp.ClientSession, base: str) -> int | None:
    """The longest request; None when an API key is asked for, which the operator does not have."""
    try:
        models = json.loads(await _get(session, f"{base}/v1/models"))
        length = models["data"][0]["max_model_len"]
    except (ValueError, LookupError, TypeError):
        return None
    return length if isinstance(length, int) and length > 0 else None


async def _takes_chat(session: aiohttp.ClientSession, base: str) -> bool | None:
    """Whether the model's tokenizer, or the spec, has a chat template; None when that is not told.

    A chat of one word is turned into tokens, which is no work for the engine. The route needs no API key.
    """
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    try:
        async with session.post(f"{base}/tokenize", json=chat, allow_redirects=False) as answer:
            if answer.status == 200:
                return True
            said = (await answer.content.read(LARGEST_REFUSAL_BYTES)).decode(errors="replace")
    except (aiohttp.ClientError, TimeoutError):
        return None
    return False if answer.status == 400 and "chat template" in said else None


def _startup_s(pod: PodView) -> int | None:
    """From the start of the container to readiness, if it was ready at its first start."""
    if pod.ready_since is None or pod.running_since is None or pod.restarts:
        return None
    return max(0, round((pod.ready_since - pod.running_since).total_seconds()))
