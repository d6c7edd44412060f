"""The cluster's DNS as kubeadm sets it up: answers live for 30 s, those that say "no such name" as well.

kubeadm releases of the last years exempt the cluster's own names from the cache, many clusters do not. The
harder of the two is what is tested: a pod that asks a moment too early gets the same answer for half a
minute, and one that asks for a pod that was replaced gets the old pod's address.
"""

import secrets
import socket
import struct
from pathlib import Path

from control_plane.client import Client
from real_nodes.network import GATEWAY

USER = "system:coredns"
TTL_S = 30
PORT = 53
READY_PORT = 18181
ANSWER_TIMEOUT_S = 10.0
_NO_SUCH_NAME = 3
_ADDRESS_OF_INTERNET = struct.pack("!HH", 1, 1)


def write_corefile(folder: Path, kubeconfig: Path) -> Path:
    """Write CoreDNS's configuration and return its path.

    There is no world outside: any other name gets NXDOMAIN, where the last plugin would say SERVFAIL.
    """
    path = folder / "Corefile"
    path.write_text(f"""\
.:53 {{
    bind {GATEWAY}
    errors
    health 127.0.0.1:18080
    ready 127.0.0.1:{READY_PORT}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl {TTL_S}
    }}
    cache {TTL_S}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
""")
    return path


def is_unknown(name: str) -> bool:
    """Whether DNS says that there is no such name; asked directly, as resolvers keep no cache here.

    Raises:
        TimeoutError: there is no answer.
    """
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    number = secrets.token_bytes(2)
    question = number + struct.pack("!5H", 0x0100, 1, 0, 0, 0) + labels + b"\0" + _ADDRESS_OF_INTERNET
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(ANSWER_TIMEOUT_S)
        asking.connect((GATEWAY, PORT))
        asking.send(question)
        answer = asking.recv(4096)
    return answer[3] & 0x0F == _NO_SUCH_NAME


def grant_rights(api: Client) -> None:
    """Let CoreDNS read what it answers from."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    metadata = {"name": USER}
    api.apply({"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules})
    api.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": USER},
            "subjects": [{"apiGroup": group, "kind": "User", "name": USER}],
        }
    )
