"""``make demo``: the main job on a real control plane, as a person would do it, with the commands shown.

Nothing is played but the nodes and their containers: kwok simulates those, so 16 H100 cost nothing here. With
a given cluster the same steps run there, in a namespace of their own that is removed at the end.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from control_plane.client import Client
from control_plane.cluster import GIVEN_KUBECONFIG, Cluster
from control_plane.nodes import delete_nodes, make_nodes
from control_plane.plane import ControlPlane
from control_plane.waiting import wait_for, wait_served

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/llama-3.1-405b.yaml"
NAME = "llama-405b"
NAMESPACE = "shardwright-demo"
CRD = "crds/shardwright.dev_modeldeployments.yaml"
SHARDWRIGHT = Path(sys.executable).with_name("shardwright")

BOLD, DIM, GREEN, PLAIN = ("\033[1m", "\033[2m", "\033[32m", "\033[0m") if sys.stdout.isatty() else ("",) * 4


class Stage:
    """The screen: headings, commands with their output, and how long things took."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.started = time.monotonic()
        self._shown = ""

    def heading(self, text: str) -> None:
        seconds = time.monotonic() - self.started
        print(f"\n{BOLD}== {text}{PLAIN} {DIM}[{seconds:.1f} s]{PLAIN}", flush=True)

    def say(self, text: str) -> None:
        print(f"{DIM}{text}{PLAIN}", flush=True)

    def kubectl(self, *arguments: str, namespaced: bool = True) -> str:
        print(f"{GREEN}$ kubectl {shlex.join(arguments)}{PLAIN}", flush=True)
        output = self.quiet(*arguments, namespaced=namespaced)
        print(output.rstrip(), flush=True)
        return output

    def quiet(self, *arguments: str, namespaced: bool = True) -> str:
        scope = ("--namespace", NAMESPACE) if namespaced else ()
        return self.cluster.kubectl(*arguments, *scope)

    def resource(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.quiet("get", "mdep", NAME, "-o", "json"))
        return found

    def until(self, what: str, done: Callable[[dict[str, Any]], bool], timeout_s: float = 60.0) -> None:
        """Wait for a state of the resource; each new state is shown on the way."""

        def look() -> bool:
            resource = self.resource()
            status = resource.get("status", {})
            ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), None)
            line = (
                f"groups {status.get('ready', '?')}  {ready['reason']}: {ready['message']}" if ready else ""
            )
            if line and line != self._shown:
                self._shown = line
                self.say(f"  {time.monotonic() - self.started:5.1f} s  {line}")
            return done(resource)

        wait_for(look, what, timeout_s=timeout_s, interval_s=0.2, detail=lambda: self._shown)


def main() -> int:
    """Run the demo; the exit code is 0 when the group served, and served again after the loss of a member."""
    os.chdir(ROOT)
    with ExitStack() as life:
        stage = Stage(life.enter_context(_cluster()))
        client = stage.cluster.client()
        life.callback(client.close)
        _prepare(stage, client, life)
        life.enter_context(_operator(stage))
        _main_job(stage)
        _show_group(stage)
        if stage.cluster.simulated:
            _lose_a_member(stage)
        stage.heading("done")
        stage.say("`make cluster-up` brings up the same control plane and keeps it, to try things by hand.")
    return 0


@contextmanager
def _cluster() -> Iterator[Cluster]:
    given = os.environ.get(GIVEN_KUBECONFIG)
    if given:
        print(f"{BOLD}== the cluster of {given}{PLAIN}")
        with tempfile.TemporaryDirectory(prefix="shardwright-") as folder:
            yield Cluster.given(Path(given).resolve(), Path(folder))
        return
    print(f"{BOLD}== a real Kubernetes control plane, without Docker{PLAIN}", flush=True)
    started = time.monotonic()
    with ControlPlane() as plane:
        print(
            f"{DIM}etcd, API server, controller-manager, scheduler: up in {time.monotonic() - started:.1f} s"
        )
        print(f"export KUBECONFIG={plane.kubeconfig}{PLAIN}")
        yield plane.cluster


def _prepare(stage: Stage, client: Client, life: ExitStack) -> None:
    if stage.cluster.simulated:
        stage.heading("two simulated nodes of 8 x H100")
        nodes = make_nodes(client, "H100-SXM-80GB", 2, prefix="h100")
        life.callback(delete_nodes, client, nodes)
        columns = "NODE:.metadata.name,GPU:.metadata.labels.nvidia\\.com/gpu\\.product"
        stage.kubectl(
            "get",
            "nodes",
            "-o",
            f"custom-columns={columns},GPUS:.status.allocatable.nvidia\\.com/gpu",
            namespaced=False,
        )
    stage.quiet("create", "namespace", NAMESPACE, namespaced=False)
    life.callback(stage.quiet, "delete", "namespace", NAMESPACE, "--wait=false", namespaced=False)
    stage.heading("the resource definition and the operator")
    stage.kubectl("apply", "--server-side", "-f", CRD, namespaced=False)
    wait_served(client, "modeldeployments.shardwright.dev")


@contextmanager
def _operator(stage: Stage) -> Iterator[None]:
    command = (
        [str(SHARDWRIGHT), "operator", "--namespaces", NAMESPACE]
        if not stage.cluster.simulated
        else [
            str(SHARDWRIGHT),
            "operator",
        ]
    )
    ports = ["--health-port", "0", "--metrics-port", "0", "--log-format", "text"]
    with tempfile.NamedTemporaryFile("w+", prefix="shardwright-operator-", suffix=".log") as log:
        print(f"{GREEN}$ shardwright operator{PLAIN}  {DIM}(log: {log.name}){PLAIN}", flush=True)
        environment = {**os.environ, "KUBECONFIG": str(stage.cluster.kubeconfig)}
        process = subprocess.Popen([*command, *ports], env=environment, stdout=log, stderr=log)
        try:
            wait_for(
                lambda: "serving" in Path(log.name).read_text() or process.poll() is not None,
                "the operator works",
                timeout_s=60,
                detail=lambda: Path(log.name).read_text()[-2000:],
            )
            if process.poll() is not None:
                raise RuntimeError(f"the operator ended:\n{Path(log.name).read_text()[-2000:]}")
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _main_job(stage: Stage) -> None:
    stage.heading("a model and a service level, and nothing else")
    print((ROOT / EXAMPLE).read_text().rstrip())
    stage.kubectl("apply", "-f", EXAMPLE)
    if stage.cluster.simulated:
        stage.until("the group serves", lambda r: r["status"].get("readyReplicas") == 1)
    else:
        stage.until("the plan is accepted", lambda r: "plan" in r.get("status", {}))
    stage.kubectl("get", "mdep")
    stage.heading("the plan, as it stands in status.plan")
    print(_explanation(stage.resource()["status"]["plan"]))


def _explanation(wire: dict[str, Any]) -> str:
    from shardwright_operator.api.plan_status import plan_of
    from shardwright_planner import explain

    return explain(plan_of(wire), width=100, color=sys.stdout.isatty())


def _show_group(stage: Stage) -> None:
    stage.heading("one group: two sets, 16 GPUs, each pod with its node rank")
    stage.kubectl("get", "statefulsets,services,poddisruptionbudgets,networkpolicies")
    gpus = ".spec.containers[0].resources.limits.nvidia\\.com/gpu"
    rank = ".metadata.labels.apps\\.kubernetes\\.io/pod-index"
    columns = f"POD:.metadata.name,NODE RANK:{rank},GPUS:{gpus},NODE:.spec.nodeName,PHASE:.status.phase"
    stage.kubectl("get", "pods", "-o", f"custom-columns={columns}")
    stage.say("what rank 1 runs:")
    pod = json.loads(stage.quiet("get", "statefulset", f"{NAME}-0-worker", "-o", "json"))
    container = pod["spec"]["template"]["spec"]["containers"][0]
    print("  " + " ".join([*container["command"], *container.get("args", ())]))


def _lose_a_member(stage: Stage) -> None:
    stage.heading("a worker is lost: the whole group is replaced as one unit")
    stage.kubectl("delete", "pod", f"{NAME}-0-worker-1", "--wait=false")
    stage.until("the group is down", lambda r: r["status"].get("readyReplicas") == 0)
    stage.until("the group serves again", lambda r: r["status"].get("readyReplicas") == 1)
    group = stage.resource()["status"]["groups"][0]
    stage.say(f"restarts: {group['restarts']}, first failure kept: {group['firstFailure']['message']}")
    fields = "custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message"
    stage.kubectl("get", "events", "--field-selector", f"involvedObject.name={NAME}", "-o", fields)


if __name__ == "__main__":
    sys.exit(main())
