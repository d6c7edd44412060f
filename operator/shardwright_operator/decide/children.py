"""Children beside the sets: what the resource and each wanted group need, and what nobody wants any more."""

from collections.abc import Iterator, Sequence

from shardwright_operator.api import names
from shardwright_operator.api.constants import Annotation, Role
from shardwright_operator.api.pod_spec import NetworkSpec
from shardwright_operator.build.disruption_budget import disruption_budget
from shardwright_operator.build.network_policy import network_policy
from shardwright_operator.build.service import client_service, ranks_service
from shardwright_operator.decide.decision import Apply, Delete
from shardwright_operator.decide.scene import Scene
from shardwright_operator.observe.views import ChildKind

HISTORY_LIMIT = 10
"""Revisions kept besides those that groups name: enough to see what changed, and to come back to."""


_NOBODY = NetworkSpec(clients=())


def shared_writes(
    scene: Scene, network: NetworkSpec | None, members: Sequence[int]
) -> Iterator[Apply | None]:
    """Services, policies and budgets; ``members`` gives the pods of each wanted group, by index.

    ``network`` None, of a spec that cannot be read, leaves policies alone; a missing one comes back closed.
    """
    owner = scene.owner
    yield scene.write(client_service(owner))
    for group, pods in enumerate(members):
        yield scene.write(ranks_service(owner, group))
        if network is not None:
            yield scene.write(network_policy(owner, group, network))
        elif scene.child(ChildKind.NETWORK_POLICY, names.group(owner.name, group)) is None:
            yield scene.write(network_policy(owner, group, _NOBODY))
        yield scene.write(disruption_budget(owner, group, members=pods))


def wanted_names(owner: str, wanted_groups: int) -> frozenset[str]:
    """Names of all children that are wanted, revisions apart; no two kinds that share a name part ways."""
    wanted = {names.client_service(owner)}
    for group in range(wanted_groups):
        wanted |= {
            names.group(owner, group),
            names.ranks_service(owner, group),
            *(names.stateful_set(owner, group, role) for role in Role),
        }
    return frozenset(wanted)


def child_deletes(scene: Scene, wanted_groups: int) -> Iterator[Delete]:
    """Deletions of children that no wanted group needs. Worker sets of wanted groups are the group's own."""
    kept = wanted_names(scene.owner.name, wanted_groups)
    for child in scene.observed.children.values():
        if child.kind is not ChildKind.REVISION and child.name not in kept and not child.deleting:
            yield Delete(kind=child.kind, name=child.name, uid=child.uid, why="no wanted group needs it")


def revision_deletes(scene: Scene) -> Iterator[Delete]:
    """Deletions of the oldest revisions beyond the history's limit that no set names."""
    children = scene.observed.children
    named = {child.annotations.get(Annotation.REVISION) for child in children.values()} | {scene.target.name}
    unnamed = [revision for revision in scene.revisions.values() if revision.name not in named]
    for revision in sorted(unnamed, key=lambda r: r.number)[:-HISTORY_LIMIT]:
        child = scene.child(ChildKind.REVISION, revision.name)
        if child is not None:
            yield Delete(kind=child.kind, name=child.name, uid=child.uid, why="the history is long enough")
