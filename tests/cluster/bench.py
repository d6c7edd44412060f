"""``make bench``: what the planner and the operator cost, as counts and as ratios measured in one run.

The floor is the same StatefulSets and headless Services created directly on the same control plane: what
Kubernetes itself needs for the groups. Absolute times belong to the machine; ratios and counts travel.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from control_plane.audit import AuditEvent, account_user, count_by_kind, now, read_audit
from control_plane.client import Client
from control_plane.cluster import Cluster
from control_plane.nodes import make_nodes
from control_plane.plane import ControlPlane
from control_plane.waiting import wait_for, wait_served
from shardwright_operator.api.names import leader_address
from shardwright_operator.api.plan_request import declared_pool, plan_request
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.revision import Revision, named
from shardwright_operator.build.service import ranks_service
from shardwright_operator.build.stateful_set import leader_set, worker_set
from shardwright_operator.build.template import render_templates
from shardwright_operator.observe.pools import selection_of
from shardwright_planner import PlanRequest, plan
from shardwright_planner.planner import search

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "shardwright.dev_modeldeployments.yaml"
SHARDWRIGHT = Path(sys.executable).with_name("shardwright")
ACCOUNT = ("shardwright-bench", "operator")
MDEP = "modeldeployments.shardwright.dev"
THREADS = 16
WIDE = (
    "meta-llama/Llama-3.1-405B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "Qwen/Qwen3-235B-A22B",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "openai/gpt-oss-120b",
)

SPEC: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "slo": {"concurrency": 32, "timePerOutputToken": "150ms", "timeToFirstToken": "30s"},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCost:
    """CPU time and memory of the operator's process so far."""

    cpu_s: float
    rss_mib: float
    peak_mib: float

    @classmethod
    def of(cls, pid: int) -> "ProcessCost":
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
        sizes = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
        ticks = os.sysconf("SC_CLK_TCK")
        return cls(
            cpu_s=(int(fields[11]) + int(fields[12])) / ticks,
            rss_mib=int(sizes["VmRSS"]) / 1024,
            peak_mib=int(sizes["VmHWM"]) / 1024,
        )


def main() -> int:
    """Run all parts; prints a line a figure."""
    parser = argparse.ArgumentParser(description="Figures of the planner and the operator.")
    parser.add_argument("--resources", type=int, default=200, help="two-node resources (default: 200)")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to watch an idle operator")
    options = parser.parse_args()
    _planner()
    _command_line()
    with ControlPlane() as plane:
        cluster = plane.cluster
        client = cluster.client()
        make_nodes(client, "H100-SXM-80GB", 2 * options.resources + 2, prefix="gpu")
        cluster.kubectl("apply", "--server-side", "-f", str(CRD))
        wait_served(client, MDEP)
        kubeconfig = _account(cluster, client)
        floor_s = _floor(client, options.resources)
        with _operator(kubeconfig) as process:
            _one(client)
            _many(cluster, client, process, options.resources, floor_s)
            _idle(cluster, process, options)
        _restart(cluster, kubeconfig, options.resources)
        client.close()
    return 0


def _say(what: str, figure: str) -> None:
    print(f"{what:<58} {figure}", flush=True)


# -- planner ------------------------------------------------------------------------------------------


def _planner() -> None:
    small = _question("meta-llama/Llama-3.1-405B-Instruct", nodes=2)
    _say("planner: 405B on 2 x 8 GPUs, ms a plan", _times_ms(small))
    for name in WIDE:
        # Nothing is fast enough, so that every candidate is judged and timed: the longest way.
        request = _question(name, nodes=8, tpot="1ms")
        count = len(search(request))
        short = name.partition("/")[2]
        _say(f"planner: {short[:24]} on 8 x 8 GPUs, ms a plan", f"{_times_ms(request)}; {count} candidates")
    _say("  aiconfigurator 0.12.0, one search, as published", "29 to 95 s")


def _command_line() -> None:
    """CPU of ``shardwright plan`` as a process, imports and all. The least of some: others wake up caches."""
    question = [str(SHARDWRIGHT), "plan", "-f", str(ROOT / "examples" / "llama-3.1-405b.yaml"), "-o", "json"]
    costs = []
    for _ in range(5):
        before = os.times()
        subprocess.run(question, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        costs.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    _say("planner: `shardwright plan` as a process", f"{min(costs):.2f} s of CPU, least of {len(costs)}")


def _question(name: str, *, nodes: int, tpot: str = "150ms") -> PlanRequest:
    spec = parse_spec(
        {
            **SPEC,
            "model": {"name": name},
            "slo": {"concurrency": 32, "timePerOutputToken": tpot},
            "hardware": {**SPEC["hardware"], "maxNodes": nodes},
        }
    )
    pool = declared_pool(spec)
    assert pool is not None
    return plan_request(spec, (pool,))


def _times_ms(request: PlanRequest, rounds: int = 30) -> str:
    plan(request)
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        plan(request)
        times.append((time.perf_counter() - started) * 1000)
    return f"median {statistics.median(times):.1f}, worst of {rounds}: {max(times):.1f}"


# -- operator -----------------------------------------------------------------------------------------


def _account(cluster: Cluster, client: Client) -> Path:
    """An identity of its own, so that the audit log tells the operator's requests from ours."""
    namespace, name = ACCOUNT
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    cluster.kubectl("create", "serviceaccount", name, "--namespace", namespace)
    cluster.kubectl(
        "create",
        "clusterrolebinding",
        "shardwright-bench",
        "--clusterrole=cluster-admin",
        f"--serviceaccount={namespace}:{name}",
    )
    return cluster.account_kubeconfig(namespace, name)


@contextmanager
def _operator(kubeconfig: Path) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.NamedTemporaryFile("w+", prefix="shardwright-operator-", suffix=".log") as log:
        process = subprocess.Popen(
            [str(SHARDWRIGHT), "operator", "--health-port", "0", "--metrics-port", "0"],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(lambda: "serving" in Path(log.name).read_text(), "the operator works", timeout_s=60)
            yield process
        finally:
            process.terminate()
            process.wait(timeout=30)


def _in_parallel(work: Callable[[int], object], count: int) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(count)))


def _namespace(client: Client, name: str) -> str:
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait_for(lambda: client.find("serviceaccounts", "default", name), f"namespace {name} has an account")
    return name


def _ready_pods(client: Client, namespace: str) -> int:
    pods = client.list("pods", namespace)
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
        for pod in pods
    )


def _await_pods(client: Client, namespace: str, count: int, started: float) -> float:
    wait_for(
        lambda: _ready_pods(client, namespace) == count, "all pods are ready", timeout_s=300, interval_s=0.5
    )
    return time.monotonic() - started


def _floor(client: Client, count: int) -> float:
    """The same sets and Services, created directly. They are owned by a ConfigMap that is deleted after."""
    namespace = _namespace(client, "floor")
    anchor = client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "floor", "namespace": namespace}}
    )
    spec = parse_spec(SPEC)
    pool = declared_pool(spec)
    assert pool is not None
    chosen = plan(plan_request(spec, (pool,)))

    def manifests(index: int) -> list[dict[str, Any]]:
        owner = Owner(name=f"floor-{index}", namespace=namespace, uid=anchor["metadata"]["uid"])
        leader, worker = render_templates(spec, chosen, selection_of(pool.gpu), owner)
        assert leader_address(owner.name, "$(GROUP_INDEX)", namespace) in str(leader)
        revision = named(
            Revision(
                number=1,
                plan=chosen,
                pool=selection_of(pool.gpu),
                image="",
                default_image="",
                engine_version="",
                planner_version="",
                operator_version="",
                plan_inputs="",
                pod_inputs="",
                members=2,
                leader_template=leader,
                worker_template=worker,
            ),
            owner,
        )
        made = [
            ranks_service(owner, 0),
            leader_set(owner, revision, 0, replicas=1, annotations={}),
            worker_set(owner, revision, 0, replicas=1),
        ]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "floor", "uid": owner.uid}
        for manifest in made:
            manifest["metadata"]["ownerReferences"] = [reference]
        return made

    rendered = [manifests(index) for index in range(count)]
    started = time.monotonic()
    _in_parallel(lambda index: [client.create(m) for m in rendered[index]], count)
    floor_s = _await_pods(client, namespace, 2 * count, started)
    _say(f"floor: {count} x (2 sets + 1 Service) created directly", f"{floor_s:.1f} s to all pods ready")
    client.delete("configmaps", "floor", namespace)
    client.delete("namespaces", namespace)
    wait_for(lambda: not client.list("pods", namespace), "the floor is gone", timeout_s=180, interval_s=1.0)
    return floor_s


def _resource(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": SPEC,
    }


def _one(client: Client) -> None:
    namespace = _namespace(client, "one")
    started = time.monotonic()
    client.create(_resource(namespace, "llama"))
    wait_for(
        lambda: client.find("statefulsets.apps", "llama-0-worker", namespace),
        "the children exist",
        timeout_s=30,
        interval_s=0.01,
    )
    _say("operator: apply -> all children of one resource", f"{time.monotonic() - started:.2f} s")
    client.delete("namespaces", namespace)
    wait_for(lambda: not client.list("pods", namespace), "it is gone", timeout_s=60)


def _many(
    cluster: Cluster, client: Client, process: subprocess.Popen[bytes], count: int, floor_s: float
) -> None:
    namespace = _namespace(client, "many")
    before = ProcessCost.of(process.pid)
    since = now()
    started = time.monotonic()
    _in_parallel(lambda index: client.create(_resource(namespace, f"llama-{index}")), count)
    seconds = _await_pods(client, namespace, 2 * count, started)
    wait_for(lambda: _all_ready(client, namespace, count), "all are Ready", timeout_s=120, interval_s=0.5)
    settled = time.monotonic() - started
    after = ProcessCost.of(process.pid)
    _say(
        f"operator: {count} resources at once, all pods ready",
        f"{seconds:.1f} s = {seconds / floor_s:.2f} x floor",
    )
    _say("operator: ... and every status Ready", f"{settled:.1f} s")
    _say(
        "operator: CPU for that, and per resource",
        f"{after.cpu_s - before.cpu_s:.1f} s, {1000 * (after.cpu_s - before.cpu_s) / count:.0f} ms",
    )
    _say("operator: peak RSS", f"{after.peak_mib:.0f} MiB")
    reasons = Counter(event["reason"] for event in client.list("events", namespace) if _is_ours(event))
    _say("operator: Events", ", ".join(f"{n} {reason}" for reason, n in reasons.most_common()))
    requests = _requests(cluster, since)
    _say("operator: API requests per resource", f"{len(requests) / count:.1f}")
    for (verb, resource), number in sorted(count_by_kind(requests).items(), key=lambda item: -item[1]):
        _say(f"    {verb} {resource}", f"{number / count:.2f}")


def _is_ours(event: dict[str, Any]) -> bool:
    return bool(event["involvedObject"]["kind"] == "ModelDeployment")


def _all_ready(client: Client, namespace: str, count: int) -> bool:
    resources = client.list(MDEP, namespace)
    return sum(r["status"].get("readyReplicas") == 1 for r in resources) == count


def _requests(cluster: Cluster, since: datetime) -> list[AuditEvent]:
    assert cluster.audit_log is not None
    events = read_audit(cluster.audit_log, user=account_user(*ACCOUNT), since=since, leases=False)
    return [event for event in events if event.verb not in {"watch", "list"} and event.resource]


def _idle(cluster: Cluster, process: subprocess.Popen[bytes], options: argparse.Namespace) -> None:
    time.sleep(5)
    since, before = now(), ProcessCost.of(process.pid)
    time.sleep(options.idle)
    after = ProcessCost.of(process.pid)
    writes = Counter(e.full_resource for e in _requests(cluster, since) if e.is_write)
    what = f"operator: idle for {options.idle:.0f} s with {options.resources} resources"
    _say(
        what,
        f"{sum(writes.values())} writes {dict(writes) or ''}, {after.cpu_s - before.cpu_s:.2f} s of CPU, "
        f"{after.rss_mib:.0f} MiB RSS",
    )


def _restart(cluster: Cluster, kubeconfig: Path, count: int) -> None:
    since, started = now(), time.monotonic()
    with _operator(kubeconfig) as process:
        took = time.monotonic() - started
        time.sleep(5)
        writes = [event for event in _requests(cluster, since) if event.is_write]
        cost = ProcessCost.of(process.pid)
    _say(
        f"operator: restarted beside {count} resources, serving after",
        f"{took:.1f} s, {len(writes)} writes, {cost.cpu_s:.1f} s of CPU, {cost.peak_mib:.0f} MiB peak",
    )


if __name__ == "__main__":
    sys.exit(main())
