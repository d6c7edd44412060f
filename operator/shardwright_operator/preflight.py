"""Can this cluster be served at all? Asked before the Lease is taken, so that a standby knows it too."""

import re

from shardwright_operator.api.constants import API_VERSION, GROUP, KIND, MINIMUM_KUBERNETES, VERSION
from shardwright_operator.cluster import Cluster


async def find_obstacles(cluster: Cluster) -> list[str]:
    """Why this cluster cannot be served, in words that say what to do."""
    obstacles = []
    found = await cluster.server_version()
    if _numbers(found) < MINIMUM_KUBERNETES:
        needed = ".".join(map(str, MINIMUM_KUBERNETES))
        obstacles.append(f"Kubernetes {found} is too old: the operator needs {needed} or newer")
    if KIND not in await cluster.served_kinds(GROUP, VERSION):
        obstacles.append(
            f"the cluster does not serve {KIND} ({API_VERSION}): "
            "install the CRD (kubectl apply --server-side -f crds/, or the chart with crds.enabled=true)"
        )
    return obstacles


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor of a version such as ``v1.36.3-gke.100``."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
