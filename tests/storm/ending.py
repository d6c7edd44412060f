"""How a storm has to end: everything runs as asked, nothing is left over, and in the end nothing is left."""

from collections.abc import Iterator

from replay import World
from sights import Child, Deployment
from violations import clock

REVISIONS_KEPT = 10


def unsettled(world: World) -> Iterator[str]:
    """What still keeps the world from being as it is asked for, in words."""
    for name, resource in sorted(world.deployments.items()):
        up = world.groups_up(name)
        if len(up) != resource.replicas:
            yield f"{name}: {len(up)} groups are up, {resource.replicas} are asked for"
        for group in up:
            if not world.serves(group):
                yield f"group {group} does not serve: {_pods(world, group)}"
        leaving = sorted({g for g, _ in world.sets if g.resource == name} - set(up))
        if leaving:
            yield f"{name}: sets of groups {', '.join(g.index for g in leaving)} are left"
        stray = [
            p.name for p in world.pods.values() if p.group.resource == name and p.node not in world.nodes
        ]
        if stray:
            # Kubernetes removes them after a minute or so, which breaks their group once more.
            yield f"{name}: the nodes of {', '.join(sorted(stray))} are gone"
        hashes = {pod.pods_hash for pod in world.pods.values() if pod.group.resource == name}
        if len(hashes) > 1:
            yield f"{name}: pods of {len(hashes)} revisions run"
        yield from _said(resource)


def _said(resource: Deployment) -> Iterator[str]:
    name = resource.name
    if resource.said_generation != resource.generation:
        yield f"{name}: the status tells of generation {resource.said_generation} of {resource.generation}"
    if not resource.ready or resource.reconciling:
        yield f"{name}: not Ready and settled: {resource.words}"
    if resource.overridden:
        # Its end is a write: once 11 s after all else was settled, into the quiet.
        yield f"{name}: a child that somebody changed is still told of"
    if resource.said_ready != resource.replicas:
        yield f"{name}: readyReplicas {resource.said_ready} of {resource.replicas}"


def leaked(world: World) -> Iterator[str]:
    """Objects that nobody needs any more though all is settled."""
    for child in world.children.values():
        owner = world.deployments.get(child.resource)
        told = f"{child.kind} {child.name}"
        if owner is None or owner.uid != child.owner_uid:
            yield f"{told} has no owner that is there{_lineage(world, child)}"
        elif child.group and child.group not in {group.index for group in world.groups_up(child.resource)}:
            yield f"{told} is of group {child.group}, which is not there"
    for name in world.deployments:
        kept = [c for c in world.children.values() if c.kind == "ControllerRevision" and c.resource == name]
        # Besides those kept there are the one that runs, and one that was just superseded.
        if len(kept) > REVISIONS_KEPT + 2:
            yield f"{len(kept)} revisions of {name} are kept"


def _lineage(world: World, child: Child) -> str:
    """Whether it was made before its owner went, and is the garbage collector's, or after, and is ours."""
    ended = world.ended.get(child.owner_uid)
    if ended is None:
        return ""
    after_s = world.born[child.uid] - ended
    when = f"{after_s:.1f} s after" if after_s > 0 else f"{-after_s:.1f} s before"
    return f": it was made {when} its owner went at {clock(ended)}"


def remains(world: World) -> Iterator[str]:
    """What is left though all resources are gone."""
    yield from (f"ModelDeployment {name}" for name in world.deployments)
    yield from (f"StatefulSet {found.name}" for found in world.sets.values())
    yield from (f"Pod {pod.name}" for pod in world.pods.values())
    yield from (f"{child.kind} {child.name}" for child in world.children.values())


def _pods(world: World, group: object) -> str:
    found = [pod for pod in world.pods.values() if pod.group == group]
    words = [
        f"{p.name}{' going' if p.going else ''}{' ready' if p.ready else ''} on {p.node or 'no node'}"
        for p in found
    ]
    return ", ".join(sorted(words)) or "no pods"
