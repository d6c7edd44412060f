"""Pods of downloads, by ModelDeployment. They are kept apart from the members of groups.

They take no part in forming one, and hold no GPU.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from shardwright_operator.observe.projection import project_loader
from shardwright_operator.observe.views import Key, LoaderView

_NOTHING: frozenset[Key] = frozenset()


class LoaderBook:
    """The last sight of each pod of a download."""

    def __init__(self) -> None:
        self._loaders: defaultdict[Key, dict[str, LoaderView]] = defaultdict(dict)

    def of(self, key: Key) -> tuple[LoaderView, ...]:
        """Those of one resource, the oldest first."""
        return tuple(sorted(self._loaders.get(key, {}).values(), key=lambda pod: (pod.created_at, pod.name)))

    def views(self) -> Iterator[LoaderView]:
        """All of them."""
        for loaders in self._loaders.values():
            yield from loaders.values()

    def put(self, body: Mapping[str, Any], *, deleted: bool) -> frozenset[Key] | None:
        """Take in a pod; the keys that it concerns, or None when it is of no download."""
        view = project_loader(body)
        if view is None:
            return None
        if deleted:
            return self.remove(view)
        old = self._loaders[view.key].get(view.uid)
        self._loaders[view.key][view.uid] = view
        if old is not None and replace(old, resource_version=view.resource_version) == view:
            return _NOTHING
        return frozenset({view.key})

    def remove(self, view: LoaderView) -> frozenset[Key]:
        """Forget a pod that is gone."""
        loaders = self._loaders.get(view.key, {})
        loaders.pop(view.uid, None)
        if not loaders:
            self._loaders.pop(view.key, None)
        return frozenset({view.key})
