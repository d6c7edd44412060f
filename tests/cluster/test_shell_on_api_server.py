"""The operator's shell on a real API server, with decisions that are played.

What only a real server shows: whose fields a server-side apply holds, what a status write removes, what a UID
precondition refuses, and that watches, lists and the Lease do what the shell expects of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from control_plane.client import Client
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from operator_process import MDEP, crd
from shardwright_operator.api.constants import API_VERSION, KIND, MANAGED_BY_VALUE, Label
from shardwright_operator.api.served_schema import cut_fields
from shardwright_operator.cluster import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from shardwright_operator.cluster.api import ApiCluster
from shardwright_operator.cluster.connection import connect
from shardwright_operator.cluster.transport import Transport
from shardwright_operator.decide.decision import Apply, Decision, Event, EventType
from shardwright_operator.decide.drift import needed_write
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.views import ChildKind
from shardwright_operator.settings import Settings
from threaded_operator import ThreadedOperator

__all__ = ["crd"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crd")]


def resource(namespace: str, name: str = "llama", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"model": {"name": "meta-llama/Llama-3.1-8B"}, **spec},
    }


def service(owner: dict[str, Any], name: str = "llama", port: int = 8000) -> dict[str, Any]:
    metadata = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": metadata["namespace"],
            "name": name,
            "labels": {Label.MANAGED_BY: MANAGED_BY_VALUE, Label.DEPLOYMENT: metadata["name"]},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"selector": {"a": "b"}, "ports": [{"name": "http", "port": port}]},
    }


def on_cluster(cluster: Cluster, test: Callable[[ApiCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        connected = ApiCluster(Transport(await connect(str(cluster.kubeconfig)), user_agent="test"))
        try:
            await test(connected)
        finally:
            await connected.close()

    asyncio.run(main())


def test_requests_and_their_errors(cluster: Cluster, api: Client, namespace: str) -> None:
    made = api.create(resource(namespace))

    async def test(server: ApiCluster) -> None:
        manifest = service(made)
        assert (await server.server_version()).startswith("v1.")
        assert KIND in await server.served_kinds("shardwright.dev", "v1alpha1")
        assert await server.served_kinds("shardwright.dev", "v9") == frozenset()
        address = await server.schema_address("shardwright.dev", "v1alpha1")
        assert cut_fields(await server.schema(address, "shardwright.dev", "v1alpha1", KIND)) == []
        assert await server.schema(address, "shardwright.dev", "v1alpha1", "Other") == {}
        assert await server.schema_address("shardwright.dev", "v9") == ""
        assert await server.find("Service", namespace, "llama") is None
        with pytest.raises(NotFoundError):
            await server.get("PersistentVolumeClaim", namespace, "missing")

        first = await server.apply(manifest, force=False)
        again = await server.apply(manifest, force=True)
        assert first["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
        with pytest.raises(ConflictError):
            await server.apply(service(made, port=8001), force=True, uid="of-an-earlier-one")
        with pytest.raises(ConflictError):
            await server.apply(service(made, name="gone"), force=True, uid="of-one-that-is-gone")
        assert await server.find("Service", namespace, "gone") is None
        with pytest.raises(InvalidError, match="port"):
            await server.apply(service(made, port=99999999), force=True)
        with pytest.raises(AlreadyExistsError):
            await server.create(manifest)

        found = await server.find("Service", namespace, "llama")
        assert found is not None
        assert found["metadata"]["uid"] == first["metadata"]["uid"]
        (listed,) = [page async for page in server.list("Service", namespace)]
        assert [item["kind"] for item in listed.items] == ["Service"]
        assert listed.version >= int(first["metadata"]["resourceVersion"])

        with pytest.raises(ConflictError):
            await server.delete("Service", namespace, "llama", uid="00000000-0000-0000-0000-000000000000")
        await server.delete("Service", namespace, "llama", uid=first["metadata"]["uid"])
        with pytest.raises(NotFoundError):
            await server.delete("Service", namespace, "llama", uid=first["metadata"]["uid"])

    on_cluster(cluster, test)


def test_unforced_apply_does_not_take_a_foreign_object(cluster: Cluster, api: Client, namespace: str) -> None:
    made = api.create(resource(namespace))
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": "llama"},
        "spec": {"ports": [{"name": "http", "port": 1}], "selector": {"app": "mine"}},
    }
    api.create(foreign)

    async def test(server: ApiCluster) -> None:
        with pytest.raises(ConflictError):
            await server.apply(service(made), force=False)

    on_cluster(cluster, test)


def test_status_is_replaced_whole_and_only_on_the_object_with_the_uid(
    cluster: Cluster, api: Client, namespace: str
) -> None:
    made = api.create(resource(namespace))
    uid = made["metadata"]["uid"]

    async def test(server: ApiCluster) -> None:
        async def put(status: dict[str, Any], uid: str = uid) -> dict[str, Any]:
            answer = await server.replace_status(KIND, namespace, "llama", uid, status)
            return dict(answer["status"])

        full = {"observedGeneration": 1, "replicas": 1, "selector": "a=b"}
        assert await put(full) == full
        assert await put({"observedGeneration": 1}) == {"observedGeneration": 1}
        with pytest.raises(InvalidError):
            await put(full, uid="00000000-0000-0000-0000-000000000000")
        with pytest.raises(InvalidError, match="replicas"):
            await put({"observedGeneration": 1, "replicas": "many"})
        with pytest.raises(NotFoundError):
            await server.replace_status(KIND, namespace, "missing", uid, full)

    on_cluster(cluster, test)
    live = api.get(MDEP, "llama", namespace)
    managers = {(f["manager"], f.get("subresource")) for f in live["metadata"]["managedFields"]}
    assert ("shardwright-status", "status") in managers


def played(observed: Observed, now: datetime) -> Decision:
    """One Service per resource, a status, and an event when the Service is made."""
    found = observed.resource
    if found is None or found.deleting:
        return Decision()
    owner = {"metadata": {"namespace": found.key.namespace, "name": found.key.name, "uid": found.uid}}
    manifest = service(owner, found.key.name)
    place = (ChildKind.SERVICE, found.key.name)
    write: Apply | None = needed_write(manifest, observed.children.get(place), observed.notes.get(place), now)
    refused = observed.notes.get(place)
    status: dict[str, Any] = {"observedGeneration": found.generation}
    if refused is not None and refused.refused:
        status["conditions"] = [
            {
                "type": "Stalled",
                "status": "True",
                "observedGeneration": found.generation,
                "lastTransitionTime": "2020-01-01T00:00:00Z",
                "reason": "NameConflict" if refused.foreign else "WriteRefused",
                "message": refused.refused[:100],
            }
        ]
    event = Event(type=EventType.NORMAL, reason="Planned", message="a Service is made")
    return Decision(
        stages=((write,),) if write else (),
        status=status if status != dict(found.status) else None,
        events=(event,) if write and write.why == "it does not exist" else (),
    )


def settings(cluster: Cluster, namespace: str, **more: Any) -> Settings:
    return Settings(
        kubeconfig=str(cluster.kubeconfig),
        lease_namespace=namespace,
        health_host="127.0.0.1",
        health_port=0,
        metrics_port=0,
        **more,
    )


def test_whole_shell_creates_repairs_and_reports(cluster: Cluster, api: Client, namespace: str) -> None:
    api.create(resource(namespace, "before"))
    with ThreadedOperator(settings(cluster, namespace), played) as running:
        wait_for(lambda: api.find("services", "before", namespace), "what was there is served")
        api.create(resource(namespace, "after"))
        made = wait_for(lambda: api.find("services", "after", namespace), "what comes is served")
        assert made["metadata"]["ownerReferences"][0]["controller"] is True
        wait_for(
            lambda: api.get(MDEP, "after", namespace).get("status", {}).get("observedGeneration") == 1,
            "the status is written",
        )
        api.delete("services", "after", namespace)
        wait_for(
            lambda: (
                (api.find("services", "after", namespace) or made)["metadata"]["uid"]
                != made["metadata"]["uid"]
            ),
            "a lost child is made again",
        )
        api.patch("services", "before", {"spec": {"selector": {"a": "x"}}}, namespace)
        wait_for(
            lambda: api.get("services", "before", namespace)["spec"]["selector"]["a"] == "b",
            "drift is repaired",
        )
        # The Service has the same name, and the API server tells of its address now and then.
        about = f"involvedObject.kind={KIND},involvedObject.name=after"
        events = api.list("events", namespace, fields=about)
        assert {event["reason"] for event in events} == {"Planned"}
        assert running.operator.health is not None
        lease = api.get("leases.coordination.k8s.io", "shardwright-operator", namespace)
        assert lease["spec"]["holderIdentity"]
    assert running.exit_code == 0
    lease = api.get("leases.coordination.k8s.io", "shardwright-operator", namespace)
    assert not lease["spec"].get("holderIdentity")
    user_objects = [api.get(MDEP, name, namespace)["metadata"] for name in ("before", "after")]
    assert [m.get("annotations") for m in user_objects] == [None, None]
    assert [m.get("finalizers") for m in user_objects] == [None, None]


def test_foreign_object_under_the_name_is_reported_and_left_alone(
    cluster: Cluster, api: Client, namespace: str
) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": "taken"},
        "spec": {"ports": [{"name": "http", "port": 1}], "selector": {"app": "mine"}},
    }
    api.create(foreign)
    with ThreadedOperator(settings(cluster, namespace), played):
        api.create(resource(namespace, "taken"))

        def reason() -> str:
            status = api.get(MDEP, "taken", namespace).get("status", {})
            return next((c["reason"] for c in status.get("conditions", ()) if c["type"] == "Stalled"), "")

        wait_for(lambda: reason() == "NameConflict", "the conflict is reported")
    live = api.get("services", "taken", namespace)
    assert live["spec"]["selector"] == {"app": "mine"}
    assert "ownerReferences" not in live["metadata"]


def test_standby_takes_over_when_the_leader_stops(cluster: Cluster, api: Client, namespace: str) -> None:
    first = ThreadedOperator(settings(cluster, namespace, lease_retry_s=0.3, identity="one"), played)
    second = ThreadedOperator(
        settings(cluster, namespace, lease_retry_s=0.3, identity="two"), played, wait_ready=False
    )
    with first, second:
        first.stop()
        second.wait_ready()
        api.create(resource(namespace, "later"))
        wait_for(lambda: api.find("services", "later", namespace), "the second one serves")


def test_one_namespace_mode_serves_it_alone(
    cluster: Cluster, api: Client, make_namespace: Callable[..., str]
) -> None:
    mine, other = make_namespace(), make_namespace()
    with ThreadedOperator(settings(cluster, mine, namespaces=(mine,)), played):
        api.create(resource(other, "unseen"))
        api.create(resource(mine, "seen"))
        wait_for(lambda: api.find("services", "seen", mine), "its own namespace is served")
        assert api.find("services", "unseen", other) is None
