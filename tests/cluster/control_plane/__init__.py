"""A real Kubernetes control plane on this machine, without a container engine.

The operator's promises (no second write, one restart per lost member, rights granted equal rights used) are
promises about a real API server, so the integration tests and the demo run on one. Every binary is built
from Go modules once and kept in a cache; nodes and pods are simulated. With a kubeconfig given, the same
tests run on any other cluster.
"""

from control_plane.audit import AuditEvent, read_audit
from control_plane.binaries import Tools, build_tools
from control_plane.client import ApiError, Client, Json
from control_plane.cluster import Cluster
from control_plane.nodes import make_nodes
from control_plane.plane import ControlPlane, Settings
from control_plane.waiting import wait_for

__all__ = [
    "ApiError",
    "AuditEvent",
    "Client",
    "Cluster",
    "ControlPlane",
    "Json",
    "Settings",
    "Tools",
    "build_tools",
    "make_nodes",
    "read_audit",
    "wait_for",
]
