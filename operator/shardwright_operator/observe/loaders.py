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
        if old is not None:
            view = replace(view, bytes_there=old.bytes_there)
        self._loaders[view.key][view.uid] = view
        if old is not None and replace(old, resource_version=view.resource_version) == view:
            return _NOTHING
        return frozenset({view.key})

    def telling(self) -> Iterator[LoaderView]:
        """Those that can be asked how far they are."""
        return (v for v in self.views() if v.phase == "Running" and v.address and v.progress_port)

    def has_told(self, key: Key, uid: str, bytes_there: int) -> bool:
        """Keep what one of them has told; whether it is news."""
        old = self._loaders.get(key, {}).get(uid)
        if old is None or old.bytes_there == bytes_there:
            return False
        self._loaders[key][uid] = replace(old, bytes_there=bytes_there)
        return True

    def remove(self, view: LoaderView) -> frozenset[Key]:
        """Forget a pod that is gone."""
        loaders = self._loaders.get(view.key, {})
        loaders.pop(view.uid, None)
        if not loaders:
            self._loaders.pop(view.key, None)
        return frozenset({view.key})
