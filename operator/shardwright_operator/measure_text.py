"""Out of the text of an engine's ``/metrics``, the few numbers that a plan predicts. Pure.

The text has a hundred kilobytes and more of histograms, so only lines of these names are looked at. A
server may speak for several engines, one per data-parallel rank: their counts add up to those of the
replica. Names are those of vLLM 0.32.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

CACHE = "vllm:cache_config_info"
RUNNING = "vllm:num_requests_running"
PREEMPTIONS = "vllm:num_preemptions_total"
TIME_PER_OUTPUT_TOKEN = "vllm:request_time_per_output_token_seconds"  # noqa: S105 - a metric
TIME_TO_FIRST_TOKEN = "vllm:time_to_first_token_seconds"  # noqa: S105 - a metric
PROMPT_TOKENS = "vllm:request_prompt_tokens"

_NAMES = "|".join(
    (
        CACHE,
        RUNNING,
        PREEMPTIONS,
        *(f"{name}_(?:sum|count)" for name in (TIME_PER_OUTPUT_TOKEN, TIME_TO_FIRST_TOKEN, PROMPT_TOKENS)),
    )
)
_SAMPLE = re.compile(rf"^({_NAMES})(?:\{{(.*)\}})? (\S+)(?: \d+)?$", re.MULTILINE)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A histogram's sum and count since the engine's start."""

    total: float = 0.0
    count: float = 0.0

    def since(self, earlier: "Mean") -> "Mean":
        """What came on top."""
        return Mean(total=self.total - earlier.total, count=self.count - earlier.count)

    @property
    def value(self) -> float | None:
        """The mean; None of nothing."""
        return self.total / self.count if self.count > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at an engine."""

    kv_cache_blocks: int | None = None
    kv_block_tokens: int | None = None
    kv_cache_tokens: int | None = None
    running: float = 0.0
    preemptions: float = 0.0
    time_per_output_token_s: Mean = Mean()
    time_to_first_token_s: Mean = Mean()
    prompt_tokens: Mean = Mean()


def sample_of(text: str) -> Sample:
    """What the text says; zero or None for what it does not."""
    sums: defaultdict[str, float] = defaultdict(float)
    caches = []
    for name, labels, value in _samples(text):
        if name == CACHE:
            caches.append(labels)
        else:
            sums[name] += value
    blocks = [_whole(cache.get("num_gpu_blocks")) for cache in caches]
    sizes = [_whole(cache.get("block_size")) for cache in caches]
    # With several kinds of layers, blocks times their size is not what fits; newer versions say it outright.
    tokens = [
        _whole(cache.get("kv_cache_size_tokens")) or _product(count, size)
        for cache, count, size in zip(caches, blocks, sizes, strict=True)
    ]
    return Sample(
        kv_cache_blocks=_total(blocks),
        kv_block_tokens=next((size for size in sizes if size), None),
        kv_cache_tokens=_total(tokens),
        running=sums[RUNNING],
        preemptions=sums[PREEMPTIONS],
        time_per_output_token_s=_mean(sums, TIME_PER_OUTPUT_TOKEN),
        time_to_first_token_s=_mean(sums, TIME_TO_FIRST_TOKEN),
        prompt_tokens=_mean(sums, PROMPT_TOKENS),
    )


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for name, labels, value in _SAMPLE.findall(text):
        try:
            number = float(value)
        except ValueError:
            continue
        yield name, dict(_LABEL.findall(labels)) if name == CACHE else {}, number


def _mean(sums: Mapping[str, float], name: str) -> Mean:
    return Mean(total=sums.get(f"{name}_sum", 0.0), count=sums.get(f"{name}_count", 0.0))


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and int(text) > 0 else None


def _product(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other


def _total(values: list[int | None]) -> int | None:
    """The sum, if every engine has said its part."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
