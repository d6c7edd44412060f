"""The planner: legality, memory, latency, choice, and the plan that says all of it."""

from collections.abc import Sequence
from dataclasses import replace

from shardwright_planner.answer import infeasible_plan, plan_of
from shardwright_planner.candidates import check_pins
from shardwright_planner.choice import choose, nearest
from shardwright_planner.errors import PlanInputError
from shardwright_planner.evaluation import Candidate, evened, judged, timed
from shardwright_planner.legality import Legality
from shardwright_planner.plan import Plan
from shardwright_planner.remedies import fit_remedies, speed_remedies
from shardwright_planner.request import PlanRequest, Policy
from shardwright_planner.setting import Setting, settings
from shardwright_planner.weights import WeightTable
from shardwright_planner.workbench import Workbench


def plan(request: PlanRequest) -> Plan:
    """Plan one replica; the same request always gives the same plan.

    A plan that does not fit, or that misses a required service level, is an answer with ``feasible`` False.

    Raises:
        PlanInputError: for inputs or pins that the engine would refuse whatever the hardware.
    """
    request = _normalized(request)
    found = search(request)
    chosen = choose(found)
    if chosen is None:
        closest = nearest(found)
        if closest is None:
            raise _all_illegal(found)
        return infeasible_plan(request, closest, found, fit_remedies(request, closest))
    better = evened(chosen, request.pins)
    if better is not chosen:
        found = [better if candidate is chosen else candidate for candidate in found]
        chosen = better
    if chosen.meets:
        return plan_of(request, chosen, found, ())
    refused = request.service_level.policy is Policy.REQUIRE
    return plan_of(request, chosen, found, speed_remedies(request, chosen), feasible=not refused)


def search(request: PlanRequest) -> list[Candidate]:
    """Every candidate of every pool with its verdict.

    Raises:
        PlanInputError: for inputs or pins that cannot be planned.
    """
    found: list[Candidate] = []
    for bench in benches(request):
        found.extend(judged(bench, bench.setting.pool, request.pins))
    if not found:
        raise _unreachable(request)
    return timed(found)


def benches(request: PlanRequest) -> list[Workbench]:
    """One workbench per pool whose GPU can run the checkpoint.

    Raises:
        PlanInputError: for inputs or pins that cannot be planned.
    """
    problems = settings(request)
    legality = Legality(problems[0].model, problems[0].engine, problems[0].executor)
    _check_quantization(legality, request.engine.quantization)
    check_pins(legality, request.pins, request.pools)
    tables: dict[int, WeightTable] = {}
    result = []
    for setting in _capable(problems, legality):
        table = tables.get(setting.dtype_bytes)
        if table is None:
            table = WeightTable(setting.model, setting.dtype_bytes, setting.engine)
            tables[setting.dtype_bytes] = table
        result.append(Workbench(setting, table=table, legality=legality))
    return result


def _check_quantization(legality: Legality, asked: str | None) -> None:
    found = legality.quantization_violation()
    if found is None:
        return
    if asked is not None:
        remedy = "leave it out, or use another version of the engine"
        raise PlanInputError(field="model.quantization", value=asked, limit=found, remedy=remedy)
    raise PlanInputError(
        field="model.name",
        value=legality.model.name,
        limit=f"its checkpoint is quantized, and {found}",
        remedy="use another checkpoint of the model, or another version of the engine",
    )


def _normalized(request: PlanRequest) -> PlanRequest:
    pins = request.pins
    if pins.pipeline_partition is not None and pins.pipeline is None:
        return replace(request, pins=replace(pins, pipeline=len(pins.pipeline_partition)))
    return request


def _capable(problems: Sequence[Setting], legality: Legality) -> list[Setting]:
    reasons = [legality.capability_violation(setting.pool.gpu) for setting in problems]
    usable = [s for s, reason in zip(problems, reasons, strict=True) if reason is None]
    if not usable:
        raise PlanInputError(
            field="hardware.gpu",
            value=problems[0].pool.gpu.name,
            limit=str(reasons[0]),
            remedy="use another GPU or another checkpoint",
        )
    return usable


def _unreachable(request: PlanRequest) -> PlanInputError:
    pins = request.pins
    wanted = [
        f"{name} {value}"
        for name, value in (("tensor", pins.tensor), ("pipeline", pins.pipeline), ("data", pins.data))
        if value is not None
    ]
    reach = "; ".join(f"{pool.nodes} x {pool.gpus_per_node} {pool.gpu.name}" for pool in request.pools)
    return PlanInputError(
        field="parallelism",
        value=", ".join(wanted) or None,
        limit=f"no replica of these sizes lies evenly on the nodes it may use ({reach})",
        remedy="pin fewer values, or allow more nodes",
    )


def _all_illegal(found: Sequence[Candidate]) -> PlanInputError:
    first = found[0]
    return PlanInputError(
        field="parallelism",
        value=first.layout.label(),
        limit=first.violation or "the engine refuses it",
        remedy="pin fewer values",
    )
