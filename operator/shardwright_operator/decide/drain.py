"""Groups with a member on a node that is cordoned.

Their disruption budget refuses every eviction of a group that is whole, because a drain that takes one
member takes the group. So the operator moves the group as one, if it finds room elsewhere, and the drain then
ends by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shardwright_operator.decide.scene import GroupStep, Scene
from shardwright_operator.decide.standing import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What a cordoned node means for one group."""

    text: str
    has_room: bool
    """Whether the group is to move, and fits elsewhere."""
    why_not: str = ""

    def noted(self, step: GroupStep) -> GroupStep:
        """The step of a group that stays for now, saying so."""
        ending = self.why_not or "the group moves when its turn comes"
        text = f"{step.state.message}; {self.text}: {ending}"
        return replace(step, state=replace(step.state, message=text))


def find_drains(
    scene: Scene, groups: Mapping[int, Standing], steps: Mapping[int, GroupStep], *, moves: bool
) -> dict[int, Drain]:
    """The drains of groups that are up, by index; ``moves`` is what the user wants of them."""
    cordoned = {node.name for node in scene.observed.nodes or () if node.unschedulable}
    found: dict[int, Drain] = {}
    if not cordoned:
        return found
    for index, step in steps.items():
        group = groups[index]
        nodes = sorted({pod.node for pod in group.pods} & cordoned)
        if nodes and not step.goes_down and group.leader is not None and group.leader.desired_replicas:
            found[index] = _drain(scene, group, nodes, moves=moves)
    return found


def _drain(scene: Scene, group: Standing, nodes: list[str], *, moves: bool) -> Drain:
    text = f"node {', '.join(nodes)} is cordoned"
    if not moves:
        return Drain(text=text, has_room=False, why_not="spec.rollout.onDrain is Block")
    revision = (group.revision if scene.held else None) or scene.coming
    if scene.observed.capacity is None:
        return Drain(text=text, has_room=False, why_not="free GPUs elsewhere are not known yet")
    if scene.admission.could_move(revision, group.pods):
        return Drain(text=text, has_room=True)
    lacking = scene.admission.shortfall(group.index, revision, ())
    return Drain(text=text, has_room=False, why_not=f"no room elsewhere: it needs {lacking}")
