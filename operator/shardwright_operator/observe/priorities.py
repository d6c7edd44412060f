"""Priorities of pods, by the PriorityClasses of a cluster: whose pods the scheduler takes first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwright_operator.observe.views import PriorityClassView

DEFAULT_PRIORITY = 0
"""Of a pod without a class where no class is the default (Kubernetes, "Pod Priority and Preemption")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priorities:
    """Values by class."""

    values: Mapping[str, int] = field(default_factory=dict)
    default: int = DEFAULT_PRIORITY
    """Of pods that name no class."""

    def of(self, name: str | None) -> int:
        """The priority of pods with this class; a class that is not there counts as none."""
        return self.default if name is None else self.values.get(name, self.default)

    def lacks(self, name: str | None) -> bool:
        """Whether there is no such class. Every cluster has two of its own: who sees none knows nothing."""
        return name is not None and bool(self.values) and name not in self.values


class PriorityBook:
    """PriorityClasses as the watches show them."""

    def __init__(self) -> None:
        self._classes: dict[str, PriorityClassView] = {}
        self.current = Priorities()

    def views(self) -> tuple[PriorityClassView, ...]:
        """All classes."""
        return tuple(self._classes.values())

    def put(self, view: PriorityClassView, *, deleted: bool) -> bool:
        """Take in a class; whether that changes any priority."""
        old = self._classes.get(view.name)
        if deleted:
            if old is None or old.uid != view.uid:
                return False
            del self._classes[view.name]
        else:
            if old is not None and old.resource_version >= view.resource_version:
                return False
            self._classes[view.name] = view
        before, self.current = self.current, self._priorities()
        return before != self.current

    def _priorities(self) -> Priorities:
        defaults = [view.value for view in self._classes.values() if view.is_default]
        return Priorities(
            values={name: view.value for name, view in sorted(self._classes.items())},
            # Of several the API server takes the lowest (its admission plugin Priority).
            default=min(defaults, default=DEFAULT_PRIORITY),
        )


def project_priority_class(body: Mapping[str, Any]) -> PriorityClassView:
    """View of a PriorityClass."""
    metadata, value = body["metadata"], body.get("value")
    version = str(metadata.get("resourceVersion", ""))
    return PriorityClassView(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resource_version=int(version) if version.isdecimal() else 0,
        value=value if isinstance(value, int) else DEFAULT_PRIORITY,
        is_default=bool(body.get("globalDefault")),
    )
