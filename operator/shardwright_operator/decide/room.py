"""Where whole groups fit: a count over free GPUs, as coarse as it has to be and no finer than it can be.

The scheduler places pods; this only tells beforehand whether it can. It knows GPUs, nodes, taints, selectors
and the topology key, and nothing of CPU, memory or other affinities: it may say yes where the scheduler says
no, and the group then waits with the scheduler's own words.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from shardwright_operator.observe.need import Need
from shardwright_operator.observe.pools import Ground


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Nodes, and the GPUs that are free on them; full nodes are left out."""

    ground: Ground
    free: Mapping[str, int]

    @classmethod
    def of(cls, ground: Ground, taken: Mapping[str, int]) -> "Room":
        """The room that is left when ``taken`` GPUs are held."""
        free = dict(ground.gpus)
        for name in taken.keys() & free.keys():
            free[name] -= taken[name]
            if free[name] <= 0:
                del free[name]
        return cls(ground=ground, free=free)

    def fitting(self, need: Need) -> int:
        """Nodes that could take a pod each, in the topology domain that has most of them."""
        return max(map(len, self._domains(need)), default=0)

    def fits(self, need: Need) -> bool:
        """Whether all of the pods would find a node; no more nodes are looked at than that takes."""
        found: Counter[str] = Counter()
        for _, domain in self._usable(need):
            found[domain] += 1
            if found[domain] >= need.pods:
                return True
        return need.pods <= 0

    def less(self, need: Need) -> "Room":
        """The room that is left when the need is met as far as it can be, on the fullest nodes first."""
        domains = self._domains(need)
        enough = [domain for domain in domains if len(domain) >= need.pods]
        # The tightest domain that is large enough, so that the large ones stay whole.
        chosen = min(enough, key=len) if enough else max(domains, key=len, default=[])
        taken = sorted(chosen, key=lambda name: (self.free[name], name))[: need.pods]
        if not taken:
            return self
        left = {**self.free, **{name: self.free[name] - need.pod_gpus for name in taken}}
        return replace(self, free={name: free for name, free in left.items() if free > 0})

    def more(self, given_back: Mapping[str, int]) -> "Room":
        """The room that there would be if some GPUs were given back."""
        known = {name: gpus for name, gpus in given_back.items() if name in self.ground.nodes}
        return replace(self, free={**self.free, **{n: self.free.get(n, 0) + g for n, g in known.items()}})

    def _domains(self, need: Need) -> list[list[str]]:
        """Nodes with enough free GPUs, by the value of the topology key."""
        domains: defaultdict[str, list[str]] = defaultdict(list)
        for name, domain in self._usable(need):
            domains[domain].append(name)
        return list(domains.values())

    def _usable(self, need: Need) -> Iterator[tuple[str, str]]:
        """Nodes with enough free GPUs, and their topology domains; all are in one when there is no key."""
        reach, key = need.reach(self.ground), need.scheduling.topology_key
        for name, free in self.free.items():
            if free >= need.pod_gpus and name in reach:
                domain = "" if key is None else self.ground.nodes[name].labels.get(key)
                if domain is not None:
                    yield name, domain
