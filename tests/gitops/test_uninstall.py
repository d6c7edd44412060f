"""Operator, CRD, namespace and resources may go in any order: nothing hangs and nothing is left."""

from collections.abc import Callable, Iterator

import pytest

from control_plane.client import Client
from control_plane.cluster import Cluster
from control_plane.waiting import wait_for
from deployed import LLAMA_405B, Deployed, OperatorSwitch, collected
from operator_process import (
    CHART,
    MDEP,
    OperatorAccount,
    apply_crd,
    crd,
    grant_account,
    operator_account,
    operator_process,
    revoke_account,
)

__all__ = ["collected", "crd", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("collected")]

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
GONE_S = 60.0
"""The garbage collector asks for kinds that came and went every 30 s only."""


@pytest.fixture(scope="module")
def switch(cluster: Cluster, operator_account: OperatorAccount) -> Iterator[OperatorSwitch]:
    """The operator of this module."""
    switch = OperatorSwitch(cluster, operator_account)
    yield switch
    switch.down()


@pytest.fixture
def llama(
    cluster: Cluster, api: Client, make_namespace: Callable[..., str], gpu_nodes: Callable[..., object]
) -> Iterator[Deployed]:
    """A resource that is not made yet; the CRD is there before and after."""
    gpu_nodes("H100-SXM-80GB", 2)
    apply_crd(cluster, api)
    yield Deployed(api, make_namespace(), LLAMA_405B)
    apply_crd(cluster, api)


def wait_crd_gone(api: Client) -> None:
    wait_for(lambda: api.find(CRDS, MDEP) is None, "the CRD is gone", timeout_s=GONE_S)


def test_operator_first_leaves_the_engines_running_and_the_rest_goes_without_it(
    api: Client, llama: Deployed, switch: OperatorSwitch
) -> None:
    switch.up()
    llama.create().wait_ready()
    before = llama.uids()
    switch.down()
    assert llama.uids() == before
    api.delete(CRDS, MDEP)
    wait_crd_gone(api)
    llama.wait_gone(timeout_s=GONE_S)


def test_crd_first_under_a_running_operator_that_goes_on_when_it_is_back(
    cluster: Cluster, api: Client, llama: Deployed, switch: OperatorSwitch
) -> None:
    switch.up()
    llama.create().wait_ready()
    api.delete(CRDS, MDEP)
    wait_crd_gone(api)
    llama.wait_gone(timeout_s=GONE_S)
    apply_crd(cluster, api)
    llama.create().wait_ready(timeout_s=GONE_S)
    switch.down()


def test_a_deleted_crd_is_told_in_one_line_and_waited_for(
    cluster: Cluster, api: Client, operator_account: OperatorAccount, llama: Deployed, switch: OperatorSwitch
) -> None:
    # kopf printed a hundred lines of its calls, and the operator ended.
    switch.down()
    account = operator_account
    with operator_process(cluster, kubeconfig=account.kubeconfig, **account.lease) as running:
        llama.create().wait_ready(timeout_s=GONE_S)
        api.delete(CRDS, MDEP)
        told = "does not serve ModelDeployment (shardwright.dev/v1alpha1): install the CRD"
        wait_for(lambda: told in running.log.read_text(), "the operator tells of it", timeout_s=GONE_S)
        wait_crd_gone(api)
        apply_crd(cluster, api)
        llama.create().wait_ready(timeout_s=GONE_S)
        assert running.stop() == 0
        log = running.log.read_text()
        assert (log.count(told), log.count("Traceback"), log.count("ended")) == (1, 0, 0)


def test_helm_uninstall_with_the_crd_while_resources_are_there(
    cluster: Cluster, api: Client, llama: Deployed, switch: OperatorSwitch
) -> None:
    flags = ("--namespace", llama.namespace)
    own = ("--set", "crds.keep=false", "--take-ownership", "--force-conflicts")
    cluster.helm("install", "sw", str(CHART), *flags, *own)
    switch.up()
    llama.create().wait_ready(timeout_s=GONE_S)
    cluster.helm("uninstall", "sw", *flags)
    wait_crd_gone(api)
    llama.wait_gone(timeout_s=GONE_S)
    switch.down()


def test_helm_uninstall_keeps_the_crd_and_the_engines_by_default(
    cluster: Cluster, api: Client, llama: Deployed, switch: OperatorSwitch
) -> None:
    flags = ("--namespace", llama.namespace)
    cluster.helm("install", "sw", str(CHART), *flags, "--take-ownership", "--force-conflicts")
    switch.up()
    llama.create().wait_ready(timeout_s=GONE_S)
    before = llama.uids()
    cluster.helm("uninstall", "sw", *flags)
    assert api.find(CRDS, MDEP) is not None
    assert llama.uids() == before
    switch.down()
    api.delete(MDEP, "llama", llama.namespace)


@pytest.mark.usefixtures("crd")
def test_namespace_of_operator_and_resource_first(cluster: Cluster, api: Client, llama: Deployed) -> None:
    account = grant_account(cluster, api, llama.namespace)
    try:
        with operator_process(cluster, kubeconfig=account.kubeconfig, **account.lease):
            llama.create().wait_ready(timeout_s=GONE_S)
            api.delete("namespaces", llama.namespace)
            wait_for(
                lambda: api.find("namespaces", llama.namespace) is None,
                "the namespace is gone",
                timeout_s=GONE_S,
            )
    finally:
        revoke_account(api, account)
