"""Puts the parts of a working operator together, for the process and for tests alike."""

from collections.abc import Callable, Mapping
from datetime import datetime

from shardwright_operator.api.gang import Gang
from shardwright_operator.apply.claims import ClaimReader
from shardwright_operator.apply.confirmation import Confirmer
from shardwright_operator.apply.events import EventRecorder
from shardwright_operator.apply.notes import WriteLedger
from shardwright_operator.apply.writer import Writer
from shardwright_operator.build.command import EVERY_ADDRESS, EVERY_ADDRESS_OF_IPV6
from shardwright_operator.cluster import KINDS, Cluster
from shardwright_operator.decide import DecideSettings, decide
from shardwright_operator.decide.decision import Decision
from shardwright_operator.intake import Intake
from shardwright_operator.measuring import Measurer
from shardwright_operator.metrics import Metrics
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import Key
from shardwright_operator.queue import WorkQueue, work
from shardwright_operator.reconciler import Decide, Reconciler
from shardwright_operator.served_crd import ServedCrd
from shardwright_operator.settings import Settings


def standard_decide(settings: Settings) -> Decide:
    """The operator's own decisions under the settings."""
    decide_settings = DecideSettings(
        operator_version=settings.operator_version,
        default_image=settings.default_image,
        api_host=EVERY_ADDRESS_OF_IPV6 if settings.ipv6 else EVERY_ADDRESS,
        user_id=settings.user_id,
        check_image=settings.check_image,
    )

    def decide_now(observed: Observed, now: datetime) -> Decision:
        return decide(observed, now, decide_settings)

    return decide_now


class Assembly:
    """Store, queue, intake and reconciler over one cluster. Must be made inside of a running event loop."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        served: ServedCrd,
        metrics: Metrics,
        decide: Decide,
        *,
        clock: Callable[[], datetime],
        gang_obstacles: Mapping[Gang, str],
    ) -> None:
        """``gang_obstacles`` says of gang schedulers why they cannot be used; their kinds are left alone."""
        self.kinds = tuple(
            kind
            for kind in KINDS
            if kind.watched
            and (kind.namespaced or settings.cluster_wide)
            and (kind.gang is None or kind.gang not in gang_obstacles)
        )
        self.store = Store(nodes_visible=settings.cluster_wide, gang_obstacles=gang_obstacles)
        self.queue: WorkQueue[Key] = WorkQueue()
        self.intake = Intake(
            cluster=cluster,
            store=self.store,
            enqueue=self.queue.add,
            enqueue_patient=self.queue.add_patient,
            kinds=self.kinds,
            namespaces=settings.namespaces,
        )
        served.guard(reread=self.intake.reread, unedited_changes=lambda: self.store.unedited_changes)
        ledger = WriteLedger()
        self.reconciler = Reconciler(
            served=served,
            store=self.store,
            decide=decide,
            confirmer=Confirmer(cluster, self.store, distrust=self.intake.distrust),
            writer=Writer(
                cluster, self.store, ledger, clock, distrust=self.intake.distrust, wake=self.queue.add
            ),
            claims=ClaimReader(cluster, clock),
            events=EventRecorder(cluster, clock, instance=settings.identity or "shardwright-operator"),
            ledger=ledger,
            clock=clock,
        )
        self.measurer = Measurer(self.store, self.queue.add)
        self._metrics = metrics
        metrics.watch(
            version=settings.operator_version,
            depth=lambda: self.queue.depth,
            waiting=lambda: self.queue.waiting,
            resources=self.store.resources,
        )

    async def work(self) -> None:
        """One worker, until the queue closes."""
        await work(self.queue, self.reconciler.reconcile, self._metrics.reconciled)
