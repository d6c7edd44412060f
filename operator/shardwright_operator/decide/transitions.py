"""Events for what changed between two statuses: each turn of a condition, and each group that came up."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardwright_operator.api.constants import ConditionType, GroupPhase, Reason
from shardwright_operator.decide.decision import Event, EventType
from shardwright_operator.observe.conditions import condition_of, holds

_BAD = {
    (ConditionType.STALLED, "True"),
    (ConditionType.PLAN_ACCEPTED, "False"),
    (ConditionType.SLO_PREDICTED, "False"),
    (ConditionType.PLAN_VERIFIED, "False"),
    (ConditionType.FIELDS_OVERRIDDEN, "True"),
}
_TOLD = (
    ConditionType.PLAN_ACCEPTED,
    ConditionType.SLO_PREDICTED,
    ConditionType.STALLED,
    ConditionType.READY,
    ConditionType.PLAN_VERIFIED,
    ConditionType.FIELDS_OVERRIDDEN,
)
_QUIET = frozenset({Reason.CHECKING_REFERENCES, Reason.STARTING, Reason.FORMING, Reason.SCALING_DOWN})
"""Reasons of Ready=False that every start passes through: they stand in the status, and are no news."""
_ON_ITS_WAY = frozenset(
    {
        Reason.BACKING_OFF,
        Reason.DOWNLOADING,
        Reason.DRAINING,
        Reason.NO_GPU_NODES,
        Reason.PAUSED,
        Reason.PREEMPTED,
        Reason.ROLLING_OUT,
        Reason.WAITING_FOR_CAPACITY,
        Reason.WAITING_FOR_VOLUME,
    }
)
"""Reasons of Ready=False that somebody asked for, or that pass by themselves. Any other one needs somebody: a
refused write and an image that cannot be pulled were Normal, and so missed by who looks at warnings alone."""


def transition_events(
    old: Mapping[str, Any], new: Mapping[str, Any], *, told: Sequence[Event] = ()
) -> Iterator[Event]:
    """An Event for each condition whose status or reason has changed, less what was told already.

    A plan that is expected to meet its service level is one piece of news, not two.
    """
    turned = (condition_of(new, t) for t in _TOLD if _state(new, t) != _state(old, t))
    news = [condition for condition in turned if condition]
    messages: set[str] = set()
    reasons = {event.reason for event in told}
    for now in _joined(news):
        type_, is_ready = now["type"], now["type"] == ConditionType.READY
        if is_ready and now["status"] != "True" and now["reason"] in _QUIET:
            continue
        if now["message"] in messages or (is_ready and now["reason"] in reasons):
            continue
        messages.add(now["message"])
        bad = (type_, now["status"]) in _BAD or (
            is_ready and now["status"] != "True" and now["reason"] not in _ON_ITS_WAY
        )
        yield Event(
            type=EventType.WARNING if bad else EventType.NORMAL, reason=now["reason"], message=now["message"]
        )


def chat_refused(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    """An Event when an engine turns out to have no chat template: it serves, and refuses every chat."""
    before, now = (status.get("measured") or {} for status in (old, new))
    if now.get("chatTemplate") is False and before.get("chatTemplate") is not False:
        text = (
            "the engine refuses chat requests: the model's tokenizer has no chat template; if it is to chat, "
            "put one into a ConfigMap and name it in spec.model.chatTemplateRef"
        )
        yield Event(type=EventType.WARNING, reason=str(Reason.NO_CHAT_TEMPLATE), message=text)


def _joined(news: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The news; that a plan is accepted and expected to meet its service level is one and not two."""
    turns = {(condition["type"], condition["status"]): condition for condition in news}
    planned = turns.get((ConditionType.PLAN_ACCEPTED, "True"))
    met = turns.get((ConditionType.SLO_PREDICTED, "True"))
    if planned is None or met is None:
        return news
    expected = f"the service level is {met['message'][:1].lower()}{met['message'][1:]}"
    whole = {**planned, "message": f"{planned['message'].rstrip('.')}; {expected}"}
    return [whole if condition is planned else condition for condition in news if condition is not met]


def arrivals(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    """An Event for each group that serves now and did not, unless Ready is about to tell of the last one."""
    if holds(new, ConditionType.READY):
        return
    served = {
        group.get("index") for group in old.get("groups") or () if group.get("phase") == GroupPhase.READY
    }
    for group in new.get("groups") or ():
        if group["phase"] == GroupPhase.READY and group["index"] not in served:
            text = f"group {group['index']}: {group['message']}"
            yield Event(type=EventType.NORMAL, reason=str(Reason.GROUP_READY), message=text)


def _state(status: Mapping[str, Any], type_: ConditionType) -> tuple[object, object]:
    condition = condition_of(status, type_)
    return condition.get("status"), condition.get("reason")
