"""The operator's part of ``make bench``: floors, many resources, idleness, a restart, and losses of pods.

Two floors are measured in the same run. The first is what a group cannot do without, its StatefulSets and
the headless Service, created directly. The second has all children of a resource, created directly too: what
lies between the two is the price of the children, and what lies above the second that of the operator.
"""

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from bench_ground import MDEP, SPEC, Ground, OperatorAtWork, in_parallel, running_operator, say
from control_plane.audit import AuditEvent, count_by_kind, now, read_audit
from control_plane.waiting import wait_for
from shardwright_operator.api import names
from shardwright_operator.api.constants import API_VERSION, KIND, Role
from shardwright_operator.decide import DecideSettings, decide
from shardwright_operator.decide.decision import Apply
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import Key

GROUP_ALONE = "2 sets + 1 Service"
ALL_CHILDREN = "all 8 children"
LOSS_INTERVALS_S = (2.0, 0.5)
"""Between one pod's death and the next; the shorter one keeps a small machine busy with the groups before."""

MANY = "many"


def floors(ground: Ground, count: int) -> Mapping[str, float]:
    """Seconds until all pods are ready of children that are created directly, by what is created."""
    found = {}
    for number, what in enumerate((GROUP_ALONE, ALL_CHILDREN)):
        # Each in a namespace of its own: one that was deleted may take minutes to go.
        namespace = ground.namespace(f"floor-{number}")
        before, seconds = ground.cpu_s(), _floor(ground, namespace, count, what)
        cpu = _spent(before, ground.cpu_s(), count)
        say(f"floor: {count} x ({what}) created directly", f"{seconds:.1f} s to all pods ready; {cpu}")
        found[what] = seconds
        ground.clear(namespace)
    return found


def _floor(ground: Ground, namespace: str, count: int, what: str) -> float:
    anchor = ground.client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "anchor", "namespace": namespace}}
    )
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "anchor", "uid": anchor["metadata"]["uid"]}
    rendered = [_children(f"floor-{index}", namespace, owner) for index in range(count)]
    if what == GROUP_ALONE:
        rendered = [[m for m in manifests if _is_of_the_group(m)] for manifests in rendered]
    started = time.monotonic()
    in_parallel(lambda index: [ground.client.create(m) for m in rendered[index]], count)
    return ground.await_pods(namespace, 2 * count, started)


def _children(name: str, namespace: str, owner: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The children of a new resource, as the operator itself renders them, under another owner."""
    store = Store(nodes_visible=False)
    resource = _resource(namespace, name)
    resource["metadata"] |= {"uid": str(owner["uid"]), "generation": 1, "resourceVersion": "1"}
    store.put(resource, deleted=False)
    decision = decide(
        store.observe(Key(namespace, name)), datetime.now(UTC), DecideSettings(operator_version="bench")
    )
    writes = [write for stage in decision.stages for write in stage if isinstance(write, Apply)]
    return [
        {**w.manifest, "metadata": {**w.manifest["metadata"], "ownerReferences": [owner]}} for w in writes
    ]


def _is_of_the_group(manifest: Mapping[str, Any]) -> bool:
    headless = manifest["kind"] == "Service" and manifest["spec"].get("clusterIP") == "None"
    return manifest["kind"] == "StatefulSet" or headless


def _resource(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": SPEC,
    }


def _name(index: int) -> str:
    return f"llama-{index}"


def first_resource(ground: Ground) -> None:
    """How long one resource takes when there is no other."""
    namespace, client = ground.namespace("one"), ground.client
    started = time.monotonic()
    client.create(_resource(namespace, "llama"))
    wait_for(
        lambda: client.find("statefulsets.apps", names.stateful_set("llama", 0, Role.WORKER), namespace),
        "the children exist",
        timeout_s=30,
        interval_s=0.01,
    )
    say("operator: apply -> all children of one resource", f"{time.monotonic() - started:.2f} s")
    ground.clear(namespace)


def grown(
    ground: Ground, operator: OperatorAtWork, sizes: Sequence[int], floor_s: Mapping[str, float]
) -> None:
    """Make resources up to each of the sizes; what each step costs, per resource."""
    namespace = ground.namespace(MANY)
    before = 0
    for size in sizes:
        _grow(ground, operator, namespace, before, size, floor_s)
        before = size
    reasons = Counter(
        event["reason"]
        for event in ground.client.list("events", namespace)
        if event["involvedObject"]["kind"] == KIND
    )
    say("operator: Events", ", ".join(f"{n} {reason}" for reason, n in reasons.most_common()))


def _grow(
    ground: Ground,
    operator: OperatorAtWork,
    namespace: str,
    first: int,
    size: int,
    floor_s: Mapping[str, float],
) -> None:
    made = size - first
    before, servers, since = operator.cost, ground.cpu_s(), now()
    passes = operator.metric("shardwright_reconcile_total")
    started = time.monotonic()
    in_parallel(lambda index: ground.client.create(_resource(namespace, _name(index))), size, first=first)
    seconds = ground.await_pods(namespace, 2 * size, started)
    wait_for(
        lambda: sum(row["Ready"] == "True" for row in ground.client.table(MDEP, namespace)) == size,
        "all are Ready",
        timeout_s=300,
        interval_s=0.5,
    )
    settled = time.monotonic() - started
    after, requests = operator.cost, ground.requests(since)
    passes = operator.metric("shardwright_reconcile_total") - passes
    title = f"operator: {made} resources" + (f" beside {first}" if first else " at once")
    ratios = "".join(f" = {seconds / s:.2f} x floor of {what}" for what, s in floor_s.items())
    say(f"{title}, all pods ready", f"{seconds:.1f} s, {1000 * seconds / made:.0f} ms each{ratios}")
    say("    every status Ready", f"{settled:.1f} s")
    cpu_s = after.cpu_s - before.cpu_s
    say("    operator, per resource", f"{1000 * cpu_s / made:.0f} ms of CPU, {passes / made:.1f} passes")
    say("    servers, per resource", _spent(servers, ground.cpu_s(), made))
    say("    operator's memory", f"{after.rss_mib:.0f} MiB, peak {after.peak_mib:.0f} MiB")
    kinds = sorted(count_by_kind(requests).items(), key=lambda item: -item[1])
    say("    requests to the API server, per resource", f"{len(requests) / made:.2f}")
    for (verb, resource), number in kinds:
        say(f"        {verb} {resource}", f"{number / made:.2f}")


def _spent(before: Mapping[str, float], after: Mapping[str, float], count: int) -> str:
    """CPU time of the servers between two moments, for each of so many resources."""
    each = ((name, 1000 * (after[name] - before[name]) / count) for name in after)
    return "CPU ms each: " + ", ".join(f"{name.removeprefix('kube-')} {ms:.0f}" for name, ms in each)


def idle_figures(ground: Ground, operator: OperatorAtWork, count: int, seconds: float) -> None:
    """What the operator does while nothing happens."""
    time.sleep(5)
    since, before = now(), operator.cost
    time.sleep(seconds)
    after = operator.cost
    writes = Counter(e.full_resource for e in ground.requests(since) if e.is_write)
    say(
        f"operator: idle for {seconds:.0f} s with {count} resources",
        f"{sum(writes.values())} writes {dict(writes) or ''}, {after.cpu_s - before.cpu_s:.2f} s of CPU, "
        f"{after.rss_mib:.0f} MiB",
    )


@contextmanager
def restart_figures(ground: Ground, count: int) -> Iterator[OperatorAtWork]:
    """Start the operator beside many resources; it goes on for whatever comes next."""
    since = now()
    with running_operator(ground) as operator:
        serving_s = time.monotonic() - operator.started
        wait_for(lambda: operator.has_settled(count), "all are looked at once", timeout_s=120, interval_s=0.1)
        settled_s = time.monotonic() - operator.started
        time.sleep(5)
        writes = [event for event in ground.requests(since) if event.is_write]
        cost = operator.cost
        say(
            f"operator: started beside {count} resources",
            f"serving after {serving_s:.1f} s, each looked at after {settled_s:.1f} s, {len(writes)} writes, "
            f"{cost.cpu_s:.1f} s of CPU, {cost.rss_mib:.0f} MiB, peak {cost.peak_mib:.0f} MiB",
        )
        yield operator


def reaction_figures(ground: Ground, operator: OperatorAtWork, losses: int) -> None:
    """Workers' pods die one after the other, each of another group; how soon their groups are taken down.

    Counted from the moment that the API server was asked for the pod's end, by the audit log.
    """
    each = losses // len(LOSS_INTERVALS_S)
    for turn, interval_s in enumerate(LOSS_INTERVALS_S):
        _lose(ground, range(turn * each, (turn + 1) * each), interval_s)
    say("    operator's memory", f"{operator.cost.rss_mib:.0f} MiB, peak {operator.cost.peak_mib:.0f} MiB")


def _lose(ground: Ground, indices: range, interval_s: float) -> None:
    client, since = ground.client, now()
    for index in indices:
        worker = f"{names.stateful_set(_name(index), 0, Role.WORKER)}-1"
        client.delete("pods", worker, MANY, grace_s=0)
        time.sleep(interval_s)
    time.sleep(5)
    died = {
        event.name.removesuffix("-0-worker-1"): event.received
        for event in read_audit(ground.plane.audit_log, since=since, verbs=("delete",), resource="pods")
        if event.user == "admin"
    }
    requests = ground.requests(since)
    say(f"operator: a pod dies every {interval_s:g} s", f"{len(requests) / len(indices):.1f} requests each")
    writes = [event for event in requests if event.resource == "statefulsets"]
    _say_delays("from its death to the first write of its group's end", died, writes)
    deletions = [event for event in requests if event.resource == "pods" and event.verb == "delete"]
    _say_delays("from its death to the first deletion of another member", died, deletions)


def _say_delays(what: str, died: Mapping[str, datetime], events: Sequence[AuditEvent]) -> None:
    delays = []
    for name, moment in died.items():
        of_it = [e.received for e in events if e.name.startswith(f"{name}-") and e.received >= moment]
        if of_it:
            delays.append((min(of_it) - moment).total_seconds())
    if len(delays) < 2:
        say(f"    {what}", f"seen {len(delays)} times for {len(died)} deaths")
        return
    percentiles = statistics.quantiles(delays, n=100, method="inclusive")
    say(
        f"    {what}",
        f"p50 {percentiles[49]:.3f} s, p95 {percentiles[94]:.3f} s, p99 {percentiles[98]:.3f} s "
        f"({len(delays)} of {len(died)})",
    )
