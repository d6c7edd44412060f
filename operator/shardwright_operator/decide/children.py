"""Children beside the sets: what the resource and each wanted group need, and what nobody wants any more."""

from collections.abc import Iterable, Iterator, Mapping

from shardwright_operator.api import names
from shardwright_operator.api.constants import Role
from shardwright_operator.api.pod_spec import NetworkSpec
from shardwright_operator.build.disruption_budget import disruption_budget
from shardwright_operator.build.network_policy import network_policy
from shardwright_operator.build.service import client_service, ranks_service
from shardwright_operator.decide.decision import Apply, Delete
from shardwright_operator.decide.scene import Scene
from shardwright_operator.observe.views import ChildKind

_NOBODY = NetworkSpec(clients=())


def shared_writes(
    scene: Scene, network: NetworkSpec | None, members: Mapping[int, int]
) -> Iterator[Apply | None]:
    """Services, policies and budgets; ``members`` gives the number of pods of each group by its index.

    ``network`` None, of a spec that cannot be read, leaves policies alone; a missing one comes back closed.
    """
    owner = scene.owner
    yield scene.write(client_service(owner))
    for group, pods in members.items():
        yield scene.write(ranks_service(owner, group))
        if network is not None:
            yield scene.write(network_policy(owner, group, network))
        elif scene.child(ChildKind.NETWORK_POLICY, names.group(owner.name, group)) is None:
            yield scene.write(network_policy(owner, group, _NOBODY))
        yield scene.write(disruption_budget(owner, group, members=pods))


def wanted_names(owner: str, groups: Iterable[int]) -> frozenset[str]:
    """Names of all children of these groups, revisions apart; no two kinds that share a name part ways."""
    wanted = {names.client_service(owner)}
    for group in groups:
        wanted |= {
            names.group(owner, group),
            names.ranks_service(owner, group),
            *(names.stateful_set(owner, group, role) for role in Role),
        }
    return frozenset(wanted)


def child_deletes(scene: Scene, groups: Iterable[int]) -> Iterator[Delete]:
    """Deletions of children that none of these groups needs. Their worker sets are the groups' own."""
    kept = wanted_names(scene.owner.name, groups)
    for child in scene.observed.children.values():
        if child.kind is not ChildKind.REVISION and child.name not in kept and not child.deleting:
            yield Delete(kind=child.kind, name=child.name, uid=child.uid, why="no group needs it")
