"""From looks at an engine to means over the last minutes: how it behaves now, not since its start. Pure."""

from collections import deque
from dataclasses import dataclass

from shardwright_operator.measure_text import Sample
from shardwright_operator.observe.measurement import Load

WINDOW_S = 300.0
"""Long enough for a steady mean, short enough that yesterday's load is not today's."""
FEWEST_REQUESTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    at_s: float
    sample: Sample


class Window:
    """Looks at one engine, over a little more than the window."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()

    def add(self, sample: Sample, at_s: float) -> Load | None:
        """Take in a look; the load since the window began, or None when there was too little of it."""
        if self._looks and _went_back(self._looks[-1].sample, sample):
            self._looks.clear()
        self._looks.append(_Look(at_s=at_s, sample=sample))
        while len(self._looks) > 2 and self._looks[1].at_s <= at_s - WINDOW_S:
            self._looks.popleft()
        first = self._looks[0]
        if at_s - first.at_s < WINDOW_S:
            return None
        requests = sample.prompt_tokens.since(first.sample.prompt_tokens)
        if requests.count < FEWEST_REQUESTS:
            return None
        looks = [look.sample.running for look in self._looks]
        return Load(
            requests=int(requests.count),
            running=sum(looks) / len(looks),
            input_tokens=requests.value or 0.0,
            time_per_output_token_ms=_ms(
                sample.time_per_output_token_s.since(first.sample.time_per_output_token_s).value
            ),
            time_to_first_token_ms=_ms(
                sample.time_to_first_token_s.since(first.sample.time_to_first_token_s).value
            ),
            preemptions=int(sample.preemptions - first.sample.preemptions),
        )


def _went_back(old: Sample, new: Sample) -> bool:
    """Whether a counter fell: another process answers."""
    return (
        new.prompt_tokens.count < old.prompt_tokens.count
        or new.preemptions < old.preemptions
        or new.time_to_first_token_s.count < old.time_to_first_token_s.count
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
