"""Events and lists into the store, in virtual time."""

import asyncio
from typing import Any

from fake_cluster import FakeCluster
from shardwright_operator.api.constants import API_VERSION, KIND
from shardwright_operator.cluster import UnavailableError, kind_named
from shardwright_operator.intake import Intake
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import Key
from virtual_time import run_virtually


class Harness:
    def __init__(self, *namespaces: str) -> None:
        self.cluster = FakeCluster()
        self.store = Store()
        self.queued: list[Key] = []
        self.patient: list[Key] = []
        self.intake = Intake(
            cluster=self.cluster,
            store=self.store,
            enqueue=self.queued.append,
            enqueue_patient=self.patient.append,
            kinds=(kind_named(KIND), kind_named("Pod")),
            namespaces=namespaces,
        )

    def resource(self, name: str, namespace: str = "models") -> dict[str, Any]:
        return self.cluster.seed(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"namespace": namespace, "name": name},
                "spec": {},
            }
        )


def test_events_reach_store_and_queue_and_an_odd_object_blinds_nobody() -> None:
    async def main() -> None:
        harness = Harness()
        body = harness.resource("a")
        harness.intake.deliver({"kind": KIND, "metadata": {}}, False)
        harness.intake.deliver(body, False)
        assert harness.queued == [Key("models", "a")]
        harness.intake.deliver(body, True)
        assert harness.store.keys() == frozenset()

    run_virtually(main())


def test_resync_looks_at_everything_again_and_removes_what_is_gone() -> None:
    async def main() -> None:
        harness = Harness()
        harness.resource("a")
        lost = harness.resource("b")
        await harness.intake.resync()
        assert harness.store.keys() == {Key("models", "a"), Key("models", "b")}
        del harness.cluster.objects[KIND, "models", lost["metadata"]["name"]]
        assert (harness.queued, set(harness.patient)) == ([], {Key("models", "a"), Key("models", "b")})
        harness.patient.clear()
        await harness.intake.resync()
        # That one is gone is news; at the other one a look is enough, when there is nothing better to do.
        assert (harness.queued, harness.patient) == ([Key("models", "b")], [Key("models", "a")])
        assert harness.store.keys() == {Key("models", "a")}

    run_virtually(main())


def test_namespaces_are_listed_one_by_one() -> None:
    async def main() -> None:
        harness = Harness("one", "two")
        for namespace in ("one", "two", "three"):
            harness.resource("a", namespace)
        await harness.intake.resync()
        assert harness.store.keys() == {Key("one", "a"), Key("two", "a")}

    run_virtually(main())


def test_watches_that_begin_anew_are_followed_by_one_list_of_their_kind() -> None:
    async def main() -> None:
        harness = Harness()
        harness.resource("a")
        running = asyncio.create_task(harness.intake.run(300))
        await asyncio.sleep(10)
        for _ in range(3):
            harness.intake.distrust(KIND)
        await asyncio.sleep(10)
        assert harness.cluster.calls == [("list", KIND, "")]
        running.cancel()

    run_virtually(main())


def test_resync_comes_every_interval_and_its_failure_is_tried_again_soon() -> None:
    async def main() -> None:
        harness = Harness()
        loop = asyncio.get_running_loop()
        times: list[float] = []

        def fail(_verb: str, kind: str, _name: str) -> UnavailableError | None:
            if kind == "Pod":
                times.append(loop.time())
            return UnavailableError("down") if 300 <= loop.time() < 303 else None

        harness.cluster.fail = fail
        running = asyncio.create_task(harness.intake.run(300))
        await asyncio.sleep(650)
        assert len(times) == 2
        assert 303 <= times[0] <= 305
        assert harness.intake.age_s() < 60
        running.cancel()

    run_virtually(main())
