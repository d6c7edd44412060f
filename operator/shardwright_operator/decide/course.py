"""What a resource asks for, what of it may be had, and what is stored of it: where a pass begins."""

from dataclasses import dataclass
from datetime import datetime

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.lifecycle_spec import RecoverySpec, RolloutSpec
from shardwright_operator.api.pod_spec import NetworkSpec, SchedulingSpec
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec, parse_spec
from shardwright_operator.build.owner import Owner
from shardwright_operator.decide.admission import Admission
from shardwright_operator.decide.history import History, read_history
from shardwright_operator.decide.target import DecideSettings, Target, choose_target, invalid_target
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import ResourceView


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The parts of the spec that hold also while the rest of it is refused.

    Of a spec that cannot be read only the number of groups is taken. Nothing is rolled out meanwhile, and the
    policies stay as they are: a typo elsewhere must not open an API that ``network.clients`` had closed.
    """

    groups: int
    rollout: RolloutSpec
    recovery: RecoverySpec
    network: NetworkSpec | None
    scheduling: SchedulingSpec | None

    @classmethod
    def of(cls, spec: ModelDeploymentSpec | None, resource: ResourceView) -> "Wishes":
        """Read from a spec, or from what can be read of it."""
        if spec is not None:
            return cls(
                groups=spec.replicas,
                rollout=spec.rollout,
                recovery=spec.recovery,
                network=spec.network,
                scheduling=spec.scheduling,
            )
        replicas = resource.spec.get("replicas", 1)
        return cls(
            groups=replicas if isinstance(replicas, int) and replicas >= 0 else 1,
            rollout=RolloutSpec(paused=True),
            recovery=RecoverySpec(),
            network=None,
            scheduling=None,
        )

    @property
    def most_groups(self) -> int:
        """Groups that there may be at a time."""
        return self.groups + self.rollout.surge_groups

    def admission(self, observed: Observed, now: datetime) -> Admission:
        """A queue for GPUs in which nobody has been let in yet."""
        return Admission(observed, now, self.scheduling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The resource's wish, its history, and what should run."""

    resource: ResourceView
    owner: Owner
    spec: ModelDeploymentSpec | None
    """None when it cannot be read."""
    wishes: Wishes
    history: History
    target: Target

    @property
    def has_started(self) -> bool:
        """Whether a group was made from the target's pods."""
        return self.target.revision is not None and self.history.has_started(self.target.revision)


def find_course(observed: Observed, resource: ResourceView, settings: DecideSettings) -> Course:
    """The course of one resource as it stands."""
    owner = resource.owner
    history = read_history(observed, resource.uid)
    revisions = tuple(history.readable.values())
    spec: ModelDeploymentSpec | None = None
    try:
        spec = parse_spec(resource.spec)
    except SpecError as error:
        target = invalid_target(revisions, error)
    else:
        serving = any(pod.node_rank == 0 and pod.ready for pod in observed.pods)
        target = choose_target(observed, spec, owner, revisions, serving=serving, settings=settings)
    wishes = Wishes.of(spec, resource)
    return Course(resource=resource, owner=owner, spec=spec, wishes=wishes, history=history, target=target)
