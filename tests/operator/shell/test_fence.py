"""An operator that may have lost its Lease sends no write, whatever pass it is in the middle of.

One that is stopped (SIGSTOP) in the place of a group's start, while another starts that group, loses it and
takes it down, would on waking start it beside its old pods.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import yaml
from aiohttp import web

from shardwright_operator.cluster import Manifest, UnavailableError
from shardwright_operator.cluster.api import ApiCluster
from shardwright_operator.cluster.connection import POOL_SIZE, connect
from shardwright_operator.cluster.transport import Transport

SET: Manifest = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"namespace": "a", "name": "b"}}
LEASE: Manifest = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"namespace": "a", "name": "b"},
}


class Server:
    """Takes everything, and remembers how it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.takes_s = 0.0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        await asyncio.sleep(self.takes_s)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})


@pytest.fixture
async def server(tmp_path) -> AsyncIterator[tuple[Server, str]]:
    found = Server()
    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", found.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubeconfig = tmp_path / "kubeconfig"
    config = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "users": [{"name": "it", "user": {"token": "secret"}}],
    }
    kubeconfig.write_text(yaml.safe_dump(config))
    yield found, str(kubeconfig)
    await runner.cleanup()


async def test_without_a_certain_lease_only_reads_and_the_lease_itself_are_sent(server) -> None:
    found, kubeconfig = server
    cluster = ApiCluster(Transport(await connect(kubeconfig), user_agent="test", write_time_s=lambda: 0.0))
    try:
        for write in (
            cluster.apply(SET, force=True),
            cluster.delete("Pod", "a", "b", uid="c"),
            cluster.replace_status("ModelDeployment", "a", "b", "c", {}),
            cluster.create(SET),
            cluster.overwrite({**SET, "spec": {}}),
        ):
            with pytest.raises(UnavailableError, match="another operator may lead"):
                await write
        assert [page.items async for page in cluster.list("Pod", "a")] == [()]
        await cluster.replace(LEASE)
    finally:
        await cluster.close()
    assert found.asked == [
        "GET /api/v1/namespaces/a/pods",
        "PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/b",
    ]


async def test_a_write_under_way_is_given_up_when_another_operator_may_lead(server) -> None:
    """It may still wait for one of the pool's connections, and would be sent when that comes."""
    found, kubeconfig = server
    found.takes_s = 2.0
    cluster = ApiCluster(Transport(await connect(kubeconfig), user_agent="test", write_time_s=lambda: 0.1))
    try:
        began = asyncio.get_running_loop().time()
        with pytest.raises(UnavailableError, match=r"TimeoutError$"):
            await cluster.apply(SET, force=True)
        assert asyncio.get_running_loop().time() - began < found.takes_s
        await cluster.replace(LEASE)
    finally:
        await cluster.close()


async def test_the_lease_is_renewed_while_writes_hold_every_connection(server) -> None:
    found, kubeconfig = server
    found.takes_s = 1.0
    cluster = ApiCluster(Transport(await connect(kubeconfig), user_agent="test"))
    loop = asyncio.get_running_loop()
    try:
        began = loop.time()
        writes = [asyncio.create_task(cluster.apply(SET, force=True)) for _ in range(3 * POOL_SIZE)]
        await asyncio.sleep(0.1)
        await cluster.replace(LEASE)
        assert loop.time() - began < 2 * found.takes_s
        assert not all(write.done() for write in writes)
        await asyncio.gather(*writes)
    finally:
        await cluster.close()
