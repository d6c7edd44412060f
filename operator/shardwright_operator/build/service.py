"""The two kinds of Service: one for clients, one per group for the ranks.

They cannot be one. Ranks must find each other before any of them is ready, or readiness and name resolution
wait for each other for ever; clients must never reach a rank that is not ready, nor one without an API
server.
"""

from shardwright_operator.api import names
from shardwright_operator.api.constants import Role
from shardwright_operator.build.owner import Manifest, Owner, metadata, selector

CLIENT_PORT = 8000
"""The clients' port. It stays when ``spec.engine.port`` changes, since clients have it in their settings."""
API_PORT_NAME = "http"
"""Name of the API port of the leader's container; only leaders have a port of this name."""


def client_service(owner: Owner) -> Manifest:
    """The Service that clients use: rank 0 of all groups, ready ones only."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(owner, names.client_service(owner.name)),
        "spec": {
            "type": "ClusterIP",
            "selector": selector(owner, role=Role.LEADER),
            "ports": [
                {
                    "name": API_PORT_NAME,
                    "port": CLIENT_PORT,
                    "protocol": "TCP",
                    "targetPort": API_PORT_NAME,
                    "appProtocol": "http",
                }
            ],
        },
    }


def ranks_service(owner: Owner, group: int) -> Manifest:
    """The headless Service of a group: gives each rank its DNS name, ready or not.

    It has no ports: it exists for its records, and the ranks listen on random ports anyway.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(owner, names.ranks_service(owner.name, group), group),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(owner, group),
        },
    }
