"""The NetworkPolicy of a group: members reach each other on every port, everybody else only the API port.

vLLM's internal channels carry pickled objects with no authentication, on random ports and in both
directions, so the group is the smallest circle that works. Only ingress is restricted: what the engine may
reach (the Hub, telemetry) is for the cluster's own policies to say.
"""

from shardwright_operator.api import names
from shardwright_operator.api.pod_spec import Client, NetworkSpec
from shardwright_operator.build.owner import Manifest, Owner, metadata, selector
from shardwright_operator.build.service import API_PORT_NAME


def network_policy(owner: Owner, group: int, network: NetworkSpec) -> Manifest:
    """The policy of one group. The API port, metrics too, is open to all unless ``clients`` narrow it.

    The port goes by its name, which only leaders have: it follows each pod's own template, also while an
    older revision with another port number still runs.
    """
    ingress: list[Manifest] = [{"from": [{"podSelector": {"matchLabels": selector(owner, group)}}]}]
    api: Manifest = {"ports": [{"port": API_PORT_NAME, "protocol": "TCP"}]}
    if network.clients is None:
        ingress.append(api)
    elif network.clients:
        # An empty "from" would admit everybody, so an empty list of clients leaves the whole rule out.
        ingress.append({**api, "from": [_peer(client) for client in network.clients]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(owner, names.group(owner.name, group), group),
        "spec": {
            "podSelector": {"matchLabels": selector(owner, group)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _peer(client: Client) -> Manifest:
    found: Manifest = {}
    for key, chosen in (
        ("namespaceSelector", client.namespace_selector),
        ("podSelector", client.pod_selector),
    ):
        if chosen is not None:
            found[key] = (
                {"matchLabels": dict(sorted(chosen.match_labels.items()))} if chosen.match_labels else {}
            )
    return found
