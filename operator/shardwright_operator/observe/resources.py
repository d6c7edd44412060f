"""The ModelDeployments as they were last seen, and whether their specs change by nobody's edit."""

from dataclasses import replace

from shardwright_operator.observe.views import Key, ResourceView


class ResourceBook:
    """Views by key; which of two sights is the newer one, the store has judged."""

    def __init__(self) -> None:
        self.by_key: dict[Key, ResourceView] = {}
        self.unready: set[Key] = set()
        """Those that are not Ready by their last status."""
        self.unedited_changes = 0
        """How often a spec read otherwise than before though nobody had edited it, by its generation. The CRD
        has changed then: it cuts fields off as an object is read, or gives them back."""

    def put(self, view: ResourceView) -> bool:
        """Take in a newer sight; whether it says anything new."""
        old = self.by_key.get(view.key)
        self._keep(view, old)
        return old is None or replace(view, resource_version=0) != replace(old, resource_version=0)

    def reread(self, view: ResourceView) -> bool:
        """Take in other content under a known version, if it is that: of a changed CRD no watch tells."""
        old = self.by_key.get(view.key)
        if old is None or old.uid != view.uid or old.resource_version != view.resource_version or old == view:
            return False
        self._keep(view, old)
        return True

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self.by_key.pop(key, None)
        self.unready.discard(key)

    def _keep(self, view: ResourceView, old: ResourceView | None) -> None:
        if old is not None and (old.uid, old.generation) == (view.uid, view.generation):
            self.unedited_changes += old.spec != view.spec
        self.by_key[view.key] = view
        if view.is_ready:
            self.unready.discard(view.key)
        else:
            self.unready.add(view.key)
