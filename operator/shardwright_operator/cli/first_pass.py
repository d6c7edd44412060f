"""The operator's first pass over a resource that nobody has applied yet: what it would write, all at once."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shardwright_operator.decide import DecideSettings, decide
from shardwright_operator.decide.decision import Apply, Decision
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import Key, ResourceView

UID = "00000000-0000-0000-0000-000000000000"
"""Stands for the UID that the API server will give the resource."""
NEVER = datetime.fromtimestamp(0, UTC)
"""Stands for the time of the first start, so that the same spec gives the same output."""


def new_resource(key: Key, spec: Mapping[str, Any]) -> ResourceView:
    """The resource as it would be seen first."""
    return ResourceView(
        key=key, uid=UID, generation=1, resource_version=1, deleting=False, spec=spec, status={}
    )


def first_pass(observed: Observed, settings: DecideSettings) -> Decision:
    """The decision about a resource of which nothing stands."""
    return decide(observed, NEVER, settings)


def applied(decision: Decision) -> list[Apply]:
    """What a decision applies, in its order."""
    return [write for stage in decision.stages for write in stage if isinstance(write, Apply)]
