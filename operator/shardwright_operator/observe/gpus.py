"""The account of GPUs: which nodes offer some, and how many of them are held, by whatever pod."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shardwright_operator.observe.observed import CapacityView, Demand
from shardwright_operator.observe.pools import Ground
from shardwright_operator.observe.projection import GpuClaim, project_node, resource_version
from shardwright_operator.observe.usage import GpuUsage
from shardwright_operator.observe.views import NodeView, PodView


class GpuAccount:
    """Nodes by name, and the GPUs that pods hold on them."""

    def __init__(self, *, visible: bool) -> None:
        """``visible`` is False where nodes cannot be read: then nothing is known of any."""
        self._visible = visible
        self._nodes: dict[str, NodeView] = {}
        self._ground: Ground | None = None
        self._usage = GpuUsage()
        self._usage_known = False

    def nodes(self) -> tuple[NodeView, ...] | None:
        """All nodes that offer GPUs, by name; None where they cannot be read."""
        return tuple(self._on_ground().nodes.values()) if self._visible else None

    def views(self) -> Iterator[NodeView]:
        """All nodes, in no order."""
        return iter(self._nodes.values())

    def capacity(self, demands: Callable[[], tuple[Demand, ...]]) -> CapacityView | None:
        """Who holds and who wants GPUs; None while it is not known who holds some."""
        if not self._visible or not self._usage_known:
            return None
        return CapacityView(taken=dict(self._usage.by_node), ground=self._on_ground(), demands=demands())

    def put_node(self, body: Mapping[str, Any], *, deleted: bool) -> bool:
        """Take in a node; whether it is news."""
        view = None if deleted else project_node(body)
        name = body["metadata"]["name"]
        old = self._nodes.get(name)
        if view is None:
            # A node that came back under its name is another one: the end of the former says nothing of it.
            late = old is not None and (
                old.uid != body["metadata"].get("uid", "")
                if deleted
                else old.resource_version >= resource_version(body)
            )
            if old is None or late:
                return False
            self.remove_node(name)
            return True
        if old is not None and old.resource_version >= view.resource_version:
            return False
        self._nodes[name] = view
        if old is not None and replace(view, resource_version=0) == replace(old, resource_version=0):
            return False
        self._ground = None
        return True

    def remove_node(self, name: str) -> None:
        """Forget a node that is gone."""
        del self._nodes[name]
        self._ground = None

    def put_member(self, pod: PodView) -> None:
        """Take in a pod of ours as it stands."""
        if pod.phase in {"Succeeded", "Failed"}:
            self._usage.release(pod.uid)
        elif pod.node and pod.gpus:
            claim = GpuClaim(pod.uid, pod.node, pod.gpus, pod.resource_version)
            self._usage.claim(claim, stranger=False)

    def put_stranger(self, claim: GpuClaim) -> None:
        """Take in what a pod that is not ours holds."""
        self._usage.claim(claim, stranger=True)

    def release(self, uid: str) -> bool:
        """Forget a pod that has ended or is gone, whosesoever; whether it had held any GPUs."""
        return self._usage.release(uid)

    def release_unlisted(self, listed: Collection[str], version: int) -> bool:
        """Forget strangers that a LIST of this version lacks; whether any of them had held GPUs."""
        gone = [c for c in self._usage.strangers() if c.uid not in listed and c.resource_version <= version]
        return sum(self._usage.release(claim.uid) for claim in gone) > 0

    def become_known(self) -> bool:
        """All pods that hold GPUs are taken in now; whether that was not so before."""
        was_known, self._usage_known = self._usage_known, True
        return not was_known

    def _on_ground(self) -> Ground:
        if self._ground is None:
            self._ground = Ground(self._nodes[name] for name in sorted(self._nodes))
        return self._ground
