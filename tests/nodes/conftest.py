"""The cluster of real nodes for the tests of this folder, and the table that they leave.

One cluster serves all of them, in a network of its own that is entered by the first test and left after the
last; each test has a namespace.
"""

import inspect
import os
from collections.abc import Callable, Iterator

import pytest

from control_plane.client import Client
from engine_environment import Environment, ensure_environment
from live_engine import GPU, Live, Models, Row, engine_image, ensure_models, mounts
from live_engine.table import table
from live_ray import RayEnvironment, ensure_ray, ray_image, ray_mounts
from operator_process import OperatorAccount, apply_crd, grant_account, operator_process
from real_nodes import Image, RealCluster

NODES = ("node-a", "node-b", "node-c")
GPUS_PER_NODE = 2
MEASURE_EVERY_S = 5.0
CHECK_IMAGE = "shardwright:test"
"""By the operator's own name; all that is run in it is ``true``."""

_rows: list[Row] = []


@pytest.fixture(scope="package")
def engine() -> Environment:
    return ensure_environment()


@pytest.fixture(scope="package")
def models(engine: Environment) -> Models:
    return ensure_models(engine)


@pytest.fixture(scope="package")
def ray(request: pytest.FixtureRequest) -> RayEnvironment | None:
    """Set up for tests that ask for it; nodes must know, since their mounts are those of their start."""
    functions = (item.function for item in request.session.items if isinstance(item, pytest.Function))
    return ensure_ray() if any("ray" in inspect.signature(f).parameters for f in functions) else None


@pytest.fixture(scope="package")
def nodes(engine: Environment, models: Models, ray: RayEnvironment | None) -> Iterator[RealCluster]:
    """Three nodes with two GPUs each, so that one may be lost."""
    images, folders = [engine_image(), Image(name=CHECK_IMAGE)], mounts(engine, models)
    if ray is not None:
        images.append(ray_image())
        folders |= ray_mounts(ray)
    cluster = RealCluster(NODES, images=images, mounts=folders)
    with cluster:
        api = cluster.cluster.client()
        for node in cluster.nodes.values():
            node.give_gpus(api, GPU, GPUS_PER_NODE)
        api.close()
        yield cluster


@pytest.fixture(scope="package")
def api(nodes: RealCluster) -> Iterator[Client]:
    client = nodes.cluster.client()
    yield client
    client.close()


@pytest.fixture(scope="package")
def operator_account(nodes: RealCluster, api: Client) -> OperatorAccount:
    apply_crd(nodes.cluster, api)
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shardwright"}})
    return grant_account(nodes.cluster, api, "shardwright")


@pytest.fixture(scope="package")
def operator(nodes: RealCluster, operator_account: OperatorAccount) -> Iterator[None]:
    """The operator as a process of its own, with the chart's rights."""
    account = operator_account
    with operator_process(
        nodes.cluster,
        kubeconfig=account.kubeconfig,
        measure_interval_s=MEASURE_EVERY_S,
        check_image=CHECK_IMAGE,
        **account.lease,
    ) as running:
        yield
        assert running.process.poll() is None, running.log.read_text()[-4000:]
        running.stop()


@pytest.fixture(scope="package")
def live(api: Client, models: Models, operator: None) -> Live:
    """Makes deployments; a test that makes one removes it by ``with``."""
    return Live(api, models)


@pytest.fixture(scope="session")
def note() -> Callable[[Row], None]:
    """Add a row to the table that stands at the end of the run."""
    return _rows.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _rows:
        cores, load = os.cpu_count(), os.getloadavg()[2]
        terminalreporter.section(f"real engines, {cores} cores, load {load:.1f} over the last 15 minutes")
        for line in table(_rows):
            terminalreporter.write_line(line)
