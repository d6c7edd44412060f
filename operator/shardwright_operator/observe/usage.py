"""How many GPUs of each node are held, by whatever pod.

Of pods that are not ours four fields are kept, and of those without GPUs or without a node nothing: the
account costs some hundred bytes for a GPU pod, however many other pods a cluster runs.
"""

from collections import Counter
from collections.abc import Mapping

from shardwright_operator.observe.projection import GpuClaim


class GpuUsage:
    """Claims by pod, and their sums by node."""

    def __init__(self) -> None:
        self._claims: dict[str, GpuClaim] = {}
        self._strangers: set[str] = set()
        self._by_node: Counter[str] = Counter()

    @property
    def by_node(self) -> Mapping[str, int]:
        """GPUs held, by node. It changes with every claim: copy what is to be kept."""
        return self._by_node

    def strangers(self) -> list[GpuClaim]:
        """Claims of pods that are not ours."""
        return [self._claims[uid] for uid in self._strangers]

    def claim(self, claim: GpuClaim, *, stranger: bool) -> None:
        """A pod holds GPUs. A pod's node never changes, so an older event of the same pod says the same."""
        if claim.uid not in self._claims:
            self._claims[claim.uid] = claim
            self._by_node[claim.node] += claim.gpus
            if stranger:
                self._strangers.add(claim.uid)

    def release(self, uid: str) -> bool:
        """The pod has ended or is gone; returns whether it had held any."""
        claim = self._claims.pop(uid, None)
        self._strangers.discard(uid)
        if claim is None:
            return False
        self._by_node[claim.node] -= claim.gpus
        if self._by_node[claim.node] <= 0:
            del self._by_node[claim.node]
        return True
