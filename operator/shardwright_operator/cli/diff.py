"""``shardwright diff``: what a changed manifest would do to what runs, before it costs GPUs."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.manifest import parse_manifest
from shardwright_operator.cli.change import Before, Change, change, first_sight, standing
from shardwright_operator.cli.console import (
    EXIT_OK,
    CommandParser,
    InputError,
    missing_extra,
    takes_color,
    width,
)
from shardwright_operator.cli.documents import read_manifests
from shardwright_operator.cli.options import HARDWARE_OPTIONS, add_color, add_kubeconfig, add_options
from shardwright_operator.cli.question import Question, questions
from shardwright_operator.observe.views import Key
from shardwright_planner import Plan
from shardwright_planner.bars import Paint, columns, paragraph
from shardwright_planner.wording import (
    TimeScale,
    count_text,
    gib_text,
    latency_scales,
    sizes_text,
    slo_verdict,
    where_text,
)

CLUSTER = "cluster"
EXIT_CHANGES = 1
EXIT_REFUSED = 3


def parser(name: str) -> CommandParser:
    """The parser of ``shardwright diff``."""
    found = CommandParser(
        name,
        "Compare a changed ModelDeployment with what runs, or with another file: the old plan and the new "
        "one, which pods restart and why, and the GPUs needed and free. The operator's own decisions "
        "give the answer. Exit codes: 0 nothing changes, 1 something does, 2 bad input, 3 the operator would "
        "refuse the new spec and go on with the old one. Reads from the cluster and writes nothing.",
        (
            "-f new.yaml",
            "-f new.yaml --against old.yaml",
            "-f examples/llama-3.1-405b.yaml --against examples/llama-3.1-405b.yaml --max-model-len 16384",
            "-f new.yaml -n serving -o json",
        ),
    )
    add_options(found)
    compared = found.add_argument_group("what to compare with")
    compared.add_argument(
        "--against", metavar="FILE", default=CLUSTER, help="a manifest, or cluster (the default)"
    )
    compared.add_argument("-n", "--namespace", help="of the resource in the cluster, where the file has none")
    add_kubeconfig(compared)
    output = found.add_argument_group("output")
    output.add_argument("-o", "--output", choices=("text", "json"), default="text", help="format (text)")
    add_color(output)
    return found


def run(arguments: Sequence[str], parser: CommandParser) -> int:
    """Print what would change; several resources one after the other."""
    options = parser.parse_args(arguments)
    if options.filename is None:
        parser.error("a manifest must be given with -f")
    asked = [question.unmeasured() for question in questions(options)]
    found = [(question, _compared(question, options)) for question in asked]
    if options.output == "json":
        records = [_record(question, each) for question, each in found]
        print(json.dumps(records[0] if len(records) == 1 else records, indent=2))
    else:
        color = takes_color(options.color)
        texts = [rendered(q.deployment.name, each, width=width(), color=color) for q, each in found]
        sys.stdout.write("\n\n".join(texts) + "\n")
    return max(map(_code, (each for _, each in found)), default=EXIT_OK)


def _code(found: Change) -> int:
    if not found.accepted:
        return EXIT_REFUSED
    return EXIT_OK if found.is_nothing else EXIT_CHANGES


def _compared(question: Question, options: argparse.Namespace) -> Change:
    deployment = question.deployment
    raw: Mapping[str, Any] = deployment.raw_spec
    if options.against == CLUSTER:
        try:
            # Only here: a comparison of two files needs no Kubernetes client, which takes its time to import.
            from shardwright_operator.cli.live import observe  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise missing_extra(error, "operator") from None
        stated = (question.document.get("metadata") or {}).get("namespace") or options.namespace
        before = standing(observe(options.kubeconfig, stated, deployment.name))
        live = before.observed.resource
        if live is not None and "replicas" not in raw and "replicas" in live.spec:
            # `kubectl apply` leaves a field alone that the file does not have: an autoscaler may own it.
            raw = {**raw, "replicas": live.spec["replicas"]}
        spec = parse_manifest({**question.document, "spec": raw}).spec
        return change(before, raw, spec)
    question.pool()
    return change(_of_file(question, options), raw, deployment.spec)


def _of_file(question: Question, options: argparse.Namespace) -> Before:
    name = question.deployment.name
    documents = read_manifests(options.against)
    named = [d for d in documents if isinstance(m := d.get("metadata"), Mapping) and m.get("name") == name]
    if not named:
        message = f"{options.against} has no ModelDeployment {name!r} to compare with."
        raise InputError(message)
    try:
        parse_manifest(named[0])
        document = _with_hardware(named[0], question)
        old = parse_manifest(document)
    except SpecError as error:
        message = f"{options.against}: {name}: {error}"
        raise InputError(message) from None
    key = Key(namespace=question.deployment.namespace, name=name)
    Question(deployment=old, document=document, origin=question.origin).pool()
    return first_sight(key, old.raw_spec, old.spec)


def _with_hardware(document: Mapping[str, Any], question: Question) -> dict[str, Any]:
    """The old manifest on the hardware that options give, where it leaves that to the cluster."""
    spec = dict(document.get("spec") or {})
    hardware = dict(spec.get("hardware") or {})
    given = question.document["spec"].get("hardware") or {}
    for option in HARDWARE_OPTIONS[:3]:
        key = option.field.split(".")[1]
        if option.field in question.origin.options and key not in hardware:
            hardware[key] = given[key]
    return {**document, "spec": {**spec, **({"hardware": hardware} if hardware else {})}}


def rendered(name: str, found: Change, *, width: int, color: bool) -> str:
    """The change as text of at most ``width`` columns."""
    paint = Paint(color=color)
    sections = [
        [paint(line, "bold") for line in paragraph(f"{name}: {_headline(found)}", width)],
        list(_table(found, width, paint)),
        list(_listed("What happens", _events(found), width, paint)),
        list(_listed("What differs in the pods", found.pods, width, paint)),
        list(_listed("Changed without a restart", found.others, width, paint)),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _headline(found: Change) -> str:
    if not found.accepted:
        return "the new spec would be refused"
    if found.is_nothing:
        return "nothing changes"
    if found.old is None:
        return "new, nothing of it runs yet"
    if found.restarting and not found.held:
        return f"{count_text(len(found.restarting), 'group')} would restart"
    return "changes, and no pod restarts"


def _events(found: Change) -> Iterator[str]:
    if not found.accepted:
        goes_on = " What runs goes on as it is." if found.now else ""
        yield f"Refused: {found.message.rstrip('.')}.{goes_on}"
    new = found.new
    if new is None:
        return
    yield from _plan_events(found)
    members = count_text(new.members, "pod")
    if found.restarting:
        names = ", ".join(map(str, found.restarting))
        which = f"group {names}" if len(found.restarting) == 1 else f"groups {names}"
        if found.held:
            already = "already " if found.under_way else ""
            yield f"{which.capitalize()} would restart, but spec.rollout.paused {already}holds that back."
        elif found.under_way:
            each = "restarts" if len(found.restarting) == 1 else "restart"
            yield f"{which.capitalize()} {each} in the rollout that is under way."
            if found.word:
                yield f"The operator says of it: {found.word.rstrip('. ')}."
        else:
            yield f"{which.capitalize()}: all pods restart, {members} each afterwards."
    if found.then > found.now:
        added = f"{count_text(found.then - found.now, 'group')} of {members}"
        # A manifest that was applied already was said to change something while its groups waited for GPUs.
        yield f"{added} wanted already, and not made yet." if found.is_nothing else f"{added} would be made."
    if found.then < found.now:
        going = "goes already" if found.is_nothing else "would go for good"
        yield f"{count_text(found.now - found.then, 'group')} {going}."
    if found.now and not found.restarting and found.then >= found.now and found.accepted:
        yield "No pod restarts."
    yield from _gpu_events(found)


def _plan_events(found: Change) -> Iterator[str]:
    old, new = found.old, found.new
    if old is None or new is None or not found.accepted:
        return
    if old.plan_inputs != new.plan_inputs:
        yield "The plan is made anew, since what it is made from has changed."
    elif old.plan != new.plan:
        yield "The plan is made anew: the GPUs of the old one are no longer there."
    elif old.pods_hash != new.pods_hash:
        yield "The plan stays as it is pinned; pods change."


def _gpu_events(found: Change) -> Iterator[str]:
    if not (found.to_place or found.gpus_now != found.gpus_then):
        return
    text = f"GPUs: {found.gpus_now:,} held now, {found.gpus_then:,} needed then"
    if found.free_gpus is None or found.placed is None:
        yield f"{text}; free ones are not known here."
        return
    find = "finds its nodes" if found.to_place == 1 else "find their nodes"
    fit = f"{found.placed} of {count_text(found.to_place, 'group')} {find}"
    freed = " once what restarts has given its own back" if found.restarting and not found.held else ""
    placed = f"; {fit}{freed}" if found.to_place else ""
    yield f"{text}, {found.free_gpus:,} free on nodes that these pods may use{placed}."


Cells = tuple[str, str, str]


def _table(found: Change, width: int, paint: Paint) -> Iterator[str]:
    old = found.old.plan if found.old is not None else None
    new = found.new.plan if found.new is not None else None
    if old is None and new is None:
        return
    rows: list[Cells] = [("", "now", "then")]
    scales = latency_scales(plan for plan in (old, new) if plan is not None)
    before = dict(_figures(old, found, scales, then=False))
    after = dict(_figures(new, found, scales, then=True))
    for name in dict.fromkeys((*before, *after)):
        mine, other = before.get(name, "-"), after.get(name, "-")
        if mine != other or name in _ALWAYS:
            rows.append((name, mine, other))
    head, *lines = columns(rows, width, room=14)
    yield paint(head, "dim")
    marks = [mine != other for _, mine, other in rows[1:]]
    if len(lines) != len(marks):
        yield from lines
        return
    yield from (paint(line, "cyan") if changed else line for line, changed in zip(lines, marks, strict=True))


_ALWAYS = frozenset({"sizes", "groups", "GPUs in all"})


def _figures(
    plan: Plan | None, found: Change, scales: tuple[TimeScale, TimeScale], *, then: bool
) -> Iterator[tuple[str, str]]:
    if plan is None:
        return
    token, first = scales
    revision = found.new if then else found.old
    yield "sizes", sizes_text(plan)
    yield "on", where_text(plan)
    yield "groups", str(found.then if then else found.now)
    yield "GPUs in all", f"{found.gpus_then if then else found.gpus_now:,}"
    heaviest = max((stage.weights_bytes for stage in plan.stages), default=0)
    yield "weights per GPU", f"{gib_text(heaviest)} GiB"
    yield "longest request", f"{plan.max_model_length:,} tokens"
    yield "KV cache", f"{plan.kv_cache_tokens:,} tokens ({plan.kv_cache_dtype})"
    yield "requests at once", f"{int(plan.slo_concurrency):,} fit, {plan.goal.concurrency:,} wanted"
    if plan.predicted is not None:
        yield "per output token", token.range_text(plan.predicted.time_per_output_token_ms)
        yield "to first token", first.range_text(plan.predicted.time_to_first_token_ms)
    verdict = slo_verdict(plan)
    yield "service level", f"{verdict} (predicted)" if plan.slo_predicted is not None else verdict
    if revision is not None:
        yield "image", revision.image
        yield "revision", revision.name


def _listed(title: str, texts: Sequence[str] | Iterator[str], width: int, paint: Paint) -> Iterator[str]:
    items = list(texts)
    if not items:
        return
    yield paint(title, "bold")
    for item in items:
        yield from paragraph(item, width, "  - ", "    ")


def _record(question: Question, found: Change) -> dict[str, Any]:
    old, new = found.old, found.new
    return {
        "name": question.deployment.name,
        "accepted": found.accepted,
        "message": found.message,
        "changes": not found.is_nothing,
        "restarting": [] if found.held or found.under_way else list(found.restarting),
        "heldBack": list(found.restarting) if found.held else [],
        "restartingAlready": list(found.restarting) if found.under_way and not found.held else [],
        "groups": {"now": found.now, "then": found.then},
        "gpus": {"now": found.gpus_now, "then": found.gpus_then, "free": found.free_gpus},
        "placed": found.placed,
        "toPlace": found.to_place,
        "podChanges": list(found.pods),
        "otherChanges": list(found.others),
        "revision": {"now": old.name if old else None, "then": new.name if new else None},
        "plan": {
            "now": old.plan.to_wire() if old else None,
            "then": new.plan.to_wire() if new else None,
        },
    }
