"""Prometheus metrics of one operator, in a registry of its own: two operators in one process do not mix."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shardwright_operator.api.constants import ConditionType
from shardwright_operator.observe.conditions import holds
from shardwright_operator.observe.views import ResourceView
from shardwright_operator.queue import Run

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """All metrics of the operator; names begin with ``shardwright_``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._duration = Histogram(
            "shardwright_reconcile_duration_seconds",
            "Duration of one pass over a ModelDeployment.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._passes = Counter(
            "shardwright_reconcile", "Passes over ModelDeployments.", registry=self.registry
        )
        self._errors = Counter(
            "shardwright_reconcile_errors",
            "Passes that ended with an error, by its class.",
            ["reason"],
            registry=self.registry,
        )
        self._requests = Counter(
            "shardwright_api_requests",
            "Requests to the API server by verb, kind and HTTP code (0: no answer).",
            ["verb", "kind", "code"],
            registry=self.registry,
        )
        self._request_duration = Histogram(
            "shardwright_api_request_duration_seconds",
            "Duration of requests to the API server by verb.",
            ["verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._leader = Gauge(
            "shardwright_leader", "1 while this process holds the Lease.", registry=self.registry
        )
        self._live: Collector | None = None
        self._info = Gauge(
            "shardwright_info", "Version of the operator.", ["version"], registry=self.registry
        )

    def reconciled(self, run: Run) -> None:
        """Count one pass."""
        self._passes.inc()
        self._duration.observe(run.seconds)
        if run.error:
            self._errors.labels(run.error).inc()

    def requested(self, verb: str, kind: str, code: int, seconds: float) -> None:
        """Count one request to the API server."""
        self._requests.labels(verb, kind, str(code)).inc()
        self._request_duration.labels(verb).observe(seconds)

    def leading(self, leads: bool) -> None:
        """Whether this process holds the Lease."""
        self._leader.set(1 if leads else 0)

    def watch(
        self,
        *,
        version: str,
        depth: Callable[[], int],
        waiting: Callable[[], int],
        resources: Callable[[], Iterator[ResourceView]],
    ) -> None:
        """Read the queue and the resources at each scrape; those of an earlier call are read no more."""
        self._info.labels(version).set(1)
        if self._live is not None:
            self.registry.unregister(self._live)
        self._live = _Live(depth, waiting, resources)
        self.registry.register(self._live)

    def expose(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)


class _Live(Collector):
    """Values that are read when asked for, so that no code has to keep them up to date."""

    def __init__(
        self,
        depth: Callable[[], int],
        waiting: Callable[[], int],
        resources: Callable[[], Iterator[ResourceView]],
    ) -> None:
        self._depth = depth
        self._waiting = waiting
        self._resources = resources

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See prometheus_client."""
        yield GaugeMetricFamily(
            "shardwright_queue_depth", "Keys that wait for a worker.", value=self._depth()
        )
        yield GaugeMetricFamily(
            "shardwright_queue_waiting", "Keys that wait for their time.", value=self._waiting()
        )
        states = Tally({"ready": 0, "reconciling": 0, "stalled": 0})
        wanted = ready = 0
        for resource in self._resources():
            states[state_of(resource)] += 1
            wanted += _count(resource.spec, "replicas", 1)
            ready += _count(resource.status, "readyReplicas", 0)
        family = GaugeMetricFamily("shardwright_resources", "ModelDeployments by state.", labels=["state"])
        for state, number in sorted(states.items()):
            family.add_metric([state], number)
        yield family
        yield GaugeMetricFamily("shardwright_groups", "Groups that are wanted.", value=wanted)
        yield GaugeMetricFamily("shardwright_groups_ready", "Groups that serve.", value=ready)


def state_of(resource: ResourceView) -> str:
    """``ready``, ``stalled`` or ``reconciling``, from the conditions as last written."""
    if holds(resource.status, ConditionType.STALLED):
        return "stalled"
    return "ready" if resource.is_ready else "reconciling"


def _count(part: Mapping[str, Any], name: str, default: int) -> int:
    value = part.get(name, default)
    return value if isinstance(value, int) else default
