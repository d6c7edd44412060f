"""The PodDisruptionBudget of a group: an eviction of any member costs the whole group.

A drain therefore waits for the operator, which moves whole groups off a cordoned node. Pods that are not
healthy may always be evicted: a broken group must not hold up a drain.
"""

from shardwright_operator.api import names
from shardwright_operator.build.owner import Manifest, Owner, metadata, selector


def disruption_budget(owner: Owner, group: int, *, members: int) -> Manifest:
    """The budget of one group of ``members`` pods."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(owner, names.group(owner.name, group), group),
        "spec": {
            "minAvailable": members,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(owner, group)},
        },
    }
