"""What a group, or the part of one that has no node yet, needs of the nodes."""

from dataclasses import dataclass, field

from shardwright_operator.api.pod_spec import SchedulingSpec
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.observe.pools import Ground


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Pods of one group that each need a node of their own with so many free GPUs."""

    pods: int
    pod_gpus: int
    pool: PoolSelection
    scheduling: SchedulingSpec
    but_on: frozenset[str] = field(default_factory=frozenset)
    """Nodes that have a member of the group already."""

    def reach(self, ground: Ground) -> frozenset[str]:
        """Nodes that the pods may use, full ones too: one and the same set for all that ask the same."""
        reach = ground.reach(self.pool, self.scheduling)
        return reach - self.but_on if self.but_on else reach
