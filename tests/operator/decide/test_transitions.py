"""Which news are warnings: what needs somebody is, what was asked for or passes by itself is not."""

import pytest

from shardwright_operator.api.constants import Reason
from shardwright_operator.decide.transitions import transition_events


@pytest.mark.parametrize(
    ("reason", "type_"),
    [
        pytest.param(Reason.WRITE_REFUSED, "Warning", id="a quota"),
        pytest.param(Reason.NAME_CONFLICT, "Warning", id="a name that is taken"),
        pytest.param(Reason.IMAGE_PULL, "Warning", id="an image that is not there"),
        pytest.param(Reason.SECRET_MISSING, "Warning", id="a Secret that is not there"),
        pytest.param(Reason.VOLUME_NOT_SHARED, "Warning", id="a volume for one node"),
        pytest.param(Reason.GROUP_DEGRADED, "Warning", id="a rank that is not ready any more"),
        pytest.param(Reason.WAITING_FOR_CAPACITY, "Normal", id="waiting for its turn"),
        pytest.param(Reason.BACKING_OFF, "Normal", id="waiting for its next start"),
        pytest.param(Reason.ROLLING_OUT, "Normal", id="a new spec"),
        pytest.param(Reason.DRAINING, "Normal", id="a cordoned node"),
        pytest.param(Reason.PAUSED, "Normal", id="a pause"),
    ],
)
def test_a_resource_that_is_not_ready_warns_when_somebody_is_needed(reason: Reason, type_: str) -> None:
    condition = {"type": "Ready", "status": "False", "reason": str(reason), "message": "it says why"}
    told = transition_events({}, {"conditions": [condition]})
    assert [(event.type, event.reason) for event in told] == [(type_, reason)]


@pytest.mark.parametrize("reason", [Reason.CHECKING_REFERENCES, Reason.FORMING])
def test_what_every_start_passes_through_is_no_event(reason: Reason) -> None:
    # "Warning CheckingReferences" stood in the Events of each model that names a Secret, with nothing to do.
    condition = {"type": "Ready", "status": "False", "reason": str(reason), "message": "it says why"}
    assert list(transition_events({}, {"conditions": [condition]})) == []


@pytest.mark.parametrize("reason", [Reason.GROUPS_READY, Reason.SCALED_TO_ZERO])
def test_a_resource_that_is_ready_warns_of_nothing(reason: Reason) -> None:
    condition = {"type": "Ready", "status": "True", "reason": str(reason), "message": "it serves"}
    assert [event.type for event in transition_events({}, {"conditions": [condition]})] == ["Normal"]


def test_a_plan_that_meets_its_service_level_is_told_in_one_sentence() -> None:
    # "...: nothing is split; Predicted to be met at 32 ...": a capital, and not a word of what is met.
    conditions = [
        {"type": "PlanAccepted", "status": "True", "reason": "Planned", "message": "One GPU holds the model"},
        {
            "type": "SLOPredicted",
            "status": "True",
            "reason": "SLOMet",
            "message": "Predicted to be met at 32",
        },
    ]
    told = transition_events({}, {"conditions": conditions})
    assert [(event.reason, event.message) for event in told] == [
        ("Planned", "One GPU holds the model; the service level is predicted to be met at 32")
    ]
