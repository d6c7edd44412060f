"""What must hold at every step of every sequence, checked between any two moves of the simulated world."""

from dataclasses import dataclass, field

from shardwright_operator.api.constants import KIND, Annotation, Label
from simulated_cluster import gpus_of
from simulated_world import SimulatedWorld


@dataclass
class Invariants:
    """Called after each move. ``fewest`` is the number of groups that always have to serve."""

    world: SimulatedWorld
    fewest: int = 0
    surge: int = 0
    lowest: int = field(default=10_000, init=False)
    """Fewest groups that served at any step."""
    most: int = field(default=0, init=False)
    """Most groups that stood at any step, those that leave apart."""

    def __call__(self) -> None:
        self._no_two_generations()
        self._no_node_is_overbooked()
        self._no_more_groups_than_allowed()
        self.lowest = min(self.lowest, self.serving())
        assert self.serving() >= self.fewest, f"only {self.serving()} groups serve: {self.world.status}"

    def serving(self) -> int:
        """Groups all of whose pods are ready."""
        sets = self.world.of_kind("StatefulSet")
        count = 0
        for pods in self.world.formations().values():
            owners = {pod["metadata"]["ownerReferences"][0]["name"] for pod in pods}
            wanted = sum(sets[name]["spec"]["replicas"] for name in owners if name in sets)
            ready = [
                pod
                for pod in pods
                if "deletionTimestamp" not in pod["metadata"]
                and any(c["type"] == "Ready" for c in pod["status"].get("conditions", ()))
            ]
            count += 0 < wanted == len(ready)
        return count

    def _no_two_generations(self) -> None:
        for group, pods in self.world.formations().items():
            hashes = {pod["metadata"]["labels"][Label.PODS] for pod in pods}
            assert len(hashes) == 1, f"group {group} has pods of {hashes}"

    def _no_node_is_overbooked(self) -> None:
        for name, node in self.world.of_kind("Node").items():
            here = [pod for pod in self.world.pods.values() if pod["spec"].get("nodeName") == name]
            assert sum(map(gpus_of, here)) <= int(node["status"]["allocatable"]["nvidia.com/gpu"]), name

    def _no_more_groups_than_allowed(self) -> None:
        standing = [
            body["metadata"]["labels"][Label.DEPLOYMENT]
            for name, body in self.world.of_kind("StatefulSet").items()
            if name.endswith("-leader")
            and body["metadata"].get("annotations", {}).get(Annotation.CAUSE) != "ScalingDown"
        ]
        self.most = max(self.most, len(standing))
        for name, resource in self.world.of_kind(KIND).items():
            # A spec that was just lowered is seen in the next pass only.
            seen = resource["status"].get("observedGeneration") == resource["metadata"]["generation"]
            allowed = resource["spec"]["replicas"] + self.surge
            assert not seen or standing.count(name) <= allowed, f"{standing.count(name)} groups of {name}"
