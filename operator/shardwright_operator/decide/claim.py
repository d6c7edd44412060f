"""The PersistentVolumeClaim with the model: is it there, and can all pods mount it?

Before a plan is accepted the answer decides about the spec. Later it holds back the groups that would start:
a claim may be deleted and made anew with other access modes, and more replicas may ask for it. Groups that
run keep what they have mounted, since Kubernetes lets no claim go that a pod uses.
"""

from collections.abc import Iterable

from shardwright_operator.api.constants import GroupPhase, Reason
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.observe.views import ClaimState, ClaimView
from shardwright_operator.status.group import GroupState
from shardwright_operator.status.report import Problem
from shardwright_planner import Plan

POLL_S = 15.0
"""A claim is not watched: one that cannot be used is looked at again after this time."""

_MODES_OF_A_CACHE = frozenset({"ReadWriteMany"})
"""A cache must be written to before it is read."""
_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})


def claim_problem(spec: ModelDeploymentSpec, plan: Plan, claim: ClaimView | None) -> Problem | None:
    """Why no pod can start with the claim that the spec names, or None."""
    if claim is None:
        return None
    cached = spec.storage.model_cache is not None
    field = "spec.storage.modelCache" if cached else "spec.model.source.persistentVolumeClaim"
    if claim.state is ClaimState.MISSING:
        text = f"the claim {claim.name!r} of {field} does not exist"
        return Problem(reason=Reason.WAITING_FOR_VOLUME, message=text, stalled=False)
    pods = plan.nodes * max(1, spec.replicas)
    usable = _MODES_OF_A_CACHE if cached else _MODES
    if pods == 1 or usable & set(claim.access_modes):
        return None
    error = SpecError(
        field=f"{field}.claimName",
        value=claim.name,
        limit=f"its access modes are {', '.join(claim.access_modes)} and {pods} pods on {pods} nodes need it",
        remedy=f"use a claim with {' or '.join(sorted(usable))}",
    )
    return Problem(reason=Reason.VOLUME_NOT_SHARED, message=str(error), stalled=True)


def held_back(problem: Problem | None, groups: Iterable[GroupState]) -> tuple[Problem, ...]:
    """The problem, when a group waits because of it: to those that run it is none."""
    if problem is None:
        return ()
    waits = any(g.phase is GroupPhase.PENDING and g.reason is problem.reason for g in groups)
    return (problem,) if waits else ()
