"""Can this cluster be served at all? Asked before the Lease is taken, so that a standby knows it too."""

import re
from collections.abc import Collection

from shardwright_operator.api.constants import GROUP, KIND, MINIMUM_KUBERNETES, VERSION
from shardwright_operator.api.gang import GANG_APIS, Gang
from shardwright_operator.cluster import Cluster
from shardwright_operator.served_crd import NOT_SERVED, ServedCrd


async def find_obstacles(cluster: Cluster, served: ServedCrd) -> list[str]:
    """Why this cluster cannot be served, in words that say what to do."""
    obstacles = []
    found = await cluster.server_version()
    if _numbers(found) < MINIMUM_KUBERNETES:
        needed = ".".join(map(str, MINIMUM_KUBERNETES))
        obstacles.append(f"Kubernetes {found} is too old: the operator needs {needed} or newer")
    if KIND not in await cluster.served_kinds(GROUP, VERSION):
        obstacles.append(NOT_SERVED)
    else:
        obstacles += await served.obstacles()
    return obstacles


async def find_gang_obstacles(cluster: Cluster, enabled: Collection[Gang]) -> dict[Gang, str]:
    """Gang schedulers that resources cannot ask for, and why, in words that say what to do."""
    obstacles = {}
    for gang, api in GANG_APIS.items():
        if gang not in enabled:
            obstacles[gang] = (
                f"this operator is not set up for it: install it with gang.{gang.lower()}=true (chart), "
                f"or start it with --gangs={gang} and the rights on {api.plural} of {api.group}"
            )
        elif api.plain_kind not in await cluster.served_kinds(api.group, api.version):
            obstacles[gang] = f"the cluster does not serve {api.plain_kind} ({api.api_version}): {api.remedy}"
    return obstacles


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor of a version such as ``v1.36.3-gke.100``."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
