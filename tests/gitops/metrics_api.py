"""A metrics API as an autoscaler meets it: another API server behind the aggregation layer.

It serves the custom metrics of pods and external metrics, as the adapters of Prometheus and KEDA do, over TLS
on a loopback port. A Service with an external name leads the API server there, as nothing in this control
plane routes cluster IPs. It knows one figure, the requests that run in a namespace, and asks the API server
itself which pods a selector means.
"""

import base64
import http.server
import json
import ssl
import subprocess
import threading
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from control_plane.client import Client, Json
from control_plane.waiting import wait_for

CUSTOM, EXTERNAL = "custom.metrics.k8s.io/v1beta2", "external.metrics.k8s.io/v1beta1"
METRIC = "vllm_num_requests_running"
SERVICE = "metrics"
TIME = "2030-01-01T00:00:00Z"
KINDS = {CUSTOM: "MetricValueList", EXTERNAL: "ExternalMetricValueList"}


class MetricsApi:
    """Context manager: registered and served inside the block. ``load`` is the figure that it tells."""

    def __init__(self, client: Client, namespace: str, folder: Path) -> None:
        self._client = client
        self._namespace = namespace
        self._folder = folder
        self.load = 0
        self.pods_asked_for: set[tuple[str, ...]] = set()
        """Names of the pods that each selector of the autoscaler meant at the time."""

    def __enter__(self) -> Self:
        key, certificate = self._folder / "metrics.key", self._folder / "metrics.crt"
        _make_certificate(key, certificate, f"{SERVICE}.{self._namespace}.svc")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, name="metrics API", daemon=True).start()
        self._register(certificate.read_bytes())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An API that is registered and does not answer would hold up the end of every namespace.
        for group_version in (CUSTOM, EXTERNAL):
            self._client.delete("apiservices.apiregistration.k8s.io", _service_name(group_version))
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, query: dict[str, list[str]]) -> Json | None:
        """What stands under a path; None when nothing does."""
        for group_version in (CUSTOM, EXTERNAL):
            base = f"/apis/{group_version}"
            if path == base:
                return _discovery(group_version)
            if path.startswith(f"{base}/namespaces/") and path.endswith(f"/{METRIC}"):
                items = self._of_pods(query) if group_version == CUSTOM else [self._external()]
                return {
                    "kind": KINDS[group_version],
                    "apiVersion": group_version,
                    "metadata": {},
                    "items": items,
                }
        return None

    def _of_pods(self, query: dict[str, list[str]]) -> list[Json]:
        pods = self._client.list("pods", self._namespace, labels=query["labelSelector"][0])
        names = sorted(str(pod["metadata"]["name"]) for pod in pods)
        self.pods_asked_for.add(tuple(names))
        share_milli = 1000 * self.load // max(1, len(names))
        return [
            {
                "describedObject": {
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "namespace": self._namespace,
                    "name": n,
                },
                "metric": {"name": METRIC},
                "timestamp": TIME,
                "value": f"{share_milli}m",
            }
            for n in names
        ]

    def _external(self) -> Json:
        return {"metricName": METRIC, "metricLabels": {}, "timestamp": TIME, "value": str(self.load)}

    def _register(self, authority: bytes) -> None:
        port = self._server.server_port
        self._client.create(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"namespace": self._namespace, "name": SERVICE},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            }
        )
        for group_version in (CUSTOM, EXTERNAL):
            group, _, version = group_version.partition("/")
            spec = {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": base64.b64encode(authority).decode(),
                "service": {"namespace": self._namespace, "name": SERVICE, "port": port},
            }
            name = _service_name(group_version)
            metadata = {"name": name}
            header = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
            self._client.create({**header, "metadata": metadata, "spec": spec})
            wait_for(lambda name=name: self._is_available(name), f"{name} is available")  # type: ignore[misc]

    def _is_available(self, name: str) -> bool:
        body = self._client.get("apiservices.apiregistration.k8s.io", name)
        conditions = body.get("status", {}).get("conditions", ())
        return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)


class _Handler(http.server.BaseHTTPRequestHandler):
    api: MetricsApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        answer = self.api.answer(url.path, parse_qs(url.query))
        status = HTTPStatus.NOT_FOUND if answer is None else HTTPStatus.OK
        body = json.dumps(answer or {"kind": "Status", "apiVersion": "v1", "code": status}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  named so by the base class
        """Say nothing."""


def _discovery(group_version: str) -> Json:
    name = f"pods/{METRIC}" if group_version == CUSTOM else METRIC
    resource = {"name": name, "namespaced": True, "kind": KINDS[group_version], "verbs": ["get"]}
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": [{"singularName": "", **resource}],
    }


def _service_name(group_version: str) -> str:
    group, _, version = group_version.partition("/")
    return f"{version}.{group}"


def _make_certificate(key: Path, certificate: Path, host: str) -> None:
    """A certificate that is its own authority, for the name by which the API server asks."""
    made = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key))
    named = ("-subj", "/CN=metrics", "-addext", f"subjectAltName=DNS:{host}", "-days", "2")
    command = ["openssl", "req", "-x509", *made, *named, "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
