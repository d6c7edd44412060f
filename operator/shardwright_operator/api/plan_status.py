"""``status.plan``: the plan, with the candidates that were not chosen as one line each.

As records those took nine lines each of what ``kubectl describe`` prints, between the reader and the Events:
65 of 243 for a dense model over two nodes, and 148 for one with experts. The lines can be read back, so that
an explanation needs nothing but the status. Revisions keep the plan as the planner made it: what they hold
must never change its form.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from shardwright_planner.plan import MAX_ALTERNATIVES, Alternative, Plan
from shardwright_planner.wording import alternative_text, count_text

Line = Annotated[str, Field(max_length=768)]

_VERDICTS = {True: ", meets the SLO", False: ", misses the SLO", None: ", latency not predicted"}
"""After the nodes of a candidate that fits. Where no service level was given, none can be missed: then the
word for that is left out."""
_EARLIER_VERDICTS = {", meets": True, ", misses": False, ", fits": None}
"""Of operators that did not say what is met."""
_VERDICT_OF = {text: met for met, text in _VERDICTS.items()} | _EARLIER_VERDICTS
_FITS = "fits"
"""Begins the reason why a candidate that fits was not chosen, and no other one."""
_LINE = re.compile(
    r"TP(?P<tensor>\d+) x PP(?P<pipeline>\d+)(?: x DP(?P<data>\d+)(?P<expert> EP)?)?"
    r"(?: on (?P<pool>.+?))?, (?P<nodes>\d+) nodes?"
    rf"(?P<verdict>{'|'.join(_VERDICT_OF)})?: (?P<reason>.*)",
    re.DOTALL,
)


class PlanStatus(Plan):
    """The plan as the status has it."""

    alternatives: tuple[Alternative, ...] = Field(
        default=(),
        max_length=MAX_ALTERNATIVES,
        description="Candidates that were not chosen, as the first operators wrote them.",
    )
    considered: tuple[Line, ...] = Field(
        default=(),
        max_length=MAX_ALTERNATIVES,
        description="Candidates that were considered and not chosen, nearest first, each with its reason.",
    )


def plan_section(plan: Plan) -> dict[str, Any]:
    """A plan as it is written to the status."""
    wire = plan.to_wire()
    del wire["alternatives"]
    return {**wire, "considered": [_line(each, plan) for each in plan.alternatives]}


def plan_of(wire: Mapping[str, Any]) -> Plan:
    """The plan that stands in a status, by whichever operator wrote it.

    Raises:
        ValueError: for a plan that another version has written in a way that cannot be read here.
    """
    found = dict(wire)
    lines = found.pop("considered", None)
    if lines is not None:
        found["alternatives"] = [_alternative(str(line), str(found.get("pool", ""))) for line in lines]
    return Plan.model_validate(found, extra="ignore")


def _line(each: Alternative, plan: Plan) -> str:
    where = "" if each.pool == plan.pool else f" on {each.pool}"
    needs_none = not each.feasible or (each.slo_predicted is True and plan.slo_predicted is None)
    verdict = "" if needs_none else _VERDICTS[each.slo_predicted]
    return f"{alternative_text(each)}{where}, {count_text(each.nodes, 'node')}{verdict}: {each.reason}"


def _alternative(line: str, pool: str) -> Alternative:
    found = _LINE.fullmatch(line)
    if found is None:
        message = f"{line[:80]!r} is no candidate of a plan"
        raise ValueError(message)
    feasible = found["reason"].startswith(_FITS)
    return Alternative(
        tensor_parallel=int(found["tensor"]),
        pipeline_parallel=int(found["pipeline"]),
        data_parallel=int(found["data"] or 1),
        expert_parallel=found["expert"] is not None,
        nodes=int(found["nodes"]),
        pool=found["pool"] or pool,
        feasible=feasible,
        slo_predicted=_VERDICT_OF.get(found["verdict"], feasible or None),
        reason=found["reason"],
    )
