"""Rules of conduct: how much the operator writes, and whether what it says is true."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from control_plane.audit import AuditEvent
from replay import replay
from sights import Deployment, GroupSet, Pod, Sight
from violations import Violation

WINDOW_S = 10.0
MOST_STATUSES = 60
MOST_WRITES = 20
"""Of one object in a window. A group that is broken and comes back is six writes on its leader set."""
MOST_LISTS = 40
"""Of one kind in a window: each broken watch is two."""

TRUE_WITHIN_S = 20.0
"""How long a status may lag in fair weather on a machine that does other things besides."""

Span = tuple[float, float]


def request_storms(requests: Iterable[AuditEvent]) -> Iterator[Violation]:
    """No object is written, and no kind listed, over and over again."""
    times: defaultdict[tuple[str, str, str], list[AuditEvent]] = defaultdict(list)
    for event in requests:
        if event.is_lease or event.verb in {"watch", "get"}:
            continue
        name = "" if event.verb == "list" else f"{event.namespace}/{event.name}"
        times[event.verb, event.full_resource, name].append(event)
    for (verb, resource, name), events in times.items():
        most = (
            MOST_LISTS if verb == "list" else MOST_STATUSES if resource.endswith("/status") else MOST_WRITES
        )
        stamps = sorted(event.received.timestamp() for event in events)
        busiest = max(range(len(stamps)), key=lambda i: bisect_left(stamps, stamps[i] + WINDOW_S) - i)
        count = bisect_left(stamps, stamps[busiest] + WINDOW_S) - busiest
        if count > most:
            told = f"{count} in {WINDOW_S:g} s, at most {most}"
            what = f"{verb} {resource} {name}".strip()
            yield Violation(rule="a storm of requests", about=what, at=stamps[busiest], evidence=(told,))


def writes_in_quiet(writes: Sequence[AuditEvent]) -> Iterator[Violation]:
    """Where nothing changes, nothing is written."""
    found = [event for event in writes if event.is_write and not event.is_lease]
    if found:
        evidence = tuple(f"{e.verb} {e.full_resource} {e.name}: {e.code}" for e in found[:20])
        yield Violation(
            rule="writes though nothing changes",
            about=f"{len(found)} requests",
            at=found[0].received.timestamp(),
            evidence=evidence,
        )


def false_statuses(
    sights: Sequence[Sight], outages: Iterable[Span], *, within_s: float = TRUE_WITHIN_S
) -> Iterator[Violation]:
    """In fair weather a number of ready groups is said only if it was true a short time ago."""
    foul = _merged(outages)
    said: dict[str, list[tuple[float, int]]] = defaultdict(list)
    true: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for step in replay(sights):
        at, world = step.sight.at, step.world
        name = _concerned(step.sight)
        resource = world.deployments.get(name)
        if resource is not None:
            _append(true[name], at, world.ready_groups(name))
            _append(said[name], at, resource.said_ready)
        elif isinstance(step.sight.thing, Deployment):
            said.pop(name, None)
            true.pop(name, None)
    for name, values in said.items():
        for (since, number), (until, _) in zip(values, [*values[1:], (sights[-1].at, 0)], strict=True):
            yield from _lie(name, number, (since, until), true[name], foul, within_s)


def _lie(
    name: str,
    number: int,
    told: Span,
    true: Sequence[tuple[float, int]],
    foul: Sequence[Span],
    within_s: float,
) -> Iterator[Violation]:
    """Whether a number was told for longer than allowed while it was not true at any time."""
    spans = zip(true, [*true[1:], (told[1], 0)], strict=True)
    moments = sorted(
        (max(since, told[0]), min(until, told[1]))
        for (since, count), (until, _) in spans
        if count == number and since <= told[1] and until >= told[0]
    )
    for since, until in _gaps(told, _merged([*moments, *foul])):
        if until - since > within_s:
            counts = sorted({count for at, count in true if since <= at <= until})
            evidence = (
                f"readyReplicas: {number} was said for {until - since:.1f} s",
                f"true were {', '.join(map(str, counts)) or 'others'}",
            )
            yield Violation(rule="a status that is not true", about=name, at=since, evidence=evidence)
            return


def _concerned(sight: Sight) -> str:
    """Name of the resource that a sight tells something of; empty for none."""
    match sight.thing:
        case Pod() | GroupSet() as member:
            return member.group.resource
        case Deployment() as resource:
            return resource.name
        case _:
            return ""


def _append(values: list[tuple[float, int]], at: float, value: int) -> None:
    if not values or values[-1][1] != value:
        values.append((at, value))


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for since, until in sorted(spans):
        if merged and since <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until))
        else:
            merged.append((since, until))
    return merged


def _gaps(whole: Span, covered: Sequence[Span]) -> Iterator[Span]:
    """What of a time span is not covered; a moment counts as well."""
    at = whole[0]
    for since, until in covered:
        if until < whole[0] or since > whole[1]:
            continue
        if since > at:
            yield at, since
        at = max(at, until)
    if at < whole[1]:
        yield at, whole[1]
