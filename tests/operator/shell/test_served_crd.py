"""The operator does nothing while the cluster serves another CRD than its own."""

import copy
from typing import Any

from shardwright_operator.api.crd import root_schema
from shardwright_operator.cluster.kinds import kind_named
from shardwright_operator.decide.decision import Decision
from shardwright_operator.intake import Intake
from shardwright_operator.observe.views import Key
from shardwright_operator.preflight import find_obstacles
from shardwright_operator.served_crd import SETTLE_S, ServedCrd

KEY = Key("models", "llama")
CUT = (
    "the CRD in this cluster is not this operator's: it cuts spec.network.clients; nothing is changed "
    "meanwhile: install the CRD (kubectl apply --server-side -f crds/, or the chart with crds.enabled=true)"
)


def serve_older(world) -> None:
    """The CRD of a release that did not know ``network.clients``."""
    older = copy.deepcopy(root_schema())
    del older["properties"]["spec"]["properties"]["network"]["properties"]["clients"]
    world.cluster.schemas["/openapi/older"] = older
    world.cluster.schema_at = "/openapi/older"


def serve_own(world) -> None:
    world.cluster.schema_at = "/openapi/ours"


async def test_start_waits_and_names_the_field_that_is_cut(world) -> None:
    serve_older(world)
    assert await find_obstacles(world.cluster, ServedCrd(world.cluster)) == [CUT]


async def test_start_waits_while_no_schema_is_published(world) -> None:
    world.cluster.schema_at = ""
    (obstacle,) = await find_obstacles(world.cluster, ServedCrd(world.cluster))
    assert "publishes no schema" in obstacle


async def test_a_status_that_is_cut_is_no_obstacle(world) -> None:
    older = copy.deepcopy(root_schema())
    del older["properties"]["status"]["properties"]["measured"]
    world.cluster.schemas["/openapi/older"] = older
    world.cluster.schema_at = "/openapi/older"
    assert await find_obstacles(world.cluster, ServedCrd(world.cluster)) == []


async def test_a_crd_that_is_replaced_under_way_stops_every_pass(world) -> None:
    world.make_resource()
    world.decide = lambda _observed: Decision(status={"observedGeneration": 1})
    await world.reconciler.reconcile(KEY)
    calls, passes = len(world.cluster.calls), len(world.observed)
    serve_older(world)
    world.advance(3)
    assert await world.reconciler.reconcile(KEY) == SETTLE_S
    assert (len(world.cluster.calls), len(world.observed)) == (calls, passes)
    assert world.served.known == [CUT]


async def test_what_was_read_meanwhile_is_read_anew_before_anything_is_decided(world) -> None:
    """An edit of anything under the older CRD carries a newer generation than what was known."""
    body = world.make_resource(network={"clients": []})
    guard(world)
    serve_older(world)
    await world.reconciler.reconcile(KEY)
    deliver(world, body, generation=2, spec={})
    serve_own(world)
    world.advance(3)
    await world.reconciler.reconcile(KEY)
    assert [seen.resource.spec for seen in world.observed] == [{"network": {"clients": []}}]


async def test_a_spec_that_is_cut_before_the_schema_is_published_waits_for_that(world) -> None:
    """The API server cuts at once, and publishes the schema a second or two later."""
    body = world.make_resource(network={"clients": []})
    guard(world)
    await world.reconciler.reconcile(KEY)
    deliver(world, body, generation=1, spec={})
    assert await world.reconciler.reconcile(KEY) == SETTLE_S
    serve_older(world)
    world.advance(6)
    assert await world.reconciler.reconcile(KEY) == SETTLE_S
    assert world.served.known == [CUT]
    assert [seen.resource.spec for seen in world.observed] == [{"network": {"clients": []}}]


async def test_a_default_that_a_newer_crd_adds_is_taken_up_after_a_moment(world) -> None:
    body = world.make_resource(network={"clients": []})
    guard(world)
    await world.reconciler.reconcile(KEY)
    deliver(world, body, generation=1, spec={"network": {"clients": [], "omen": "good"}})
    await world.reconciler.reconcile(KEY)
    world.advance(6)
    await world.reconciler.reconcile(KEY)
    assert [len(seen.resource.spec["network"]) for seen in world.observed] == [1, 2]


def guard(world) -> None:
    kinds = (kind_named("ModelDeployment"),)
    intake = Intake(
        cluster=world.cluster,
        store=world.store,
        enqueue=lambda _key: None,
        enqueue_patient=lambda _key: None,
        kinds=kinds,
        namespaces=(),
    )
    world.served.guard(reread=intake.reread, unedited_changes=lambda: world.store.unedited_changes)


def deliver(world, body: dict[str, Any], *, generation: int, spec: dict[str, Any]) -> None:
    """A watch event of the object as an API server hands it out under another CRD; it is stored whole."""
    version = str(int(body["metadata"]["resourceVersion"]) + 1)
    metadata = {**body["metadata"], "resourceVersion": version, "generation": generation}
    world.store.put({**body, "metadata": metadata, "spec": spec}, deleted=False)
    world.cluster.objects["ModelDeployment", *KEY]["metadata"].update(metadata)
