"""The work queue, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shardwright_operator.apply.retry import RetryLaterError
from shardwright_operator.queue import Backoff, Run, WorkQueue, work
from virtual_time import run_virtually


def new_queue(draw: Callable[[], float] = lambda: 0.0) -> WorkQueue[str]:
    return WorkQueue(backoff=Backoff(base_s=1.0, cap_s=10.0, jitter=0.5), draw=draw)


async def run_for(
    queue: WorkQueue[str], seconds: float, workers: int, reconcile: Callable[[str], Awaitable[float | None]]
) -> list[Run]:
    runs: list[Run] = []
    tasks = [asyncio.create_task(work(queue, reconcile, runs.append)) for _ in range(workers)]
    await asyncio.sleep(seconds)
    queue.close()
    await asyncio.gather(*tasks)
    return runs


def test_a_burst_of_adds_is_one_run() -> None:
    async def main() -> list[str]:
        queue = new_queue()
        seen: list[str] = []

        async def reconcile(key: str) -> None:
            seen.append(key)

        for _ in range(50):
            queue.add("a")
        queue.add("b")
        await run_for(queue, 1, 4, reconcile)
        return seen

    assert run_virtually(main()) == ["a", "b"]


def test_adds_during_a_run_give_one_more_run_and_never_two_at_once() -> None:
    async def main() -> tuple[int, int]:
        queue = new_queue()
        at_once = most = runs = 0

        async def reconcile(_key: str) -> None:
            nonlocal at_once, most, runs
            at_once += 1
            runs += 1
            most = max(most, at_once)
            await asyncio.sleep(1)
            at_once -= 1

        async def adder() -> None:
            for _ in range(5):
                queue.add("a")
                await asyncio.sleep(0.1)

        adding = asyncio.create_task(adder())
        await run_for(queue, 5, 8, reconcile)
        await adding
        return runs, most

    assert run_virtually(main()) == (2, 1)


def test_keys_are_served_first_come_first_served_while_one_is_slow() -> None:
    async def main() -> list[str]:
        queue = new_queue()
        order: list[str] = []

        async def reconcile(key: str) -> None:
            order.append(key)
            if key == "slow":
                await asyncio.sleep(100)

        for key in ("slow", "a", "b", "c"):
            queue.add(key)
        await run_for(queue, 101, 2, reconcile)
        return order

    assert run_virtually(main()) == ["slow", "a", "b", "c"]


def test_keys_with_news_pass_those_that_are_only_looked_at_again() -> None:
    async def main() -> list[str]:
        queue = new_queue()
        order: list[str] = []

        async def reconcile(key: str) -> None:
            order.append(key)
            if key == "a":
                queue.add("lost")
                queue.add("c")

        for key in "abc":
            queue.add_patient(key)
        queue.add("first")
        queue.add_patient("first")
        await run_for(queue, 1, 1, reconcile)
        return order

    assert run_virtually(main()) == ["first", "a", "lost", "c", "b"]


def test_passes_that_never_wait_let_others_have_their_turn() -> None:
    async def main() -> int:
        queue = new_queue()
        runs = 0

        async def reconcile(_key: str) -> None:
            nonlocal runs
            runs += 1

        for key in "abcdef":
            queue.add_patient(key)
        worker = asyncio.create_task(work(queue, reconcile))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen = runs
        queue.close()
        await worker
        return seen

    assert run_virtually(main()) == 1


def test_add_after_keeps_the_earliest_time() -> None:
    async def main() -> list[float]:
        queue = new_queue()
        loop = asyncio.get_running_loop()
        times: list[float] = []

        async def reconcile(_key: str) -> None:
            times.append(loop.time())

        queue.add_after("a", 30)
        queue.add_after("a", 10)
        queue.add_after("a", 20)
        await run_for(queue, 60, 1, reconcile)
        return times

    assert run_virtually(main()) == [10.0]


def test_requeue_of_a_run_is_kept_and_a_run_that_comes_first_replaces_it() -> None:
    async def main() -> list[float]:
        queue = new_queue()
        loop = asyncio.get_running_loop()
        times: list[float] = []

        async def reconcile(_key: str) -> float | None:
            times.append(loop.time())
            return 10.0 if len(times) < 3 else None

        queue.add("a")
        loop.call_later(4, queue.add, "a")
        await run_for(queue, 60, 1, reconcile)
        return times

    assert run_virtually(main()) == [0.0, 4.0, 14.0]


@pytest.mark.parametrize(
    ("draw", "want"),
    [
        pytest.param(0.0, [0, 1, 3, 7, 15, 25, 35], id="doubles up to the cap"),
        pytest.param(1.0, [0, 0.5, 1.5, 3.5, 7.5, 12.5, 17.5], id="jitter shortens"),
    ],
)
def test_failures_back_off_and_success_forgets_them(draw: float, want: list[float]) -> None:
    async def main() -> list[float]:
        queue = new_queue(lambda: draw)
        loop = asyncio.get_running_loop()
        times: list[float] = []

        async def reconcile(_key: str) -> None:
            times.append(loop.time())
            if len(times) < len(want):
                raise RetryLaterError("not yet")

        queue.add("a")
        await run_for(queue, 100, 1, reconcile)
        queue2 = queue.retry("a")
        assert queue2 == (1.0 if draw == 0 else 0.5)
        return times

    assert run_virtually(main()) == want


def test_a_wish_for_a_longer_delay_is_respected() -> None:
    async def main() -> list[float]:
        queue = new_queue()
        loop = asyncio.get_running_loop()
        times: list[float] = []

        async def reconcile(_key: str) -> None:
            times.append(loop.time())
            if len(times) == 1:
                raise RetryLaterError("overloaded", error="Unavailable", at_least_s=33.0)

        queue.add("a")
        runs = await run_for(queue, 100, 1, reconcile)
        assert [run.error for run in runs] == ["Unavailable", ""]
        return times

    assert run_virtually(main()) == [0.0, 33.0]


def test_an_unexpected_error_neither_ends_the_worker_nor_spins() -> None:
    async def main() -> list[str]:
        queue = new_queue()

        async def reconcile(key: str) -> None:
            if key == "bad":
                raise ZeroDivisionError

        queue.add("bad")
        queue.add("good")
        runs = await run_for(queue, 4, 1, reconcile)
        return [run.error for run in runs]

    assert run_virtually(main()) == ["ZeroDivisionError", "", "ZeroDivisionError", "ZeroDivisionError"]


def test_numbers_for_the_metrics() -> None:
    async def main() -> tuple[int, int, int, float]:
        queue = new_queue()

        async def reconcile(_key: str) -> None:
            await asyncio.sleep(10)

        for key in "abc":
            queue.add(key)
        queue.add_after("d", 60)
        worker = asyncio.create_task(work(queue, reconcile))
        await asyncio.sleep(4)
        numbers = (queue.depth, queue.waiting, queue.running, queue.longest_run_s())
        queue.close()
        await worker
        return numbers

    assert run_virtually(main()) == (2, 1, 1, 4.0)


def test_a_closed_queue_gives_nothing_and_takes_nothing() -> None:
    async def main() -> tuple[str | None, int]:
        queue = new_queue()
        queue.close()
        queue.add("a")
        queue.add_after("b", 1)
        await asyncio.sleep(5)
        return await queue.take(), queue.depth

    assert run_virtually(main()) == (None, 0)
