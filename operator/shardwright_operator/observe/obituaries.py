"""Last sights of pods that are gone: a StatefulSet deletes a failed pod before a later LIST can see it."""

from collections import OrderedDict
from collections.abc import Mapping

from shardwright_operator.observe.views import Key, PodView

KEPT_PER_KEY = 64


class ObituaryBook:
    """The last sights of each resource's pods, by UID; the oldest are forgotten."""

    def __init__(self) -> None:
        self._by_key: dict[Key, OrderedDict[str, PodView]] = {}

    def mourn(self, pod: PodView) -> None:
        """Keep a pod's last sight, in the place of an earlier one."""
        obituaries = self._by_key.setdefault(pod.key, OrderedDict())
        obituaries[pod.uid] = pod
        while len(obituaries) > KEPT_PER_KEY:
            obituaries.popitem(last=False)

    def of(self, key: Key) -> Mapping[str, PodView]:
        """Those of one resource's pods."""
        return dict(self._by_key.get(key, {}))

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._by_key.pop(key, None)
