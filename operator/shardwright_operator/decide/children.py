"""Children beside the sets: what the resource and each wanted group need, and what nobody wants any more."""

from collections.abc import Iterable, Iterator, Mapping

from shardwright_operator.api import names
from shardwright_operator.api.constants import Annotation, Role
from shardwright_operator.api.pod_spec import NetworkSpec
from shardwright_operator.build.disruption_budget import disruption_budget
from shardwright_operator.build.download import job_name
from shardwright_operator.build.launcher import launcher_config, launcher_configs
from shardwright_operator.build.network_policy import download_policy, network_policy
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.revision import Revision
from shardwright_operator.build.service import client_service, ranks_service
from shardwright_operator.decide.decision import Apply, Delete
from shardwright_operator.decide.scene import Scene
from shardwright_operator.observe.views import ChildKind, JobPhase

_NOBODY = NetworkSpec(clients=())


def shared_writes(
    scene: Scene, network: NetworkSpec | None, members: Mapping[int, int]
) -> Iterator[Apply | None]:
    """Services, policies and budgets; ``members`` gives the number of pods of each group by its index.

    ``network`` None, of a spec that cannot be read, leaves policies alone; a missing one comes back closed.
    """
    owner = scene.owner
    for config in sorted(_launchers_in_use(scene)):
        # Its content never changes under its name, so that only a missing one is written.
        if scene.child(ChildKind.CONFIG_MAP, config) is None:
            yield scene.write(launcher_config(owner, config))
    yield scene.write(client_service(owner))
    if scene.target.download is not None:
        job = job_name(owner, scene.target.download)
        if network is not None:
            yield scene.write(download_policy(owner, job, network))
        elif scene.child(ChildKind.NETWORK_POLICY, job) is None:
            yield scene.write(download_policy(owner, job, _NOBODY))
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


def child_deletes(scene: Scene, groups: Iterable[int], jobs: Iterable[str]) -> Iterator[Delete]:
    """Deletions of children that no group and no check needs. Worker sets are the groups' own affair."""
    kept = wanted_names(scene.owner.name, groups) | _kept_with_revisions(scene) | set(jobs)
    for child in scene.observed.children.values():
        if child.kind is not ChildKind.REVISION and child.name not in kept and not child.deleting:
            yield Delete(kind=child.kind, name=child.name, uid=child.uid, why="no group needs it")


def _launchers_in_use(scene: Scene) -> set[str]:
    """Names of the ConfigMaps that pods mount: those of the target, and of the revisions that sets name."""
    named = {child.annotations.get(Annotation.REVISION) for child in scene.observed.children.values()}
    return _launchers(r for r in scene.revisions.values() if r.name in named or r.name == scene.target.name)


def _launchers(revisions: Iterable[Revision]) -> set[str]:
    templates = (t for r in revisions for t in (r.leader_template, r.worker_template, _pod_of(r)))
    return set(launcher_configs(templates))


def _pod_of(revision: Revision) -> Mapping[str, object] | None:
    """The pod template of the revision's download."""
    return None if revision.download is None else revision.download["template"]


def attached_names(owner: Owner, revision: Revision) -> set[str]:
    """Names of what a revision's pods need besides: the launcher's ConfigMap, the download's Job."""
    jobs = set() if revision.download is None else {job_name(owner, revision.download)}
    return _launchers((revision,)) | jobs


def _kept_with_revisions(scene: Scene) -> set[str]:
    """What stored revisions need to come back; a download that is not complete is for the target alone."""
    done = {c.name for c in scene.observed.children.values() if c.job and c.job.phase is JobPhase.COMPLETE}
    kept = attached_names(scene.owner, scene.target)
    for revision in scene.revisions.values():
        launchers = _launchers((revision,))
        kept |= launchers | (attached_names(scene.owner, revision) - launchers) & done
    return kept
