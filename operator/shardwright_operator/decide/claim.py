"""The PersistentVolumeClaim with the model: is it there, and can all pods mount it?

Before a plan is accepted the answer decides about the spec. Later it holds back the groups that would start:
a claim may be deleted and made anew with other access modes, and more replicas may ask for it. Groups that
run keep what they have mounted, since Kubernetes lets no claim go that a pod uses.
"""

import re
from collections.abc import Iterable

from shardwright_operator.api.constants import GroupPhase, Reason
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.observe.views import UNBOUND, ClaimState, ClaimView
from shardwright_operator.status.group import GroupState
from shardwright_operator.status.report import Problem
from shardwright_planner import Plan

POLL_S = 15.0
"""A claim is not watched: one that cannot be used is looked at again after this time."""

_VOLUME = re.compile(r"persistentvolumeclaim|volume", re.IGNORECASE)
_MODES_OF_A_CACHE = frozenset({"ReadWriteMany"})
"""A cache must be written to before it is read."""
_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})


def claim_problem(spec: ModelDeploymentSpec, plan: Plan, claim: ClaimView | None) -> Problem | None:
    """Why no pod can start with the claim that the spec names, or None."""
    if claim is None:
        return None
    cached = spec.storage.model_cache is not None
    field = "spec.storage.modelCache" if cached else "spec.model.source.persistentVolumeClaim"
    usable = _MODES_OF_A_CACHE if cached else _MODES
    modes = " or ".join(sorted(usable))
    if claim.state is ClaimState.MISSING:
        text = (
            f"the PersistentVolumeClaim {claim.name!r} of {field} does not exist; create it in this "
            f"namespace, with access mode {modes}"
        )
        return Problem(reason=Reason.WAITING_FOR_VOLUME, message=text, stalled=False)
    pods = plan.nodes * max(1, spec.replicas)
    if pods == 1 or usable & set(claim.access_modes):
        return None
    error = SpecError(
        field=f"{field}.claimName",
        value=claim.name,
        limit=f"its access modes are {', '.join(claim.access_modes)} and {pods} pods on {pods} nodes need it",
        remedy=f"use a claim with {modes}",
    )
    return Problem(reason=Reason.VOLUME_NOT_SHARED, message=str(error), stalled=True)


def names_volume(unschedulable: str) -> bool:
    """Whether the scheduler speaks of claims: missing, unbound, or bound to another zone."""
    return _VOLUME.search(unschedulable) is not None


def claim_words(claim: ClaimView | None) -> str:
    """Which claim the pods mount and what to do about it, for pods that find no node because of a volume.

    The scheduler names neither the claim nor its class: "pod has unbound immediate PersistentVolumeClaims".
    """
    if claim is None or claim.state is ClaimState.MISSING:
        return ""
    named = f"PersistentVolumeClaim {claim.name!r}"
    kind = f"StorageClass {claim.storage_class!r}" if claim.storage_class else "no StorageClass"
    look = f"kubectl describe pvc {claim.name}"
    if claim.phase != UNBOUND:
        state = claim.phase or "there"
        return f"{named} ({kind}) is {state}; its volume must be within reach of nodes with free GPUs: {look}"
    if claim.storage_class:
        remedy = "see that the class exists and can make a volume, or create a PersistentVolume for it"
    else:
        remedy = "create a PersistentVolume for it, or a claim that names a StorageClass"
    return f"{named} ({kind}) is not bound to a volume; {remedy}: {look} has the reason"


def held_back(problem: Problem | None, groups: Iterable[GroupState]) -> tuple[Problem, ...]:
    """The problem, when a group waits because of it: to those that run it is none."""
    if problem is None:
        return ()
    waits = any(g.phase is GroupPhase.PENDING and g.reason is problem.reason for g in groups)
    return (problem,) if waits else ()
