"""The nodes themselves, without an engine: what the tests of engines take for granted."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from control_plane.client import Client, Json
from control_plane.waiting import wait_for
from real_nodes import RealCluster

pytestmark = pytest.mark.engine

PATIENCE_S = 300.0
IMAGE = "vllm/vllm-openai:v0.32.0"
PORT = 8080
_SERVER = f"""\
import http.server, socket
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(socket.gethostname().encode())
http.server.HTTPServer(("", {PORT}), Handler).serve_forever()
"""
_CLIENT = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"


@pytest.fixture(scope="module")
def namespace(api: Client) -> Iterator[str]:
    name = "nodes"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait_for(
        lambda: api.find("serviceaccounts", "default", name),
        "the namespace has an account",
        timeout_s=PATIENCE_S,
    )
    yield name
    api.delete("namespaces", name)


@pytest.fixture(scope="module")
def pods(api: Client, nodes: RealCluster, namespace: str) -> dict[str, str]:
    """A web server on each node, and a Service over all of them; the names of the pods by node."""
    service = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": PORT}]}
    metadata = {"name": "web", "namespace": namespace}
    api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    names = {node: f"web-on-{node}" for node in nodes.nodes}
    for node, name in names.items():
        api.create(_pod(name, namespace, node))
    for name in names.values():
        wait_for(
            lambda name=name: _is_ready(api, name, namespace), f"pod {name} is Ready", timeout_s=PATIENCE_S
        )
    return names


def test_a_service_is_reached_by_name_from_every_node(
    nodes: RealCluster, namespace: str, pods: dict[str, str]
) -> None:
    for name in pods.values():
        command = (
            "exec",
            "-n",
            namespace,
            name,
            "--",
            "python3",
            "-c",
            _CLIENT,
            f"http://web.{namespace}.svc",
        )
        answer = _eventually(lambda command=command: nodes.cluster.kubectl(*command))
        assert answer.strip() in pods.values()


def test_a_lost_node_is_noticed_and_comes_back_with_its_pods(
    api: Client, nodes: RealCluster, namespace: str, pods: dict[str, str]
) -> None:
    node = nodes.nodes["node-c"]
    node.power_off()
    wait_for(lambda: _ready_status(api, node.name) == "Unknown", "the loss is noticed", timeout_s=PATIENCE_S)
    node.power_on()
    node.wait_ready(api)
    wait_for(
        lambda: _is_ready(api, pods[node.name], namespace), "its pod is Ready again", timeout_s=PATIENCE_S
    )
    assert node.offers_gpus(api)


def _pod(name: str, namespace: str, node: str) -> Json:
    container = {
        "name": "web",
        "image": IMAGE,
        "command": ["python3", "-c", _SERVER],
        "readinessProbe": {"httpGet": {"port": PORT, "path": "/"}, "periodSeconds": 1},
        "securityContext": {"runAsUser": 1000, "readOnlyRootFilesystem": True},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1},
    }


def _is_ready(api: Client, name: str, namespace: str) -> bool:
    conditions = api.get("pods", name, namespace)["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _ready_status(api: Client, node: str) -> str:
    conditions = api.get("nodes", node)["status"]["conditions"]
    return next(str(c["status"]) for c in conditions if c["type"] == "Ready")


def _eventually(action: Callable[[], str]) -> str:
    # A proxy takes a moment to know the endpoints of a Service.
    def tried() -> str:
        with contextlib.suppress(Exception):
            return action()
        return ""

    return wait_for(tried, "the Service answers", timeout_s=PATIENCE_S, interval_s=1)
