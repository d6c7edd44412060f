"""Leader election, in virtual time on a cluster in memory."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fake_cluster import FakeCluster
from shardwright_operator.cluster import ClusterError, UnavailableError
from shardwright_operator.lease import LeaseElection, LeaseLostError, LeaseTimes
from virtual_time import run_virtually

PLACE = ("Lease", "ops", "operator")


def candidate(cluster: FakeCluster, identity: str, skew_s: float = 0.0) -> LeaseElection:
    start = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=skew_s)

    def clock() -> datetime:
        return start + timedelta(seconds=asyncio.get_running_loop().time())

    return LeaseElection(
        cluster,
        namespace="ops",
        name="operator",
        identity=identity,
        times=LeaseTimes(duration_s=15, renew_deadline_s=10, retry_s=2),
        clock=clock,
        draw=lambda: 0.0,
    )


def now() -> float:
    return asyncio.get_running_loop().time()


def lease(cluster: FakeCluster) -> dict[str, Any]:
    return cluster.objects[PLACE]["spec"]


def test_the_first_one_makes_the_lease_and_renews_it() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        one = candidate(cluster, "one")
        await one.acquire()
        assert now() == 0.0
        holding = asyncio.create_task(one.hold())
        await asyncio.sleep(61)
        assert not holding.done()
        assert lease(cluster) == {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": "2030-01-01T00:00:00.000000Z",
            "renewTime": "2030-01-01T00:01:00.000000Z",
            "leaseTransitions": 0,
        }
        # One request per renewal: the last answer is written back, no read before it.
        assert {call[0] for call in cluster.calls[2:]} == {"replace"}
        holding.cancel()

    run_virtually(main())


@pytest.mark.parametrize("skew_s", [-86400.0, 0.0, 86400.0])
def test_a_silent_holder_is_replaced_after_its_duration_by_ones_own_clock(skew_s: float) -> None:
    async def main() -> None:
        cluster = FakeCluster()
        await candidate(cluster, "one").acquire()
        two = candidate(cluster, "two", skew_s)
        await asyncio.sleep(100)
        await two.acquire()
        # It was silent for long, but that was first seen at 100 s: only from then on counts.
        assert now() == 116.0
        assert lease(cluster)["holderIdentity"] == "two"
        assert lease(cluster)["leaseTransitions"] == 1

    run_virtually(main())


def test_a_holder_that_renews_is_never_replaced_and_a_release_hands_over_at_once() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        one, two = candidate(cluster, "one"), candidate(cluster, "two", 86400.0)
        await one.acquire()
        holding = asyncio.create_task(one.hold())
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(600)
        assert not waiting.done()
        holding.cancel()
        await one.release()
        await waiting
        assert now() <= 602.0

    run_virtually(main())


def test_the_same_identity_takes_its_own_lease_back_at_once() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        await candidate(cluster, "pod-1").acquire()
        await candidate(cluster, "pod-1").acquire()
        assert now() == 0.0
        assert lease(cluster)["leaseTransitions"] == 0

    run_virtually(main())


def test_a_leader_that_cannot_renew_gives_up_before_others_may_take_over() -> None:
    async def main() -> float:
        cluster = FakeCluster()
        one, two = candidate(cluster, "one"), candidate(cluster, "two")
        await one.acquire()
        asleep = False

        def fail(verb: str, _kind: str, _name: str) -> ClusterError | None:
            return UnavailableError("no route") if asleep and verb == "replace" else None

        cluster.fail = fail
        holding = asyncio.create_task(one.hold())
        await asyncio.sleep(21)
        asleep = True
        with pytest.raises(LeaseLostError, match="not renewed for 10 s"):
            await holding
        lost_at = now()
        asleep = False
        await two.acquire()
        assert now() > lost_at + 4
        return lost_at

    assert run_virtually(main()) == 30.0


def test_a_leader_is_certain_of_its_lease_no_longer_than_nobody_may_take_it() -> None:
    async def main() -> list[float]:
        one = candidate(FakeCluster(), "one")
        found = [one.certain_for_s()]
        await one.acquire()
        for seconds in (0, 9, 2):
            await asyncio.sleep(seconds)
            found.append(one.certain_for_s())
        return found

    # Before, after 0 s, 9 s and 11 s: nothing renews it, as in a process that is stopped.
    assert run_virtually(main()) == [0.0, 10.0, 1.0, 0.0]


def test_a_hanging_api_server_counts_as_not_renewed() -> None:
    class Hanging(FakeCluster):
        hangs = False

        async def replace(self, manifest: Any) -> Any:
            if self.hangs:
                await asyncio.sleep(3600)
            return await super().replace(manifest)

    async def main() -> float:
        cluster = Hanging()
        one = candidate(cluster, "one")
        await one.acquire()
        cluster.hangs = True
        with pytest.raises(LeaseLostError):
            await one.hold()
        return now()

    assert run_virtually(main()) == 10.0


def test_a_lease_that_somebody_else_took_is_lost_at_once() -> None:
    async def main() -> float:
        cluster = FakeCluster()
        one = candidate(cluster, "one")
        await one.acquire()
        stolen = {**cluster.objects[PLACE], "spec": {**lease(cluster), "holderIdentity": "thief"}}
        cluster.seed(stolen)
        with pytest.raises(LeaseLostError, match="held by thief"):
            await one.hold()
        return now()

    assert run_virtually(main()) == 4.0


def test_a_foreign_write_that_leaves_us_the_holder_is_survived() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        one = candidate(cluster, "one")
        await one.acquire()
        holding = asyncio.create_task(one.hold())
        await asyncio.sleep(1)
        cluster.seed(
            {**cluster.objects[PLACE], "metadata": {**cluster.objects[PLACE]["metadata"], "labels": {}}}
        )
        await asyncio.sleep(30)
        assert not holding.done()
        holding.cancel()

    run_virtually(main())


def test_a_deleted_lease_is_made_again() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        one = candidate(cluster, "one")
        await one.acquire()
        holding = asyncio.create_task(one.hold())
        del cluster.objects[PLACE]
        await asyncio.sleep(5)
        assert lease(cluster)["holderIdentity"] == "one"
        holding.cancel()

    run_virtually(main())


def test_an_unreachable_api_server_delays_the_start() -> None:
    async def main() -> float:
        cluster = FakeCluster()
        cluster.fail = lambda _verb, _kind, _name: UnavailableError("down") if now() < 60 else None
        await candidate(cluster, "one").acquire()
        return now()

    assert run_virtually(main()) == 60.0


def test_times_that_would_allow_two_leaders_are_refused() -> None:
    with pytest.raises(ValueError, match="retry < renew deadline < duration"):
        LeaseTimes(duration_s=10, renew_deadline_s=10, retry_s=2)
