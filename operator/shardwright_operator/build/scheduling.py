"""Where pods may run: tolerations and affinities that all pods of a revision share.

Affinity between members is written against the deployment's label here and narrowed to one group by the set
builder, since a template holds nothing of a group's index.
"""

from shardwright_operator.api.constants import GPU_RESOURCE
from shardwright_operator.api.gang import Gang
from shardwright_operator.api.pod_spec import SchedulingSpec
from shardwright_operator.build.owner import Manifest, Owner, selector
from shardwright_operator.build.pool import PoolSelection

HOSTNAME = "kubernetes.io/hostname"
NODE_FAILURE_S = 60
"""How long a pod stays on a node that is not ready or out of reach. Kubernetes' default of 300 s keeps a dead
group for 5 minutes; much less would throw a large model away for a kubelet's hiccup."""

VOLCANO_SCHEDULER = "volcano"
"""The name under which Volcano installs itself; pods of a PodGroup of its must ask for it."""


def placement(scheduling: SchedulingSpec, pool: PoolSelection, owner: Owner, *, members: int) -> Manifest:
    """The fields of a pod's spec that say where it may run."""
    found: Manifest = {"tolerations": _tolerations(scheduling)}
    affinity = _affinity(scheduling, pool, owner, members=members)
    if affinity:
        found["affinity"] = affinity
    if scheduling.node_selector:
        found["nodeSelector"] = dict(sorted(scheduling.node_selector.items()))
    if scheduling.priority_class_name:
        found["priorityClassName"] = scheduling.priority_class_name
    if scheduling.scheduler_name:
        found["schedulerName"] = scheduling.scheduler_name
    elif scheduling.gang is Gang.VOLCANO:
        found["schedulerName"] = VOLCANO_SCHEDULER
    return found


def _affinity(scheduling: SchedulingSpec, pool: PoolSelection, owner: Owner, *, members: int) -> Manifest:
    found: Manifest = {}
    nodes = pool.node_affinity()
    if nodes:
        found["nodeAffinity"] = nodes
    if members > 1:
        if scheduling.topology_key:
            found["podAffinity"] = _required(owner, scheduling.topology_key)
        # The plan gives each member a node of its own: two on one node would share its network and its fate.
        found["podAntiAffinity"] = _required(owner, HOSTNAME)
    return found


def _required(owner: Owner, topology_key: str) -> Manifest:
    term = {"topologyKey": topology_key, "labelSelector": {"matchLabels": selector(owner)}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _tolerations(scheduling: SchedulingSpec) -> list[Manifest]:
    """Ours, unless the user says otherwise about the same taint, then the user's."""
    own = [toleration.to_wire() for toleration in scheduling.tolerations or ()]
    said = {(toleration.get("key"), toleration.get("effect")) for toleration in own}
    ours: list[Manifest] = [
        # Clouds give the GPU taint different values, so that only its key counts.
        {"key": GPU_RESOURCE, "operator": "Exists"},
        *(
            {
                "key": f"node.kubernetes.io/{condition}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": NODE_FAILURE_S,
            }
            for condition in ("not-ready", "unreachable")
        ),
    ]
    kept = [one for one in ours if (one["key"], one.get("effect")) not in said]
    return [*kept, *own]
