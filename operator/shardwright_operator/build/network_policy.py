"""NetworkPolicies: members of a group reach each other on every port, everybody else only the API port.

vLLM's internal channels carry pickled objects with no authentication, on random ports and in both
directions, so the group is the smallest circle that works. Only ingress is restricted: what the engine may
reach (the Hub, telemetry) is for the cluster's own policies to say. A download has nothing to be reached at
but the number of its bytes.
"""

from shardwright_operator.api import names
from shardwright_operator.api.constants import Label
from shardwright_operator.api.pod_spec import Client, NetworkSpec
from shardwright_operator.build.download import COMPONENT, PROGRESS_PORT_NAME
from shardwright_operator.build.owner import Manifest, Owner, metadata, selector
from shardwright_operator.build.service import API_PORT_NAME


def network_policy(owner: Owner, group: int, network: NetworkSpec) -> Manifest:
    """The policy of one group. The API port, metrics too, is open to all unless ``clients`` narrow it.

    The port goes by its name, which only leaders have: it follows each pod's own template, also while an
    older revision with another port number still runs.
    """
    ingress: list[Manifest] = [{"from": [{"podSelector": {"matchLabels": selector(owner, group)}}]}]
    ingress += _from_clients(API_PORT_NAME, network)
    meta = metadata(owner, names.group(owner.name, group), group)
    return _policy(meta, selector(owner, group), ingress)


def download_policy(owner: Owner, job: str, network: NetworkSpec) -> Manifest:
    """The policy of a download, which has the name of its Job: who may ask the engines may ask it too."""
    meta = metadata(owner, job)
    meta["labels"][Label.COMPONENT] = COMPONENT
    pods = {Label.DEPLOYMENT: owner.name, Label.COMPONENT: COMPONENT}
    return _policy(meta, pods, _from_clients(PROGRESS_PORT_NAME, network))


def _from_clients(port: str, network: NetworkSpec) -> list[Manifest]:
    rule: Manifest = {"ports": [{"port": port, "protocol": "TCP"}]}
    if network.clients is None:
        return [rule]
    # An empty "from" would admit everybody, so an empty list of clients leaves the whole rule out.
    return [{**rule, "from": [_peer(client) for client in network.clients]}] if network.clients else []


def _policy(meta: Manifest, pods: Manifest, ingress: list[Manifest]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": meta,
        "spec": {"podSelector": {"matchLabels": pods}, "policyTypes": ["Ingress"], "ingress": ingress},
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
