"""What stands in a cluster about one resource, read once with the user's own rights.

The operator keeps such a picture up to date by watches; here it is put together by LISTs, through the same
store, so that the same views come out.
"""

import asyncio
import contextlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from shardwright_operator.api.constants import KIND
from shardwright_operator.api.fields import OBJECT_NAME_PATTERN
from shardwright_operator.apply.claims import ClaimReader
from shardwright_operator.cli.console import InputError
from shardwright_operator.cluster import ClusterError, ForbiddenError, NotFoundError
from shardwright_operator.cluster.api import ApiCluster
from shardwright_operator.cluster.connection import NoClusterError, connect
from shardwright_operator.cluster.transport import Transport
from shardwright_operator.observe.observed import Observed
from shardwright_operator.observe.store import Store
from shardwright_operator.observe.views import ChildKind, Key
from shardwright_operator.served_crd import NOT_SERVED
from shardwright_operator.strangers import StrangerWatch


def read_resource(kubeconfig: str | None, namespace: str | None, name: str) -> Mapping[str, Any]:
    """One ModelDeployment as it stands.

    Raises:
        InputError: for one that is not there, and for a cluster that cannot be asked.
    """
    _check_place(namespace, name)
    try:
        return asyncio.run(_read_resource(kubeconfig, namespace, name))
    except NoClusterError as error:
        raise InputError(str(error)) from None
    except ClusterError as error:
        raise InputError(_said(error)) from None


def observe(kubeconfig: str | None, namespace: str | None, name: str) -> Observed:
    """What stands of a resource; one that is not there has an empty picture.

    Raises:
        InputError: for a cluster that cannot be reached, or does not let the user look.
    """
    _check_place(namespace, name)
    try:
        return asyncio.run(_observe(kubeconfig, namespace, name))
    except NoClusterError as error:
        message = f"{error}; or compare with a file: --against FILE."
        raise InputError(message) from None
    except ClusterError as error:
        raise InputError(_said(error)) from None


def _check_place(namespace: str | None, name: str) -> None:
    """Refuse what cannot be a name: in a path ``../x`` is another object, and no name a whole list."""
    for what, value in ((f"name of a {KIND}", name), ("namespace", namespace)):
        if value is not None and re.fullmatch(OBJECT_NAME_PATTERN, value) is None:
            message = f"{value!r} is no {what}: it has lower-case letters, digits, - and . alone."
            raise InputError(message)


def _said(error: ClusterError) -> str:
    # Of an object that is missing the API server says the reason NotFound; for a path that it does not serve
    # it has the bare text "404 page not found". Every kind but ours is built in.
    return NOT_SERVED if isinstance(error, NotFoundError) and not error.reason else error.for_people


async def _read_resource(kubeconfig: str | None, namespace: str | None, name: str) -> Mapping[str, Any]:
    connection = await connect(kubeconfig)
    cluster = ApiCluster(Transport(connection, user_agent="shardwright-explain"))
    namespace = namespace or connection.namespace
    try:
        return await cluster.get(KIND, namespace, name)
    except NotFoundError as error:
        if not error.reason:
            raise
        message = f"there is no {KIND} {name!r} in namespace {namespace!r}; give another one with -n."
        raise InputError(message) from None
    finally:
        await cluster.close()


async def _observe(kubeconfig: str | None, namespace: str | None, name: str) -> Observed:
    connection = await connect(kubeconfig)
    cluster = ApiCluster(Transport(connection, user_agent="shardwright-diff"))
    key = Key(namespace=namespace or connection.namespace, name=name)
    try:
        store = await _filled(cluster, key, kubeconfig)
        reader = ClaimReader(cluster, lambda: datetime.now(UTC))
        claim = await reader.of(store.resource(key))
    finally:
        await cluster.close()
    return store.observe(key, claim=claim)


async def _filled(cluster: ApiCluster, key: Key, kubeconfig: str | None) -> Store:
    nodes = None
    with contextlib.suppress(ForbiddenError):
        # A user of one namespace may not look: the hardware must be in the spec, as for such an operator.
        nodes = [page async for page in cluster.list("Node", None)]
    store = Store(nodes_visible=nodes is not None)
    found = await cluster.find(KIND, key.namespace, key.name)
    if found is not None:
        store.put(found, deleted=False)
    for kind in (ChildKind.REVISION, ChildKind.STATEFUL_SET, "Pod"):
        async for page in cluster.list(str(kind), key.namespace):
            store.put_listed(str(kind), page.items)
    if nodes is not None:
        for page in nodes:
            store.put_listed("Node", page.items)
        await _with_strangers(store, kubeconfig)
    return store


async def _with_strangers(store: Store, kubeconfig: str | None) -> None:
    def one(body: Mapping[str, Any], gone: bool) -> None:
        store.put_stranger(body, deleted=gone)

    def all_of_them(bodies: Iterable[Mapping[str, Any]], version: int) -> None:
        store.replace_strangers(bodies, version=version)

    await StrangerWatch(kubeconfig, one, all_of_them).sync()
