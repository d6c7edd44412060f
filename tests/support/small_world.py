"""A world small enough to be explored whole: each interleaving of operator, controllers, watches and faults.

States are tuples. Each has what is (sets, pods) and what the operator believes (what its watches have brought
so far), so that late and reordered events are just other paths. A pass of the operator may be cut after any
of its writes. Time stands still: back-offs are over at once. UIDs are numbered anew in each state, so that
states which differ by names alone are one.

The engine is modelled after what vLLM does: rank 0 becomes ready once all ranks have joined, and stays ready
when one of them is lost; a rank that has joined one formation can join no other.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from shardwright_operator.api.constants import Annotation, Label, Reason, Role
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.revision import Revision, from_manifest, to_manifest
from shardwright_operator.build.stateful_set import leader_set, worker_set
from shardwright_operator.decide import DecideSettings, decide
from shardwright_operator.decide.decision import Apply, Claim, Delete, GoneClaim, PodClaim, Write
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.projection import project_child
from shardwright_operator.observe.views import ChildKind, ChildView, Key, PodView, ResourceView

KEY = Key("models", "llama")
OWNER = Owner(name=KEY.name, namespace=KEY.namespace, uid="owner")
START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(minutes=10)
READY_AT = START + timedelta(minutes=1)
LATE = START + timedelta(minutes=5)
SETTINGS = DecideSettings(operator_version="1.0.0")

FORGOTTEN = frozenset({Annotation.NOT_BEFORE, Annotation.EVIDENCE, Annotation.STARTED})
"""Not remembered here: a back-off is over at once, and what a failure looked like changes nothing after it.
How they are kept and obeyed is other tests' matter."""

OPERATOR = "the operator"
SETS, PODS = "sets", "pods"

_PLANNED = (Reason.ROLLING_OUT, Reason.SCALING_DOWN)

SPEC: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-405B-Instruct"},
    "workload": {"inputTokens": 2048, "outputTokens": 256, "maxModelLength": 8192},
    "hardware": {"gpu": "H100-SXM-80GB", "gpusPerNode": 8, "maxNodes": 2},
    "recovery": {"maxRestarts": 100},
}

Place = tuple[int, Role]
Notes = tuple[tuple[str, str], ...]


class Wish(NamedTuple):
    """What the spec says."""

    variant: int = 0
    replicas: int = 1
    paused: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        env = [{"name": "VARIANT", "value": str(self.variant)}]
        return {
            **SPEC,
            "replicas": self.replicas,
            "rollout": {"paused": self.paused},
            "engine": {"env": env} if self.variant else {},
        }


class Set(NamedTuple):
    """A StatefulSet: what it wants, and how far its controller has got."""

    made_from: str
    replicas: int
    notes: Notes = ()
    seen: bool = False
    """Whether the controller has seen what it wants now; until then it may act on ``before``."""
    before: tuple[str, int] = ("", 0)
    count: int = 0


class Pod(NamedTuple):
    """A member."""

    uid: int
    group: int
    rank: int
    made_from: str
    late: bool = False
    """Whether it was made after rank 0 of that time had become ready."""
    running: bool = False
    joined: int = 0
    """UID of the rank 0 whose formation it is part of; of rank 0 itself, that it is ready."""
    deleting: bool = False
    failed: bool = False
    restarts: int = 0


class State(NamedTuple):
    """Everything that is, and everything that the operator believes."""

    wish: Wish
    revisions: tuple[tuple[str, int], ...] = ()
    sets: tuple[tuple[Place, Set], ...] = ()
    pods: tuple[Pod, ...] = ()
    known_sets: tuple[tuple[Place, Set], ...] = ()
    known_pods: tuple[Pod, ...] = ()
    faults: int = 0
    edits: int = 0
    silences: int = 0
    silent: str = ""
    """Which watch brings nothing at the moment, in a world where the others bring everything at once."""

    def synced(self) -> "State":
        """The operator has been told everything, or was started anew and has listed it."""
        return self._replace(known_sets=self.sets, known_pods=self.pods, silent="")

    def told(self) -> "State":
        """The operator has been told everything, less what a silent watch keeps from it."""
        sets = self.known_sets if self.silent == SETS else self.sets
        pods = self.known_pods if self.silent == PODS else self.pods
        return self._replace(known_sets=sets, known_pods=pods)


class Move(NamedTuple):
    """One thing that may happen next."""

    label: str
    after: State
    duty: str = ""
    """Who has to make it sooner or later when it can be made all the time; empty for what need not happen."""


class ViolationError(AssertionError):
    """A state that must not be, with the way to it."""


_REVISIONS: dict[str, Revision] = {}
"""Revisions by name as they were first written; content-named, hence the same in all states."""


# -- what the operator sees and does --------------------------------------------------------------------


@cache
def decision_on(
    wish: Wish,
    revisions: tuple[tuple[str, int], ...],
    sets: tuple[tuple[Place, Set], ...],
    pods: tuple[Pod, ...],
) -> tuple[tuple[Claim, ...], tuple[Write, ...]]:
    """What a decision on these beliefs rests on, and its writes on revisions, sets and pods in order."""
    resource = ResourceView(
        key=KEY, uid=OWNER.uid, generation=1, resource_version=1, deleting=False, spec=wish.spec, status={}
    )
    children = [_revision_view(name, number) for name, number in revisions]
    children += [_set_view(place, found) for place, found in sets]
    observed = Observed(
        key=KEY,
        resource=resource,
        children={(child.kind, child.name): child for child in children},
        pods=tuple(_pod_view(pod) for pod in pods),
    )
    decision = decide(observed, NOW, SETTINGS)
    writes = [write for stage in decision.stages for write in stage if not _is_question(write)]
    told = {ChildKind.REVISION, ChildKind.STATEFUL_SET, None}
    return decision.confirm, tuple(write for write in writes if write.kind in told)


def _is_question(write: Write) -> bool:
    return isinstance(write, Apply) and write.rehearsal


@cache
def _revision_view(name: str, number: int) -> ChildView:
    manifest = to_manifest(_REVISIONS[name], OWNER)
    return _child({**manifest, "revision": number}, {})


@cache
def _set_view(place: Place, found: Set) -> ChildView:
    group, role = place
    revision = next(r for r in _REVISIONS.values() if r.pods_hash == found.made_from)
    if role is Role.LEADER:
        replicas = 1 if found.replicas else 0
        manifest = leader_set(OWNER, revision, group, replicas=replicas, annotations=dict(found.notes))
    else:
        manifest = worker_set(OWNER, revision, group, replicas=found.replicas)
    generation = {"generation": 2}
    status = {"replicas": found.count, "observedGeneration": 2 if found.seen else 1}
    return _child({**manifest, "metadata": {**manifest["metadata"], **generation}}, status)


def _child(manifest: Mapping[str, Any], status: Mapping[str, Any]) -> ChildView:
    metadata = {**manifest["metadata"], "uid": f"uid-{manifest['metadata']['name']}", "resourceVersion": "1"}
    view = project_child({**manifest, "metadata": metadata, "status": status})
    assert view is not None
    return view


@cache
def _pod_view(pod: Pod) -> PodView:
    role = Role.WORKER if pod.rank else Role.LEADER
    is_ready = pod.running and not pod.failed and bool(pod.joined or pod.rank)
    return PodView(
        key=KEY,
        name=f"llama-{pod.group}-{role}-{pod.rank}",
        uid=str(pod.uid),
        resource_version=1,
        role=role,
        group=pod.group,
        node_rank=pod.rank,
        pods_hash=pod.made_from,
        created_at=LATE if pod.late else START,
        set_uid=f"uid-llama-{pod.group}-{role}",
        node="node",
        phase="Failed" if pod.failed else "Running" if pod.running else "Pending",
        ready_since=READY_AT if is_ready else None,
        started=is_ready,
        deleting=pod.deleting,
        deadline=NOW if pod.deleting else None,
        restarts=pod.restarts,
    )


def passes(state: State) -> Iterator[Move]:
    """One pass of the operator, ended by itself or by its death after any number of writes."""
    claims, writes = decision_on(state.wish, state.revisions, state.known_sets, state.known_pods)
    if any(_is_wrong(claim, state) for claim in claims):
        yield Move("the operator looks again", state.synced(), OPERATOR)
        return
    current = state
    for number, write in enumerate(writes, start=1):
        current = _written(current, write, state)
        if number < len(writes):
            label = f"the operator dies after {number} of {len(writes)} writes ({write.why})"
            yield Move(label, current.synced())
    if writes:
        yield Move(f"a pass: {'; '.join(f'{w.name}: {w.why}' for w in writes)}", current, OPERATOR)


def _is_wrong(claim: Claim, state: State) -> bool:
    if isinstance(claim, PodClaim):
        return any(str(p.uid) == claim.uid and not p.deleting for p in state.pods)
    if isinstance(claim, GoneClaim):
        return any(_pod_view(p).name == claim.name for p in state.pods)
    return any(_set_name(place) == claim.name for place, _ in state.sets)


def _set_name(place: Place) -> str:
    return f"llama-{place[0]}-{place[1]}"


def _written(state: State, write: Write, before: State) -> State:
    if isinstance(write, Delete):
        return _deleted(state, write)
    if write.kind is ChildKind.REVISION:
        revision = from_manifest(write.manifest)
        _REVISIONS.setdefault(revision.name, revision)
        others = tuple(r for r in state.revisions if r[0] != revision.name)
        return state._replace(revisions=tuple(sorted([*others, (revision.name, revision.number)])))
    return _set_written(state, write, before)


def _set_written(state: State, write: Apply, before: State) -> State:
    metadata, spec = write.manifest["metadata"], write.manifest["spec"]
    labels = metadata["labels"]
    place = (int(labels[Label.GROUP_INDEX]), Role(labels[Label.ROLE]))
    sets = dict(state.sets)
    old = sets.get(place)
    if old is None and write.uid is not None:
        return state.synced()
    wants = (labels[Label.PODS], spec["replicas"])
    kept = {k: v for k, v in metadata.get("annotations", {}).items() if k not in FORGOTTEN}
    if kept.get(Annotation.CAUSE, _PLANNED[0]) not in _PLANNED:
        kept[Annotation.CAUSE] = Reason.MEMBER_LOST.value
    notes = tuple(sorted(kept.items()))
    if old is None:
        new = Set(made_from=wants[0], replicas=wants[1], notes=notes)
    elif wants == (old.made_from, old.replicas):
        new = old._replace(notes=notes)
    else:
        earlier = (old.made_from, old.replicas) if old.seen else old.before
        new = old._replace(made_from=wants[0], replicas=wants[1], notes=notes, seen=False, before=earlier)
    if place[1] is Role.LEADER:
        _check_leader_write(state, before, place, old, new)
    sets[place] = new
    known = {**dict(state.known_sets), place: new}
    return state._replace(sets=_sorted(sets), known_sets=_sorted(known))


def _deleted(state: State, write: Delete) -> State:
    if write.kind is None:
        pods = tuple(p._replace(deleting=True) if str(p.uid) == write.uid else p for p in state.pods)
        known = tuple(p._replace(deleting=True) if str(p.uid) == write.uid else p for p in state.known_pods)
        return state._replace(pods=pods, known_pods=known)
    return state._replace(
        sets=tuple(item for item in state.sets if _set_name(item[0]) != write.name),
        known_sets=tuple(item for item in state.known_sets if _set_name(item[0]) != write.name),
        revisions=tuple(item for item in state.revisions if item[0] != write.name),
    )


def _sorted(sets: Mapping[Place, Set]) -> tuple[tuple[Place, Set], ...]:
    return tuple(sorted(sets.items()))


# -- the rules that every write must keep ---------------------------------------------------------------


def _check_leader_write(state: State, before: State, place: Place, old: Set | None, new: Set) -> None:
    goes_up = new.replicas and (old is None or not old.replicas)
    if goes_up and any(pod.group == place[0] for pod in state.pods):
        raise ViolationError(f"group {place[0]} starts beside pods of an earlier attempt")
    if state.wish.paused and new.made_from not in _kinds_of(state, place[0], old):
        raise ViolationError(f"group {place[0]} changes its revision while changes are held back")
    leaders = [found for (_, role), found in state.sets if role is Role.LEADER and found.replicas]
    if goes_up and old is None and len(leaders) >= state.wish.replicas:
        raise ViolationError(f"a group beyond the {state.wish.replicas} wanted ones is made")
    informed = before.known_sets == before.sets and before.known_pods == before.pods
    rolls = dict(new.notes).get(Annotation.CAUSE) == Reason.ROLLING_OUT
    if informed and rolls and old is not None and old.replicas and not new.replicas:
        others = sum(serves(before, group) for group in groups(before) if group != place[0])
        if serves(before, place[0]) and before.wish.replicas > 1 and others == 0:
            raise ViolationError(f"a rollout takes down group {place[0]}, the last that serves")


def _kinds_of(state: State, group: int, leader: Set | None) -> set[str]:
    """What the group may be made from while changes are held back; a new one has nothing to come back to."""
    if leader is not None:
        return {leader.made_from}
    worker = dict(state.sets).get((group, Role.WORKER))
    stand = {pod.made_from for pod in state.pods if pod.group == group}
    stand |= {worker.made_from} if worker is not None else set()
    return stand or {revision.pods_hash for revision in _REVISIONS.values()}


def groups(state: State) -> set[int]:
    """Indices of the groups of which anything stands."""
    return {place[0] for place, _ in state.sets} | {pod.group for pod in state.pods}


def serves(state: State, group: int) -> bool:
    """Whether a request to the group would be answered."""
    pods = [pod for pod in state.pods if pod.group == group]
    leader = next((pod for pod in pods if pod.rank == 0 and pod.joined and not pod.deleting), None)
    return leader is not None and len(pods) == 2 and all(p.joined == leader.uid for p in pods)


# -- the cluster ----------------------------------------------------------------------------------------


def controllers(state: State) -> Iterator[Move]:
    """The StatefulSet controller looks at one set, in its newest form or in the one that it has cached."""
    for place, found in state.sets:
        forms = [(found.made_from, found.replicas, True)]
        if not found.seen and found.before[0]:
            forms.append((*found.before, False))
        for made_from, replicas, seen in forms:
            yield from _controlled(state, place, found._replace(seen=seen), (made_from, replicas))
    for pod in state.pods:
        role = Role.WORKER if pod.rank else Role.LEADER
        if not pod.deleting and (pod.group, role) not in dict(state.sets):
            yield _duty(f"{_name(pod)} is collected", _changed(state, pod, deleting=True))


def _controlled(state: State, place: Place, found: Set, form: tuple[str, int]) -> Iterator[Move]:
    group, role = place
    made_from, replicas = form
    ranks = range(replicas) if role is Role.LEADER else range(1, replicas + 1)
    mine = [p for p in state.pods if p.group == group and (p.rank > 0) is (role is Role.WORKER)]
    gone = [p for p in mine if p.failed and not p.deleting]
    extra = [p for p in mine if p.rank not in ranks and not p.deleting and not p.failed]
    kept = [p._replace(deleting=True) if p in extra else p for p in mine if p not in gone]
    late = any(p.group == group and p.rank == 0 and p.joined for p in state.pods)
    fresh = 1 + max((p.uid for p in (*state.pods, *state.known_pods)), default=0) + _recorded(state)
    for rank in ranks:
        if all(p.rank != rank for p in kept):
            kept.append(Pod(uid=fresh, group=group, rank=rank, made_from=made_from, late=late, running=True))
            fresh += 1
    pods = tuple(sorted([*(p for p in state.pods if p not in mine), *kept], key=_order))
    found = found._replace(count=len(kept), before=("", 0) if found.seen else found.before)
    sets = {**dict(state.sets), place: found}
    after = state._replace(pods=pods, sets=_sorted(sets))
    if after == state:
        return
    label = f"the controller syncs {_set_name(place)}"
    yield _duty(label, after) if found.seen else Move(f"{label} from its cache", after)


def _recorded(state: State) -> int:
    members = [dict(s.notes).get(Annotation.MEMBERS, "") for _, s in (*state.sets, *state.known_sets)]
    return max((int(uid) for text in members for uid in text.split(",") if uid), default=0)


def kubelets(state: State) -> Iterator[Move]:
    """A pod ends; a formation is complete."""
    for pod in state.pods:
        if pod.deleting:
            yield _duty(f"{_name(pod)} is gone", _without(state, pod))
        elif pod.rank == 0 and not pod.joined and not pod.failed:
            yield from _formation(state, pod)


def _formation(state: State, leader: Pod) -> Iterator[Move]:
    """All ranks join; with one of an earlier formation they never do, until the start-up probe has enough."""
    others = [p for p in state.pods if p.group == leader.group and p.rank]
    if others and all(p.running and not p.joined and not p.failed for p in others):
        formed = tuple(p._replace(joined=leader.uid) if p.group == leader.group else p for p in state.pods)
        yield _duty(f"group {leader.group} forms", state._replace(pods=formed))
    elif any(p.joined and not p.deleting for p in others) and not leader.restarts:
        again = _changed(state, leader, restarts=1)
        yield _duty(f"the start-up probe of {_name(leader)} has waited long enough", again)


def watches(state: State) -> Iterator[Move]:
    """The watches bring what has happened, of sets and of pods in any order."""
    if state.known_pods != state.pods:
        heard = state._replace(known_pods=state.pods, silent="" if state.silent == PODS else state.silent)
        yield _duty("the operator hears of pods", heard)
    if state.known_sets != state.sets:
        heard = state._replace(known_sets=state.sets, silent="" if state.silent == SETS else state.silent)
        yield _duty("the operator hears of sets", heard)


def faults(state: State) -> Iterator[Move]:
    """What goes wrong, as long as the budget lasts."""
    if state.faults == 0:
        return
    left = state._replace(faults=state.faults - 1)
    for pod in state.pods:
        if pod.deleting or pod.failed:
            continue
        yield Move(f"{_name(pod)} is deleted", _changed(left, pod, deleting=True))
        yield Move(f"{_name(pod)} vanishes", _without(left, pod))
        if pod.running:
            yield Move(f"{_name(pod)} fails", _changed(left, pod, failed=True, joined=0))
            again = _changed(left, pod, restarts=pod.restarts + 1, joined=0)
            yield Move(f"a container of {_name(pod)} restarts", again)
    for place, _ in state.sets:
        rest = tuple(item for item in left.sets if item[0] != place)
        yield Move(f"{_set_name(place)} is deleted", left._replace(sets=rest))


def silences(state: State) -> Iterator[Move]:
    """One of the watches falls silent until it brings all that has happened, as long as the budget lasts."""
    if state.silences and not state.silent:
        for watch in (PODS, SETS):
            silent = state._replace(silences=state.silences - 1, silent=watch)
            yield Move(f"the watch of {watch} falls silent", silent)


def edits(state: State, wishes: tuple[Wish, ...]) -> Iterator[Move]:
    """The user changes the spec, as long as the budget lasts."""
    if state.edits:
        for wish in wishes:
            if wish != state.wish:
                yield Move(f"the spec becomes {wish}", state._replace(wish=wish, edits=state.edits - 1))


def _duty(label: str, after: State) -> Move:
    """A move of somebody who does it sooner or later."""
    return Move(label, after, label)


def _name(pod: Pod) -> str:
    return f"rank {pod.rank} of group {pod.group}"


def _order(pod: Pod) -> tuple[int, int, int]:
    return (pod.group, pod.rank, pod.uid)


def _changed(state: State, pod: Pod, **change: Any) -> State:
    return state._replace(pods=tuple(p._replace(**change) if p == pod else p for p in state.pods))


def _without(state: State, pod: Pod) -> State:
    return state._replace(pods=tuple(p for p in state.pods if p != pod))


def check(state: State) -> None:
    """What must hold in every state."""
    for group in groups(state):
        made_from = {pod.made_from for pod in state.pods if pod.group == group}
        if len(made_from) > 1:
            raise ViolationError(f"group {group} has pods of two revisions at the same time")


# -- one name for states that differ by UIDs alone ------------------------------------------------------


def canonical(state: State) -> State:
    """The same state with UIDs numbered in the order in which they are met."""
    numbers: dict[int, int] = {0: 0}

    def number(uid: int) -> int:
        return numbers.setdefault(uid, len(numbers))

    def renamed(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        return tuple(p._replace(uid=number(p.uid), joined=number(p.joined)) for p in sorted(pods, key=_order))

    def noted(sets: tuple[tuple[Place, Set], ...]) -> tuple[tuple[Place, Set], ...]:
        return tuple((place, found._replace(notes=_renamed(found.notes))) for place, found in sets)

    def _renamed(notes: Notes) -> Notes:
        text = dict(notes).get(Annotation.MEMBERS)
        if not text:
            return notes
        members = ",".join(str(number(int(uid))) for uid in text.split(","))
        return tuple((k, members if k == Annotation.MEMBERS else v) for k, v in notes)

    pods, known = renamed(state.pods), renamed(state.known_pods)
    return state._replace(
        pods=pods, known_pods=known, sets=noted(state.sets), known_sets=noted(state.known_sets)
    )
