"""Builders of the objects and parts that the shell's tests share."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fake_cluster import FakeCluster
from shardwright_operator.api.constants import API_VERSION, KIND, MANAGED_BY_VALUE, Label
from shardwright_operator.api.gang import kind_of
from shardwright_operator.apply.claims import ClaimReader
from shardwright_operator.apply.confirmation import Confirmer
from shardwright_operator.apply.events import EventRecorder
from shardwright_operator.apply.notes import WriteLedger
from shardwright_operator.apply.writer import Writer
from shardwright_operator.decide.decision import Apply, Decision
from shardwright_operator.decide.drift import digest
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import ChildKind, Key
from shardwright_operator.reconciler import Reconciler
from shardwright_operator.served_crd import ServedCrd

KEY = Key("models", "llama")


class World:
    """A cluster in memory, a store, and everything that a pass needs; decisions are given by the test."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.cluster = FakeCluster()
        self.store = Store()
        self.ledger = WriteLedger()
        self.distrusted: list[str] = []
        self.woken: list[Key] = []
        self.decide: Callable[[Observed], Decision] = lambda _observed: Decision()
        self.observed: list[Observed] = []
        self.writer = Writer(
            self.cluster,
            self.store,
            self.ledger,
            self.clock,
            distrust=self.distrusted.append,
            wake=self.woken.append,
        )
        self.claims = ClaimReader(self.cluster, self.clock)
        self.events = EventRecorder(self.cluster, self.clock, instance="test")
        self.served = ServedCrd(self.cluster, clock_s=self.clock_s)
        self.reconciler = Reconciler(
            served=self.served,
            store=self.store,
            decide=lambda observed, _now: self._decide(observed),
            confirmer=Confirmer(self.cluster, self.store, distrust=self.distrusted.append),
            writer=self.writer,
            claims=self.claims,
            events=self.events,
            ledger=self.ledger,
            clock=self.clock,
        )

    def clock(self) -> datetime:
        return self.now

    def clock_s(self) -> float:
        return self.now.timestamp()

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def make_resource(self, **spec: Any) -> dict[str, Any]:
        body = self.cluster.seed(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"namespace": KEY.namespace, "name": KEY.name, "generation": 1},
                "spec": spec,
            }
        )
        self.store.put(body, deleted=False)
        return body

    def _decide(self, observed: Observed) -> Decision:
        self.observed.append(observed)
        return self.decide(observed)


def service(name: str = "llama", owner_uid: str = "", **spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": KEY.name, "uid": owner_uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": KEY.namespace,
            "name": name,
            "labels": {Label.MANAGED_BY: MANAGED_BY_VALUE, Label.DEPLOYMENT: KEY.name},
            "ownerReferences": [owner] if owner_uid else [],
        },
        "spec": spec,
    }


def apply(manifest: dict[str, Any], *, owned: bool = False, uid: str | None = None) -> Apply:
    return Apply(
        kind=ChildKind(kind_of(manifest)),
        name=manifest["metadata"]["name"],
        manifest=manifest,
        owned=owned,
        digest=digest(manifest),
        why="the test says so",
        uid=uid,
    )


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_service() -> Callable[..., dict[str, Any]]:
    return service


@pytest.fixture
def make_apply() -> Callable[..., Apply]:
    return apply
