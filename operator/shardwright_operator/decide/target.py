"""Which revision should run: the pinned one, an earlier one, or a new one with a new plan.

A plan is pinned in its revision. It is made anew only when the spec's planning inputs change, or when the
GPUs it was made for are no longer there and nothing runs on them; not because the operator was upgraded, or a
node came or went. Pod templates are likewise taken over from the standing revision unless something in the
spec that alters pods has changed: a new operator version may render them differently, and must not restart
anybody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from shardwright_operator.api.constants import Reason
from shardwright_operator.api.engine_image import DEFAULT_IMAGE, engine_image
from shardwright_operator.api.errors import SpecError, from_planner
from shardwright_operator.api.extra_args import switched_on
from shardwright_operator.api.plan_request import WITHOUT_WINDOWS, node_rdma, plan_request
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.command import EVERY_ADDRESS
from shardwright_operator.build.digest import digest
from shardwright_operator.build.gang_wish import GangWish
from shardwright_operator.build.owner import Owner
from shardwright_operator.build.ports import block_of, free_block
from shardwright_operator.build.revision import Revision, named
from shardwright_operator.build.template import (
    USER_ID,
    pod_inputs_hash,
    render_download,
    render_templates,
)
from shardwright_operator.decide.claim import claim_problem
from shardwright_operator.decide.supply import Shortage, supply
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.pools import selection_of
from shardwright_operator.status.report import PlanVerdict, Problem
from shardwright_planner import Plan, PlanInputError, PlanRequest, find_gpu, input_hash, plan


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideSettings:
    """What the operator's own configuration contributes to decisions."""

    operator_version: str
    """Recorded in revisions; never a reason to change anything."""
    default_image: str = DEFAULT_IMAGE
    api_host: str = EVERY_ADDRESS
    """Address that engines listen on."""
    user_id: int | None = USER_ID
    """User and group of the engines; None leaves both to the cluster."""
    check_image: str = ""
    """Image of the pod that shows whether Secrets and ConfigMaps are there; empty: nobody looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What should run, whether the spec was accepted, and what to store first."""

    revision: Revision | None
    """What groups should run: the accepted spec's revision, or the last accepted one."""
    verdict: PlanVerdict
    is_new: bool = False
    """Whether the revision must be written: it is new, or an earlier one that comes back."""


def choose_target(
    observed: Observed,
    spec: ModelDeploymentSpec,
    owner: Owner,
    revisions: Sequence[Revision],
    *,
    serving: bool,
    settings: DecideSettings,
) -> Target:
    """The target of an acceptable or unacceptable spec.

    ``revisions`` are the stored ones. ``serving`` says whether any group serves now: while one does, its plan
    can evidently run, whatever the nodes' labels say.
    """
    stored = sorted(revisions, key=lambda r: r.number, reverse=True)
    latest = stored[0] if stored else None
    default_image = latest.default_image if latest is not None else settings.default_image
    try:
        wish = plan_request(spec, (), default_image=default_image)
        inputs = _plan_inputs(spec, wish)
        pinned = next((r for r in stored if r.plan_inputs == inputs), None)
        if pinned is None and not wish.engine.keeps_windows:
            pinned = _planned_with_windows(spec, wish, stored)
            inputs = inputs if pinned is None else pinned.plan_inputs
        if pinned is not None and (serving or _can_run(pinned, spec, observed)):
            chosen = pinned.plan
        else:
            offer = supply(spec, observed.nodes)
            if isinstance(offer, Shortage):
                return _waiting(latest, offer) if pinned is None else _keep(pinned, latest)
            chosen = memoised_plan(replace(wish, pools=offer))
        if not chosen.feasible:
            return _refused(latest, chosen)
        if pinned is None and (problem := claim_problem(spec, chosen, observed.claim)):
            return _unaccepted(latest, problem, chosen)
        draft = _Draft(chosen, inputs, replace(settings, default_image=default_image))
        revision = _revision(observed, spec, owner, stored, draft)
    except PlanInputError as error:
        return _invalid(latest, from_planner(error))
    except SpecError as error:
        return _invalid(latest, error)
    return _keep(revision, latest)


def invalid_target(revisions: Sequence[Revision], error: SpecError) -> Target:
    """The target while the spec cannot even be read: whatever was accepted last keeps running."""
    return _invalid(max(revisions, key=lambda r: r.number, default=None), error)


@lru_cache(maxsize=256)
def memoised_plan(request: PlanRequest) -> Plan:
    """The planner's answer; a spec that waits or does not fit is asked for again in every pass."""
    return plan(request)


def _plan_inputs(spec: ModelDeploymentSpec, wish: PlanRequest) -> str:
    """Hash of what the spec asks of the planner. The operator's default image is no part of it.

    A network with or without RDMA makes another plan: other predictions, and other warnings.
    """
    if spec.engine.image is None and spec.engine.version is None:
        wish = replace(wish, engine=replace(wish.engine, version=""))
    rdma = node_rdma(spec)
    network = [spec.network.node_bandwidth_gbps, *(() if rdma is None else (rdma,))]
    return digest([input_hash(wish), spec.hardware.to_wire(), *network])


def _planned_with_windows(
    spec: ModelDeploymentSpec, wish: PlanRequest, stored: Sequence[Revision]
) -> Revision | None:
    """The revision of these inputs by an operator that planned with windows whatever the arguments said.

    Its pods have the argument, so that nobody has edited that since: its groups must not start anew for a
    newer operator's better account.
    """
    inputs = _plan_inputs(spec, replace(wish, engine=replace(wish.engine, keeps_windows=True)))
    return next(
        (
            revision
            for revision in stored
            if revision.plan_inputs == inputs and switched_on(_arguments(revision), WITHOUT_WINDOWS)
        ),
        None,
    )


def _arguments(revision: Revision) -> list[str]:
    containers = revision.leader_template.get("spec", {}).get("containers") or ()
    return [argument for container in containers for argument in container.get("args") or ()]


def _can_run(revision: Revision, spec: ModelDeploymentSpec, observed: Observed) -> bool:
    """Whether the GPUs of a pinned plan are still declared, or carried by any node at all."""
    if spec.hardware.gpu is not None or observed.nodes is None:
        return True
    terms = revision.pool.terms
    return any(node.labels.get(t.key) in t.values for node in observed.nodes for t in terms)


class _Draft(NamedTuple):
    """What a revision is to say, before it is known whether one says it already."""

    chosen: Plan
    inputs: str
    settings: DecideSettings


def _revision(
    observed: Observed, spec: ModelDeploymentSpec, owner: Owner, stored: Sequence[Revision], draft: _Draft
) -> Revision:
    """The stored revision that says exactly this, or a new one."""
    chosen, inputs, settings = draft
    raw: Mapping[str, Any] = observed.resource.spec if observed.resource else {}
    pods = pod_inputs_hash(raw, chosen)
    number = stored[0].number if stored else 0
    same = next(
        (r for r in stored if r.plan_inputs == inputs and r.pod_inputs == pods and r.plan == chosen), None
    )
    if same is not None:
        return same if same.number == number else replace(same, number=number + 1)
    rendered = next((r for r in stored if r.pod_inputs == pods), None)
    if rendered is not None:
        return named(replace(rendered, number=number + 1, plan=chosen, plan_inputs=inputs), owner)
    pool = selection_of(find_gpu(chosen.gpu))
    image, user_id = settings.default_image, settings.user_id
    leader, worker = render_templates(
        spec,
        chosen,
        pool,
        owner,
        default_image=image,
        user_id=user_id,
        api_host=settings.api_host,
        port_block=_port_block(observed, spec, owner, stored),
    )
    return named(
        Revision(
            number=number + 1,
            plan=chosen,
            pool=pool,
            image=engine_image(spec.engine, image),
            default_image=image,
            engine_version=chosen.engine_version,
            planner_version=chosen.planner_version,
            operator_version=settings.operator_version,
            plan_inputs=inputs,
            pod_inputs=pods,
            members=chosen.nodes,
            leader_template=leader,
            worker_template=worker,
            download=render_download(spec, owner, default_image=image, user_id=user_id),
            gang=GangWish.of(spec.scheduling),
        ),
        owner,
    )


def _port_block(
    observed: Observed, spec: ModelDeploymentSpec, owner: Owner, stored: Sequence[Revision]
) -> int:
    """The resource's block of ports on the nodes' network; without that any number will do."""
    if not spec.network.host_network:
        return 0
    blocks = (block_of(revision.leader_template) for revision in stored)
    kept = next((block for block in blocks if block is not None), None)
    return free_block(owner, kept=kept, taken=observed.port_blocks)


def _keep(revision: Revision, latest: Revision | None) -> Target:
    verdict = PlanVerdict(
        accepted=True, reason=Reason.PLANNED, message=revision.plan.reason, plan=revision.plan
    )
    return Target(revision=revision, verdict=verdict, is_new=revision != latest)


def _refused(latest: Revision | None, chosen: Plan) -> Target:
    fits = not any(stage.missing_bytes for stage in chosen.stages)
    reason = Reason.SLO_MISSED if fits and chosen.slo_predicted is False else Reason.DOES_NOT_FIT
    message = " ".join([f"{chosen.reason.rstrip('.')}.", *_would_help(chosen)])
    return _unaccepted(latest, Problem(reason=reason, message=message, stalled=True), chosen)


def _would_help(chosen: Plan) -> list[str]:
    remedies = [remedy.rstrip(".") for remedy in chosen.remedies]
    return [f"What would help: {'; '.join(remedies)}."] if remedies else []


def _invalid(latest: Revision | None, error: SpecError) -> Target:
    return _unaccepted(latest, Problem(reason=error.reason, message=str(error), stalled=True), None)


def _waiting(latest: Revision | None, shortage: Shortage) -> Target:
    return _unaccepted(
        latest, Problem(reason=shortage.reason, message=shortage.message, stalled=shortage.stalled), None
    )


def _unaccepted(latest: Revision | None, problem: Problem, chosen: Plan | None) -> Target:
    shown = latest.plan if latest is not None else chosen
    verdict = PlanVerdict(
        accepted=False, reason=problem.reason, message=problem.message, plan=shown, problem=problem
    )
    return Target(revision=latest, verdict=verdict)
