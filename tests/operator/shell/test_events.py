"""Events tell a story once, in order, and to its end."""

from shardwright_operator.apply.events import REPEAT_S, REPEATS
from shardwright_operator.decide.decision import Event, EventType
from shardwright_operator.observe.projection import project_resource

LOST = Event(type=EventType.WARNING, reason="MemberLost", message="group 0: rank 1 is terminating")
READY = Event(type=EventType.NORMAL, reason="GroupsReady", message="the group serves requests")


async def told(world, *events: Event) -> list[str]:
    """Post them a second apart; returns the reasons of all that were posted so far."""
    resource = project_resource(world.make_resource())
    for event in events:
        world.advance(1)
        await world.events.post(resource, event)
    made = [body for (kind, *_), body in world.cluster.objects.items() if kind == "Event"]
    return [body["reason"] for body in sorted(made, key=lambda body: str(body["metadata"]["name"]))]


async def test_what_is_said_twice_in_a_row_is_told_once(world) -> None:
    assert await told(world, READY, READY) == ["GroupsReady"]


async def test_a_group_that_serves_again_says_so(world) -> None:
    assert await told(world, READY, LOST, READY) == ["GroupsReady", "MemberLost", "GroupsReady"]


async def test_a_resource_that_turns_to_and_fro_tells_no_endless_story(world) -> None:
    assert len(await told(world, *[READY, LOST] * 50)) == 2 + REPEATS
    world.advance(REPEAT_S)
    assert len(await told(world, *[READY, LOST] * 50)) == 2 * (2 + REPEATS)
