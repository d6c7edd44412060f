"""What the watches have shown so far, as views, by ModelDeployment.

Events are triggers, not truth: they may come late, twice or in the wrong order, and a broken watch loses
some. So the newer resource version wins, an object that was seen to go does not come back by an older event,
and a periodic live LIST (``put_listed``, then ``prune``) repairs what was missed.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shardwright_operator.api.constants import KIND
from shardwright_operator.api.gang import Gang, kind_of
from shardwright_operator.observe.demand import DemandBook
from shardwright_operator.observe.gpus import GpuAccount
from shardwright_operator.observe.loaders import LoaderBook
from shardwright_operator.observe.measurement import Measurement
from shardwright_operator.observe.obituaries import ObituaryBook
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.pods import PodBook
from shardwright_operator.observe.port_blocks import PortBlockBook
from shardwright_operator.observe.priorities import PriorityBook, project_priority_class
from shardwright_operator.observe.projection import (
    project_child,
    project_claim,
    project_pod,
    project_resource,
    resource_version,
)
from shardwright_operator.observe.resources import ResourceBook
from shardwright_operator.observe.tombstones import Tombstones
from shardwright_operator.observe.views import (
    ChildKind,
    ChildView,
    ClaimView,
    Key,
    LoaderView,
    NodeView,
    PodView,
    PriorityClassView,
    ResourceView,
    WriteNote,
)

View = ResourceView | ChildView | PodView | LoaderView | NodeView | PriorityClassView

_CHILD_KINDS = frozenset(ChildKind)
_NOTHING: frozenset[Key] = frozenset()


class Store:
    """Views by key. Not thread-safe: everything runs in one event loop."""

    def __init__(
        self, *, nodes_visible: bool = True, gang_obstacles: Mapping[Gang, str] | None = None
    ) -> None:
        """``nodes_visible`` is False in one-namespace mode, which has no right to read nodes.

        ``gang_obstacles`` says of gang schedulers why they cannot be used here, in words.
        """
        self._gang_obstacles = dict(gang_obstacles or {})
        self._resources = ResourceBook()
        self._children: defaultdict[Key, dict[tuple[ChildKind, str], ChildView]] = defaultdict(dict)
        self._pods = PodBook()
        self._obituaries = ObituaryBook()
        self._port_blocks = PortBlockBook()
        self._loaders = LoaderBook()
        self._measured: dict[Key, Measurement] = {}
        self._gpus = GpuAccount(visible=nodes_visible)
        self._priorities = PriorityBook()
        self.demands = DemandBook(self._look)
        """Who waits for GPUs."""
        self.wakings = 0
        """How often those who wait for GPUs were told to look again. A pass that has just found out that it
        must wait was not among them: it compares this number with the one that it began with."""
        self._tombstones = Tombstones()

    @property
    def unedited_changes(self) -> int:
        """How often a spec was seen to change though nobody had edited it."""
        return self._resources.unedited_changes

    def keys(self) -> frozenset[Key]:
        """Keys of all ModelDeployments that exist."""
        return frozenset(self._resources.by_key)

    def resources(self) -> Iterator[ResourceView]:
        """All ModelDeployments, for the metrics."""
        return iter(self._resources.by_key.values())

    def resource(self, key: Key) -> ResourceView | None:
        """A ModelDeployment as it was last seen."""
        return self._resources.by_key.get(key)

    def observe(
        self,
        key: Key,
        *,
        claim: ClaimView | None = None,
        notes: Mapping[tuple[ChildKind, str], WriteNote] | None = None,
    ) -> Observed:
        """A snapshot of everything known about one ModelDeployment."""
        return Observed(
            key=key,
            resource=self._resources.by_key.get(key),
            children=dict(self._children.get(key, {})),
            pods=tuple(sorted(self._pods.of(key), key=lambda pod: (pod.group, pod.node_rank))),
            loaders=self._loaders.of(key),
            port_blocks=self._port_blocks.of_others(key),
            obituaries=self._obituaries.of(key),
            nodes=self._gpus.nodes(),
            claim=claim,
            measurement=self._measured.get(key),
            notes=dict(notes or {}),
            capacity=self._gpus.capacity(self.demands.demands),
            priorities=self._priorities.current,
            gang_obstacles=self._gang_obstacles,
        )

    def serving_leaders(self) -> Iterator[PodView]:
        """A serving rank 0 of each resource, that of the lowest group."""
        return self._pods.serving_leaders()

    def measured(self, key: Key, measurement: Measurement) -> bool:
        """Keep what an engine has said; whether a pass over its resource would find news in it."""
        old = self._measured.get(key)
        if key not in self._resources.by_key or (old is not None and not measurement.differs(old)):
            return False
        self._measured[key] = measurement
        return True

    def telling_loaders(self) -> Iterator[LoaderView]:
        """Pods of downloads that can be asked how far they are."""
        return self._loaders.telling()

    def loaded(self, key: Key, uid: str, bytes_there: int) -> bool:
        """Keep what a download's pod has told; whether it is news."""
        return self._loaders.has_told(key, uid, bytes_there)

    def _look(self, key: Key) -> tuple[ResourceView | None, Iterable[ChildView], Iterable[PodView]]:
        return self._resources.by_key.get(key), self._children.get(key, {}).values(), self._pods.of(key)

    def put_stranger(self, body: Mapping[str, Any], *, deleted: bool) -> frozenset[Key]:
        """Take in a pod that is not ours: only the GPUs that it holds are kept."""
        claim = None if deleted else project_claim(body)
        uid = body["metadata"].get("uid", "")
        if deleted:
            self._tombstones.bury(uid, resource_version(body))
        elif not self._tombstones.admits(uid, resource_version(body)):
            return _NOTHING
        if claim is not None:
            self._gpus.put_stranger(claim)
            return _NOTHING
        return self._wake() if self._gpus.release(uid) else _NOTHING

    def replace_strangers(self, bodies: Iterable[Mapping[str, Any]], *, version: int) -> frozenset[Key]:
        """Take in a live LIST of all pods that are not ours and hold GPUs; from then on usage is known."""
        listed: set[str] = set()
        keys: set[Key] = set()
        for body in bodies:
            listed.add(body["metadata"].get("uid", ""))
            keys |= self.put_stranger(body, deleted=False)
        if self._gpus.release_unlisted(listed, version):
            keys |= self._wake()
        if self._gpus.become_known():
            keys |= self.keys()
        return frozenset(keys)

    def put_read(self, body: Mapping[str, Any]) -> frozenset[Key]:
        """Take in an object that was just read by its name: it exists, whatever the watches said."""
        self._tombstones.admits(body["metadata"].get("uid", ""), resource_version(body), read=True)
        return self.put(body, deleted=False)

    def put(self, body: Mapping[str, Any], *, deleted: bool) -> frozenset[Key]:
        """Take in one object; return the keys whose decision it may change."""
        uid, version = body["metadata"].get("uid", ""), resource_version(body)
        if deleted:
            self._tombstones.bury(uid, version)
        elif not self._tombstones.is_new(uid, version):
            # Checked before the view is made: every write of ours comes back three times, as its answer, by
            # the watch and by a LIST, and packing a set's body is the dearest thing that a store does.
            return _NOTHING
        match kind_of(body):
            case kind if kind == KIND:
                return self._put_resource(project_resource(body), deleted=deleted)
            case "Pod":
                loading = self._loaders.put(body, deleted=deleted)
                if loading is not None:
                    return loading
                return self._put_pod(project_pod(body), deleted=deleted)
            case "Node":
                news = self._gpus.put_node(body, deleted=deleted)
                return self._concerned_by(body["metadata"]["name"]) if news else _NOTHING
            case "PriorityClass":
                return self._put_priority_class(project_priority_class(body), deleted=deleted)
            case kind if kind in _CHILD_KINDS:
                return self._put_child(project_child(body), deleted=deleted)
            case kind:
                message = f"no view is made of {kind}"
                raise ValueError(message)

    def put_listed(
        self, kind: str, bodies: Iterable[Mapping[str, Any]]
    ) -> tuple[frozenset[Key], frozenset[str]]:
        """Take in a part of a LIST; return the keys whose decision it may change, and the part's UIDs."""
        keys: set[Key] = set()
        uids: set[str] = set()
        for body in bodies:
            uids.add(body["metadata"].get("uid", ""))
            keys |= self.put(body, deleted=False)
            if kind == KIND:
                view = project_resource(body)
                if self._resources.reread(view):
                    self.demands.changed(view.key)
                    keys.add(view.key)
        return frozenset(keys), frozenset(uids)

    def prune(self, kind: str, uids: Container[str], *, version: int) -> frozenset[Key]:
        """Take for gone what a complete LIST of a kind, made at ``version``, did not have among its UIDs.

        An object that is newer than the LIST came by a watch meanwhile and stays.
        """
        keys: set[Key] = set()
        for view in list(self._views(kind)):
            if view.uid not in uids and view.resource_version <= version:
                keys |= self._remove(view, version)
        return frozenset(keys)

    def _views(self, kind: str) -> Iterator[View]:
        if kind == KIND:
            yield from self._resources.by_key.values()
        elif kind == "Pod":
            yield from self._pods.views()
            yield from self._loaders.views()
        elif kind == "Node":
            yield from self._gpus.views()
        elif kind == "PriorityClass":
            yield from self._priorities.views()
        else:
            for children in self._children.values():
                yield from (child for child in children.values() if child.kind == kind)

    def _remove(self, view: View, version: int) -> frozenset[Key]:
        self._tombstones.bury(view.uid, version, seen=view.resource_version)
        match view:
            case ResourceView():
                return self._put_resource(view, deleted=True)
            case ChildView():
                return self._put_child(view, deleted=True)
            case LoaderView():
                return self._loaders.remove(view)
            case PodView():
                return self._put_pod(view, deleted=True)
            case NodeView():
                self._gpus.remove_node(view.name)
                return self._concerned_by(view.name)
            case PriorityClassView():
                return self._put_priority_class(view, deleted=True)

    def has_buried(self, uid: str) -> bool:
        """Whether an object with this UID was one of ours, and was seen to go."""
        return uid in self._tombstones

    def _put_resource(self, view: ResourceView, *, deleted: bool) -> frozenset[Key]:
        old = self._resources.by_key.get(view.key)
        self.demands.changed(view.key)
        if deleted:
            if old is None or old.uid == view.uid:
                self._resources.forget(view.key)
                self._obituaries.forget(view.key)
                self._measured.pop(view.key, None)
        elif (old is not None and not self._tombstones.succeeds(view, old)) or not self._resources.put(view):
            return _NOTHING
        return frozenset({view.key}) | self._moving_up(view.key)

    def _put_child(self, view: ChildView | None, *, deleted: bool) -> frozenset[Key]:
        if view is None:
            return _NOTHING
        children = self._children[view.key]
        self.demands.changed(view.key)
        place = (view.kind, view.name)
        old = children.get(place)
        if deleted:
            if old is not None and old.uid == view.uid:
                del children[place]
                self._port_blocks.changed(view.key, children.values())
                self._forget_empty(view.key)
            return frozenset({view.key}) | self._moving_up(view.key)
        if old is not None and not self._tombstones.succeeds(view, old):
            return _NOTHING
        children[place] = view
        self._port_blocks.changed(view.key, children.values())
        if old is None or old.uid != view.uid:
            return frozenset({view.key})
        if replace(view, resource_version=0) == replace(old, resource_version=0):
            return _NOTHING
        return frozenset({view.key}) | self._moving_up(view.key)

    def _put_priority_class(self, view: PriorityClassView, *, deleted: bool) -> frozenset[Key]:
        """Return those that are not Ready: they may wait for the class itself, or have another turn now."""
        if not self._priorities.put(view, deleted=deleted):
            return _NOTHING
        return frozenset(self._resources.unready)

    def _put_pod(self, view: PodView | None, *, deleted: bool) -> frozenset[Key]:
        if view is None:
            return _NOTHING
        old = self._pods.named(view.key, view.name)
        self.demands.changed(view.key)
        if deleted:
            released = self._gpus.release(view.uid)
            self._obituaries.mourn(view)
            self._pods.remove(view)
            self._forget_empty(view.key)
            return frozenset({view.key}) | (self._wake() if released else _NOTHING)
        if old is not None and not self._tombstones.succeeds(view, old):
            return _NOTHING
        if old is not None and old.uid != view.uid:
            self._obituaries.mourn(old)
            self._gpus.release(old.uid)
        self._pods.put(view)
        self._gpus.put_member(view)
        if old is not None and replace(view, resource_version=0) == replace(old, resource_version=0):
            return _NOTHING
        return frozenset({view.key})

    def waits(self, key: Key) -> bool:
        """Whether the resource has groups that are held back until there are GPUs."""
        return key in self.demands.waiting()

    def _wake(self) -> frozenset[Key]:
        self.wakings += 1
        return self.demands.waiting()

    def _moving_up(self, key: Key) -> frozenset[Key]:
        """Keys that wait for GPUs, when a resource before them may have come to want fewer."""
        return self._wake() if self.demands.has_eased(key) else _NOTHING

    def _concerned_by(self, node: str) -> frozenset[Key]:
        """Keys with a pod on the node, and those that are not Ready and may wait for such a one."""
        return self._pods.owners_on(node) | self._resources.unready

    def _forget_empty(self, key: Key) -> None:
        if not self._children.get(key):
            self._children.pop(key, None)
        if key not in self._resources.by_key and key not in self._children and key not in self._pods:
            self._obituaries.forget(key)
