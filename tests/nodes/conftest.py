"""The cluster of real nodes for the tests of this folder, and the table that they leave.

One cluster serves all of them, in a network of its own that is entered by the first test and left after the
last; each test has a namespace.
"""

from collections.abc import Callable, Iterator

import pytest

from control_plane.client import Client
from engine_environment import Environment, ensure_environment
from live_engine import GPU, Live, Models, engine_image, ensure_models, mounts
from operator_process import OperatorAccount, apply_crd, grant_account, operator_process
from real_nodes import RealCluster

NODES = ("node-a", "node-b", "node-c")
GPUS_PER_NODE = 2

_rows: list[str] = []


@pytest.fixture(scope="package")
def engine() -> Environment:
    return ensure_environment()


@pytest.fixture(scope="package")
def models(engine: Environment) -> Models:
    return ensure_models(engine)


@pytest.fixture(scope="package")
def nodes(engine: Environment, models: Models) -> Iterator[RealCluster]:
    """Three nodes with two GPUs each, so that one may be lost."""
    cluster = RealCluster(NODES, images=[engine_image()], mounts=mounts(engine, models))
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
    with operator_process(nodes.cluster, kubeconfig=account.kubeconfig, **account.lease) as running:
        yield
        assert running.process.poll() is None, running.log.read_text()[-4000:]
        running.stop()


@pytest.fixture(scope="package")
def live(api: Client, models: Models, operator: None) -> Live:
    """Makes deployments; a test that makes one removes it by ``with``."""
    return Live(api, models)


@pytest.fixture(scope="session")
def note() -> Callable[[str], None]:
    """Add a line to the table that stands at the end of the run."""
    return _rows.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _rows:
        terminalreporter.section("real engines")
        for row in _rows:
            terminalreporter.write_line(row)
