"""How pods select the nodes of the planned pool.

Clusters name the same GPU in different labels: NVIDIA's GPU feature discovery, GKE and EKS each set their
own, and a mixed cluster may carry several. A node belongs to the pool when any one of the terms matches.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardwright_operator.build.owner import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTerm:
    """Nodes whose label ``key`` has one of ``values``."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSelection:
    """The planned pool: its name and the label terms, any of which selects a node. No terms: any node."""

    name: str = ""
    terms: tuple[LabelTerm, ...] = ()

    def node_affinity(self) -> Manifest | None:
        """Required node affinity, or None if any node that offers the GPUs will do."""
        if not self.terms:
            return None
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": term.key, "operator": "In", "values": list(term.values)}]}
                    for term in self.terms
                ]
            }
        }

    def to_wire(self) -> Manifest:
        """Plain JSON for a revision."""
        return {
            "name": self.name,
            "terms": [{"key": term.key, "values": list(term.values)} for term in self.terms],
        }

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "PoolSelection":
        """The inverse of ``to_wire``."""
        terms = tuple(LabelTerm(key=term["key"], values=tuple(term["values"])) for term in data["terms"])
        return cls(name=data["name"], terms=terms)
