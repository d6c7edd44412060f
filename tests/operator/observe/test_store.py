"""The store under events that come late, twice, in the wrong order, or not at all."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shardwright_operator.api.constants import API_VERSION, GROUP, KIND, Label
from shardwright_operator.decide.drift import difference
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import ChildKind, Key

KEY = Key("models", "llama")


def body(kind: str, name: str, uid: str, version: int, **parts: Any) -> dict[str, Any]:
    labels = {Label.DEPLOYMENT: KEY.name, Label.GROUP_INDEX: "0", Label.ROLE: "worker"}
    return {
        "apiVersion": API_VERSION if kind == KIND else "v1",
        "kind": kind,
        "metadata": {
            "namespace": KEY.namespace,
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": labels,
        },
        **parts,
    }


def pod(uid: str, version: int, phase: str = "Running", name: str = "llama-0-worker-1") -> dict[str, Any]:
    return body("Pod", name, uid, version, status={"phase": phase})


def relisted(store: Store, kind: str, bodies: Sequence[Mapping[str, Any]], *, version: int) -> frozenset[Key]:
    """A live LIST of a kind in one page."""
    keys, uids = store.put_listed(kind, bodies)
    return keys | store.prune(kind, uids, version=version)


def test_the_newer_version_wins_and_an_older_one_wakes_nobody() -> None:
    store = Store()
    assert store.put(pod("a", 5), deleted=False) == {KEY}
    assert store.put(pod("a", 4, "Pending"), deleted=False) == frozenset()
    assert [p.phase for p in store.observe(KEY).pods] == ["Running"]


def test_an_event_that_changes_nothing_of_interest_wakes_nobody() -> None:
    store = Store()
    store.put(pod("a", 5), deleted=False)
    assert store.put(pod("a", 6), deleted=False) == frozenset()


def test_what_was_seen_to_go_does_not_come_back_by_a_late_answer() -> None:
    store = Store()
    store.put(pod("a", 5), deleted=False)
    store.put(pod("a", 7), deleted=True)
    assert store.put(pod("a", 6), deleted=False) == frozenset()
    assert store.observe(KEY).pods == ()


@pytest.mark.parametrize(
    ("version", "by_event", "by_read"),
    [
        pytest.param(6, False, False, id="older than its end"),
        pytest.param(7, False, True, id="of its end: to the watch it went, but it is there"),
        pytest.param(8, True, True, id="newer"),
    ],
)
def test_what_left_the_watch_and_lives_on_comes_back(version: int, by_event: bool, by_read: bool) -> None:
    for read, back in ((False, by_event), (True, by_read)):
        store = Store()
        store.put(pod("a", 5), deleted=False)
        store.put(pod("a", 7), deleted=True)
        if read:
            store.put_read(pod("a", version))
        else:
            store.put(pod("a", version), deleted=False)
        assert [p.uid for p in store.observe(KEY).pods] == (["a"] if back else [])


def test_what_a_list_lacked_comes_back_when_it_is_read() -> None:
    store = Store()
    store.put(pod("a", 5), deleted=False)
    relisted(store, "Pod", [], version=9)
    store.put(pod("a", 6), deleted=False)
    assert store.observe(KEY).pods == ()
    store.put_read(pod("a", 6))
    assert [p.uid for p in store.observe(KEY).pods] == ["a"]


def test_a_pod_that_goes_leaves_its_last_sight() -> None:
    store = Store()
    store.put(body(KIND, KEY.name, "r", 1, spec={}), deleted=False)
    store.put(pod("a", 5), deleted=False)
    store.put(pod("a", 7, "Failed"), deleted=True)
    assert store.observe(KEY).obituaries["a"].phase == "Failed"


def test_a_successor_under_the_same_name_mourns_the_one_whose_end_was_missed() -> None:
    store = Store()
    store.put(pod("a", 5), deleted=False)
    store.put(pod("b", 9), deleted=False)
    observed = store.observe(KEY)
    assert [p.uid for p in observed.pods] == ["b"]
    assert set(observed.obituaries) == {"a"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(KIND, "llama", id="resource"),
        pytest.param("Service", "llama", id="child"),
        pytest.param("Pod", "llama-0-worker-1", id="pod"),
    ],
)
def test_a_late_answer_about_a_former_object_does_not_replace_its_successor(kind: str, name: str) -> None:
    # Made anew while the watches were cut: only the LIST told of it, and nothing of the former one's end.
    store = Store()
    store.put(body(kind, name, "former", 5), deleted=False)
    relisted(store, kind, [body(kind, name, "present", 9)], version=9)
    store.put(body(kind, name, "former", 7), deleted=False)
    store.put(body(kind, name, "former", 8), deleted=True)
    seen = store.observe(KEY)
    stand = (*filter(None, [seen.resource]), *seen.children.values(), *seen.pods)
    assert [found.uid for found in stand] == ["present"]


def test_the_late_end_of_a_former_node_is_not_that_of_its_successor() -> None:
    store = Store()
    status = {"allocatable": {"nvidia.com/gpu": "8"}}
    store.put(body("Node", "n", "former", 5, status=status), deleted=False)
    store.put(body("Node", "n", "present", 9, status=status), deleted=False)
    store.put(body("Node", "n", "former", 8), deleted=True)
    nodes = store.observe(KEY).nodes
    assert nodes is not None
    assert [node.uid for node in nodes] == ["present"]


def test_a_list_removes_what_it_lacks_unless_that_is_newer() -> None:
    store = Store()
    store.put(pod("old", 5, name="llama-0-worker-1"), deleted=False)
    store.put(pod("new", 12, name="llama-0-worker-2"), deleted=False)
    assert relisted(store, "Pod", [], version=10) == {KEY}
    assert [p.uid for p in store.observe(KEY).pods] == ["new"]


def test_a_wiped_status_wakes_the_resource_and_our_own_write_does_not() -> None:
    store = Store()
    store.put(body(KIND, KEY.name, "r", 5, spec={}, status={"replicas": 1}), deleted=False)
    assert store.put(body(KIND, KEY.name, "r", 5, spec={}, status={"replicas": 1}), deleted=False) == set()
    assert store.put(body(KIND, KEY.name, "r", 6, spec={}, status={}), deleted=False) == {KEY}


def test_a_list_tells_of_a_field_that_another_crd_cuts_under_the_same_version() -> None:
    store = Store()
    store.put(body(KIND, KEY.name, "a", 5, spec={"replicas": 1, "omen": "good"}), deleted=False)
    cut = body(KIND, KEY.name, "a", 5, spec={"replicas": 1})
    assert relisted(store, KIND, [cut], version=5) == {KEY}
    assert relisted(store, KIND, [cut], version=5) == frozenset()
    resource = store.observe(KEY).resource
    assert resource is not None
    assert resource.spec == {"replicas": 1}


def test_the_copies_that_the_set_controller_keeps_are_not_children() -> None:
    revision = body("ControllerRevision", "llama-0-worker-abc", "c", 5, data={})
    revision["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "uid": "s", "controller": True}]
    store = Store()
    assert store.put(revision, deleted=False) == frozenset()
    assert (ChildKind.REVISION, "llama-0-worker-abc") not in store.observe(KEY).children


@pytest.mark.parametrize(
    ("api_version", "is_child"),
    [
        pytest.param(API_VERSION, True, id="ours"),
        pytest.param(f"{GROUP}/v9", True, id="ours, in another version"),
        pytest.param("models.example.com/v1", False, id="another group's kind of the same name"),
    ],
)
def test_only_what_a_resource_of_ours_controls_is_a_child(api_version: str, *, is_child: bool) -> None:
    service = body("Service", "llama", "s", 5, spec={})
    owner = {"apiVersion": api_version, "kind": KIND, "name": KEY.name, "uid": "gone", "controller": True}
    service["metadata"]["ownerReferences"] = [owner]
    store = Store()
    store.put(service, deleted=False)
    assert ((ChildKind.SERVICE, "llama") in store.observe(KEY).children) is is_child


@pytest.mark.parametrize(
    ("desired", "live", "words"),
    [
        pytest.param({"a": 1}, {"a": 1, "b": 2}, None, id="fields of others are no drift"),
        pytest.param({"a": {}}, {}, None, id="what the server drops for being empty is no drift"),
        pytest.param({"a": "x"}, {"a": "y"}, 'a: wanted "x", found "y"', id="a scalar"),
        pytest.param(
            {"ports": [{"name": "http", "port": 1}]},
            {"ports": [{"name": "other", "port": 9}, {"name": "http", "port": 2}]},
            "ports[http].port: wanted 1, found 2",
            id="an item of a keyed list is found by its key",
        ),
        pytest.param(
            {"args": ["a", "b"]}, {"args": ["a"]}, "args: wanted 2 items, found 1", id="a plain list"
        ),
        pytest.param(
            {"c": {"env": [{"name": "TOKEN", "value": "secret"}]}},
            {"c": {"env": [{"name": "TOKEN", "value": "other"}]}},
            "c.env[TOKEN].value: wanted another value",
            id="a variable's value is never repeated",
        ),
    ],
)
def test_drift_in_words(desired: Any, live: Any, words: str | None) -> None:
    assert difference(desired, live) == words


def placed(uid: str, version: int, node: str, name: str = "llama-0-worker-1") -> dict[str, Any]:
    return {**pod(uid, version, name=name), "spec": {"nodeName": node}}


def gpu_node(name: str, version: int, *, cordoned: bool = False) -> dict[str, Any]:
    node = body("Node", name, name, version, status={"allocatable": {"nvidia.com/gpu": "8"}})
    return {**node, "spec": {"unschedulable": cordoned}}


def resource(version: int, ready: str) -> dict[str, Any]:
    return body(
        KIND, KEY.name, "mine", version, spec={}, status={"conditions": [{"type": "Ready", "status": ready}]}
    )


def test_news_of_a_node_wakes_those_with_a_pod_on_it() -> None:
    store = Store()
    store.put(placed("a", 5, "n1"), deleted=False)
    assert store.put(gpu_node("n1", 6), deleted=False) == {KEY}
    assert store.put(gpu_node("n2", 7), deleted=False) == frozenset()


def test_news_of_a_node_wakes_nobody_whose_pod_has_left_it() -> None:
    store = Store()
    store.put(placed("a", 5, "n1"), deleted=False)
    store.put(placed("b", 6, "n2"), deleted=False)
    assert store.put(gpu_node("n1", 7), deleted=False) == frozenset()
    store.put(placed("b", 8, "n2"), deleted=True)
    assert store.put(gpu_node("n2", 9), deleted=False) == frozenset()


def test_news_of_a_node_wakes_those_with_another_pod_left_on_it() -> None:
    store = Store()
    store.put(placed("a", 5, "n1", "llama-0-worker-1"), deleted=False)
    store.put(placed("b", 6, "n1", "llama-0-worker-2"), deleted=False)
    store.put(placed("a", 7, "n1", "llama-0-worker-1"), deleted=True)
    assert store.put(gpu_node("n1", 8), deleted=False) == {KEY}


def test_news_of_a_node_wakes_those_that_are_not_ready_and_no_others() -> None:
    store = Store()
    store.put(resource(5, "False"), deleted=False)
    assert store.put(gpu_node("n1", 6), deleted=False) == {KEY}
    store.put(resource(7, "True"), deleted=False)
    assert store.put(gpu_node("n1", 8, cordoned=True), deleted=False) == frozenset()
    store.put(resource(9, "False"), deleted=False)
    store.put(resource(9, "False"), deleted=True)
    assert store.put(gpu_node("n1", 10), deleted=False) == frozenset()
