"""Flags of the servers, and how each shows that it is up.

Every flag here is needed by something: a test that would fail without it, or a neighbour on the same machine.
Flags that only tune are settings of the control plane.
"""

import http.client
import socket
import ssl
from pathlib import Path
from typing import NamedTuple

from control_plane.binaries import MODULE
from control_plane.certificates import Certificates
from control_plane.client import ApiError, Client

AUDIT_POLICY = MODULE / "audit-policy.yaml"

SERVICE_RANGE = "10.96.0.0/16"

HTTP_OK = 200


class Ports(NamedTuple):
    """Loopback ports of one control plane; even the components' health ports differ between two of them."""

    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int
    kwok: int


def etcd_arguments(folder: Path, ports: Ports) -> tuple[str, ...]:
    """A single member without fsync: its data never has to survive a power cut."""
    client, peer = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peer}"
    return (
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def api_server_arguments(folder: Path, certificates: Certificates, ports: Ports) -> tuple[str, ...]:
    """Static tokens, RBAC as in a real cluster, and an audit log of every request's metadata."""
    return (
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        # The default advertises the machine's address, on which nothing listens.
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={ports.api_server}",
        f"--tls-cert-file={certificates.server}",
        f"--tls-private-key-file={certificates.server_key}",
        f"--client-ca-file={certificates.authority}",
        f"--service-account-key-file={certificates.account_public_key}",
        f"--service-account-signing-key-file={certificates.account_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        # Added to the defaults. The first refuses owner references by those who may not touch the owner.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement,PodSecurity",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--audit-policy-file={AUDIT_POLICY}",
        f"--audit-log-path={folder / 'audit.log'}",
        # In MiB: a rotated log would hide requests from the reader.
        "--audit-log-maxsize=4096",
        # SIGTERM would otherwise wait for watches to end by themselves.
        "--shutdown-send-retry-after=false",
        "--shutdown-delay-duration=0s",
    )


def controller_manager_arguments(folder: Path, certificates: Certificates) -> tuple[str, ...]:
    """All controllers, each with its own ServiceAccount so that the audit log tells them apart."""
    return (
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder / 'pki'}",
        f"--root-ca-file={certificates.authority}",
        f"--service-account-private-key-file={certificates.account_key}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        # A node's trouble shows in its taints after a second, not after five, and evicts without a queue
        # of ten seconds per node: tests wait for both.
        "--node-monitor-period=1s",
        "--node-eviction-rate=10",
    )


def accepts(port: int) -> bool:
    """Tell whether something listens on a loopback port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def answers(client: Client, path: str) -> bool:
    """Tell whether the API server answers a path with success."""
    try:
        client.request("GET", path)
    except (ApiError, OSError, http.client.HTTPException):
        return False
    return True


def is_healthy(port: int, *, tls: bool) -> bool:
    """Tell whether a component's /healthz on loopback says so; its certificate is its own and not checked."""
    connection: http.client.HTTPConnection
    if tls:
        context = ssl._create_unverified_context()  # noqa: S323 - loopback, and nothing but a status is read
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=1.0, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == HTTP_OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
