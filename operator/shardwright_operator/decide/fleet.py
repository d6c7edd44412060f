"""The groups of a resource as one: which exist, which are made, which go, and which are replaced now.

Group indices are a set with holes. A group that goes is told so in its leader set's record, and is never
taken back; its index is free again when nothing of it is left. All else is read off what stands, so that a
rollout goes on from any point, under any operator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from shardwright_operator.api.constants import MAX_GROUP_INDEX, GroupPhase, Reason
from shardwright_operator.api.lifecycle_spec import RolloutSpec
from shardwright_operator.decide import barrier
from shardwright_operator.decide.drain import Drain, find_drains
from shardwright_operator.decide.group import decide_group
from shardwright_operator.decide.rollout import Limits, Lineup, Place
from shardwright_operator.decide.scene import GroupStep, Scene
from shardwright_operator.decide.standing import Standing
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import ChildKind

_GOOD = frozenset({GroupPhase.READY, GroupPhase.DEGRADED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What to do about all groups now."""

    staying: Mapping[int, GroupStep]
    """Steps of the groups that are wanted, by index."""
    going: Mapping[int, GroupStep]
    """Steps of the groups that go for good, as long as anything of them is left to wait for."""
    holdup: str = ""
    """Why a rollout does not go the way the user asked for, in words."""


def decide_fleet(scene: Scene, wanted: int, rollout: RolloutSpec, *, stalled: bool) -> Fleet:
    """The steps of all groups when ``wanted`` of them should serve."""
    present = present_indices(scene.observed)
    groups = {g.index: g for g in (Standing(scene, index) for index in sorted(present)) if g.exists}
    going = {index: group for index, group in groups.items() if group.is_leaving}
    steps = {index: decide_group(group) for index, group in groups.items() if index not in going}
    for index, step in steps.items():
        if (revision := groups[index].revision) is not None and _will_come_back(groups[index], step):
            scene.admission.expect(index, revision)
    drains = find_drains(scene, groups, steps, moves=rollout.moves_on_drain)
    limits = Limits(
        wanted=wanted,
        max_unavailable=rollout.max_unavailable,
        max_surge=rollout.surge_groups,
        paused=rollout.is_paused,
        stalled=stalled,
    )
    lineup = Lineup((_place(groups[i], step, drains.get(i)) for i, step in steps.items()), limits)

    for index in lineup.surplus():
        going[index] = groups[index]
        del steps[index]
    free = (index for index in range(MAX_GROUP_INDEX + 1) if index not in present)
    for index in islice(free, lineup.lacking()):
        steps[index] = decide_group(Standing(scene, index))
    surging, holdup = bool(going) or len(lineup.places) > wanted, ""
    for index in islice(free, lineup.surge()):
        if not _may_surge(scene, rollout):
            holdup = "" if surging else _holdup(scene, rollout)
            break
        steps[index] = decide_group(Standing(scene, index))
        surging = True
    for index in lineup.replaced_in_place(surging=surging and rollout.surge_groups > 0):
        steps[index] = _replacement(groups[index], drains.get(index), holdup)
    for index, drain in drains.items():
        if index in steps and not steps[index].goes_down:
            steps[index] = drain.noted(steps[index])
    return Fleet(
        staying=dict(sorted(steps.items())),
        going={i: barrier.leave(g) for i, g in sorted(going.items()) if not (g.is_leaving and g.at_rest)},
        holdup=holdup,
    )


def present_indices(observed: Observed) -> frozenset[int]:
    """Indices of which a set or a pod stands."""
    sets = {c.group for c in observed.children.values() if c.kind is ChildKind.STATEFUL_SET}
    return frozenset(index for index in sets | {pod.group for pod in observed.pods} if index is not None)


def possible_indices(observed: Observed, most: int, *, beside: bool = False) -> frozenset[int]:
    """Indices that groups have, or may be given when there are ``most`` of them.

    ``beside`` counts no group that stands: each may be about to leave, and keeps its index until it is gone.
    """
    present = present_indices(observed)
    free = (index for index in range(MAX_GROUP_INDEX + 1) if index not in present)
    return present | frozenset(islice(free, most if beside else max(0, most - len(present))))


def _place(group: Standing, step: GroupStep, drain: Drain | None) -> Place:
    """The group as far as counting goes."""
    state = step.state
    return Place(
        index=group.index,
        age=group.age,
        serves=state.available,
        is_good=state.phase in _GOOD,
        is_up=group.leader is not None and group.leader.desired_replicas > 0 and not step.goes_down,
        outdated=not state.current and group.record.revision not in group.scene.unreadable,
        displaced=drain is not None and drain.has_room,
    )


def _may_surge(scene: Scene, rollout: RolloutSpec) -> bool:
    """Whether one more group may be made. Without leave to take any down, it is the only way to go on."""
    return scene.admission.has_spare(scene.target) or (
        rollout.max_unavailable == 0 and scene.admission.is_open
    )


def _holdup(scene: Scene, rollout: RolloutSpec) -> str:
    """Why a rollout cannot surge, and what it does instead."""
    if scene.observed.nodes is None:
        why = "free GPUs cannot be known by an operator that serves single namespaces"
    elif scene.observed.capacity is None:
        why = "free GPUs are not known yet"
    else:
        why = f"no whole spare group fits: it needs {scene.admission.shortfall(-1, scene.target, ())}"
    waits = rollout.max_unavailable == 0
    return f"{why}; {'waiting, as maxUnavailable is 0' if waits else 'groups are replaced where they stand'}"


def _will_come_back(group: Standing, step: GroupStep) -> bool:
    """Whether a group is down for a while and will want its nodes again: nobody may count on them."""
    is_down = step.goes_down or (group.leader is not None and group.leader.desired_replicas == 0)
    return is_down and step.state.phase is not GroupPhase.FAILED


def _replacement(group: Standing, drain: Drain | None, holdup: str) -> GroupStep:
    """The step that takes a group down so that it starts again as it should be."""
    if group.revision is None:
        return barrier.roll(group, Reason.ROLLING_OUT, "its revision is gone")
    why = "its revision is out of date"
    if drain is not None:
        stays = group.scene.held or group.revision.pods_hash == group.scene.target.pods_hash
        return barrier.roll(group, Reason.DRAINING, drain.text if stays else f"{drain.text}, and {why}")
    return barrier.roll(group, Reason.ROLLING_OUT, f"{why} ({holdup})" if holdup else why)
