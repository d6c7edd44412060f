"""GPU pools: which nodes can take a group's pods, by the labels that a cluster's nodes already carry.

NVIDIA's GPU feature discovery, GKE, Karpenter and EKS each name the GPU in a label of their own. A pool is
all nodes of one GPU kind and count that the pods may run on; its selection is made from the GPU's catalogue
names alone, so that the same spec renders the same pods whatever nodes stand at that moment.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardwright_operator.api.constants import GPU_RESOURCE
from shardwright_operator.api.pod_spec import SchedulingSpec, Toleration, TolerationOperator
from shardwright_operator.build.pool import LabelTerm, PoolSelection
from shardwright_operator.observe.views import NodeView, Taint
from shardwright_planner import GPUS, Gpu, Pool

SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"
"""Time-sliced and MPS devices are no whole GPUs: two ranks of a group could share one (vLLM issue 7211)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPools:
    """What a cluster offers to a spec, and why it may be nothing."""

    pools: tuple[Pool, ...]
    gpu_nodes: int
    unusable: Mapping[str, int]
    """Number of GPU nodes left out, by reason in words."""

    def describe_unusable(self) -> str:
        """The nodes left out, for a message."""
        return ", ".join(f"{count} {why}" for why, count in sorted(self.unusable.items()))


def selection_of(gpu: Gpu) -> PoolSelection:
    """How pods select nodes with this GPU, whoever labelled them."""
    terms = (
        LabelTerm(key="nvidia.com/gpu.product", values=gpu.product_labels),
        LabelTerm(key="cloud.google.com/gke-accelerator", values=gpu.gke_accelerators),
        LabelTerm(key="karpenter.k8s.aws/instance-gpu-name", values=gpu.aws_names),
        LabelTerm(key="eks.amazonaws.com/instance-gpu-name", values=gpu.aws_names),
    )
    return PoolSelection(name=gpu.name, terms=tuple(t for t in terms if t.values))


_GPU_OF_LABEL: Mapping[tuple[str, str], Gpu] = {
    (term.key, value): gpu
    for gpu in reversed(GPUS)
    for term in selection_of(gpu).terms
    for value in term.values
}
_GPU_LABELS = tuple(dict.fromkeys(key for key, _ in _GPU_OF_LABEL))


def gpu_of(labels: Mapping[str, str]) -> Gpu | None:
    """The catalogue's GPU that a node's labels name."""
    named = (_GPU_OF_LABEL.get((key, labels[key])) for key in _GPU_LABELS if key in labels)
    return next((gpu for gpu in named if gpu is not None), None)


def find_pools(nodes: Iterable[NodeView], scheduling: SchedulingSpec) -> FoundPools:
    """The pools that the pods of a spec may use; ``nodes`` of a pool counts its usable nodes."""
    counts: Counter[tuple[str, int]] = Counter()
    unusable: Counter[str] = Counter()
    gpus: dict[str, Gpu] = {}
    total = 0
    for node in nodes:
        total += 1
        gpu = gpu_of(node.labels)
        why = _unusable(node, scheduling, gpu)
        if why:
            unusable[why] += 1
        elif gpu is not None:
            gpus[gpu.name] = gpu
            counts[gpu.name, node.gpus] += 1
    pools = tuple(
        Pool(gpu=gpus[name], gpus_per_node=per_node, nodes=count, name=f"{per_node}x{name}")
        for (name, per_node), count in sorted(counts.items())
    )
    return FoundPools(pools=pools, gpu_nodes=total, unusable=unusable)


class Ground:
    """The GPU nodes of a cluster, and which of them a plan's pods may use now.

    Answers are remembered: nodes change seldom, and everybody who waits for GPUs asks the same of them.
    """

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self.nodes: Mapping[str, NodeView] = {node.name: node for node in nodes}
        self.gpus: Mapping[str, int] = {node.name: node.gpus for node in self.nodes.values()}
        self._answers: list[tuple[tuple[PoolSelection, SchedulingSpec], frozenset[str]]] = []

    def reach(self, pool: PoolSelection, scheduling: SchedulingSpec) -> frozenset[str]:
        """Names of the nodes that pods with this selection may use, full ones too."""
        question = (pool, scheduling)
        for place, (asked, answer) in enumerate(self._answers):
            if asked == question:
                # Tuples compare the very same objects by identity, and who asks next mostly has these.
                self._answers[place] = (question, answer)
                return answer
        answer = frozenset(
            node.name
            for node in self.nodes.values()
            if (not pool.terms or any(node.labels.get(term.key) in term.values for term in pool.terms))
            and not _unusable(node, scheduling, gpu_of(node.labels))
        )
        self._answers.append((question, answer))
        return answer


def _unusable(node: NodeView, scheduling: SchedulingSpec, gpu: Gpu | None) -> str:
    if gpu is None:
        return "with a GPU that the catalogue does not know"
    if node.labels.get(SHARING_LABEL, "none") not in {"none", ""}:
        return "with shared GPUs"
    if node.unschedulable:
        return "cordoned"
    if not node.ready:
        return "not ready"
    wanted = scheduling.node_selector or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return "outside spec.scheduling.nodeSelector"
    if any(not _tolerated(taint, scheduling.tolerations or ()) for taint in node.taints):
        return "with a taint that the pods do not tolerate"
    return ""


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    if taint.effect == "PreferNoSchedule" or taint.key == GPU_RESOURCE:
        return True
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect is not None and str(toleration.effect) != taint.effect:
        return False
    if toleration.key is None:
        return toleration.operator is TolerationOperator.EXISTS
    if toleration.key != taint.key:
        return False
    return toleration.operator is TolerationOperator.EXISTS or (toleration.value or "") == taint.value
