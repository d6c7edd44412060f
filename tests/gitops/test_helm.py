"""A release that holds a ModelDeployment: ``helm upgrade --wait`` means that the model serves."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from control_plane.client import Client, Json
from control_plane.cluster import Cluster, CommandError
from control_plane.faults import playing
from control_plane.waiting import wait_for
from deployed import LLAMA_405B, Deployed
from operator_process import crd, operator, operator_account

__all__ = ["crd", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

RELEASE = "models"


class Release:
    """A chart with one resource, and what Helm does with it."""

    def __init__(self, cluster: Cluster, namespace: str, chart: Path) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._chart = chart
        (chart / "templates").mkdir(parents=True)
        metadata = {"apiVersion": "v2", "name": "models", "version": "0.1.0"}
        (chart / "Chart.yaml").write_text(yaml.safe_dump(metadata))

    def upgrade(self, *, timeout_s: int = 40, **changes: Json | int) -> None:
        """Install or upgrade, and wait until Helm calls it done; raises CommandError when Helm gives up."""
        manifest = {
            "apiVersion": "shardwright.dev/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": "llama"},
            "spec": {**LLAMA_405B, **changes},
        }
        (self._chart / "templates" / "model.yaml").write_text(yaml.safe_dump(manifest))
        self.helm("upgrade", "--install", RELEASE, str(self._chart), "--wait", f"--timeout={timeout_s}s")

    def helm(self, *arguments: str) -> str:
        return self._cluster.helm(*arguments, "--namespace", self._namespace)


@pytest.fixture
def release(cluster: Cluster, namespace: str, tmp_path: Path) -> Release:
    return Release(cluster, namespace, tmp_path / "chart")


@pytest.fixture
def llama(api: Client, namespace: str, gpu_nodes: Callable[..., object]) -> Deployed:
    """The release's resource, and nodes for two groups."""
    gpu_nodes("H100-SXM-80GB", 4)
    return Deployed(api, namespace, LLAMA_405B)


def variable(value: str) -> Json:
    return {"env": [{"name": "NCCL_DEBUG_SUBSYS", "value": value}]}


def serves(llama: Deployed, env: str | None = None) -> bool:
    """Whether at this moment it is Ready for its current spec, every pod with the variable."""
    live = llama.live
    current = live["metadata"]["generation"] == live["status"]["observedGeneration"]
    pods = llama.pods()
    variables = [{e["name"]: e.get("value") for e in p["spec"]["containers"][0]["env"]} for p in pods]
    return (
        current
        and llama.condition("Ready") == ("True", "GroupsReady")
        and len(pods) == 2
        and all(v.get("NCCL_DEBUG_SUBSYS") == env for v in variables)
    )


def test_install_waits_until_the_model_serves(api: Client, release: Release, llama: Deployed) -> None:
    with playing(api, llama.namespace, ready_after="2s"):
        release.upgrade()
    assert serves(llama)


def test_upgrade_waits_for_the_rollout(api: Client, release: Release, llama: Deployed) -> None:
    release.upgrade()
    with playing(api, llama.namespace, ready_after="2s"):
        release.upgrade(engine=variable("INIT"))
    assert serves(llama, "INIT")


def test_upgrade_to_what_does_not_fit_fails_at_once_and_says_why(release: Release, llama: Deployed) -> None:
    release.upgrade()
    before = llama.uids()
    with pytest.raises(CommandError, match=r"ModelDeployment/\S+/llama not ready. status: Failed") as failure:
        release.upgrade(hardware={**LLAMA_405B["hardware"], "maxNodes": 1}, timeout_s=300)
    assert "Allow 2 nodes" in failure.value.stderr
    assert llama.uids() == before


def test_rollback_waits_for_the_old_revision(release: Release, llama: Deployed) -> None:
    release.upgrade(engine=variable("INIT"))
    release.upgrade(engine=variable("NET"))
    release.helm("rollback", RELEASE, "1", "--wait", "--timeout=40s")
    assert serves(llama, "INIT")


def test_an_upgrade_that_changes_nothing_touches_no_pod(release: Release, llama: Deployed) -> None:
    release.upgrade()
    before = llama.uids()
    release.upgrade()
    assert llama.uids() == before


def test_uninstall_leaves_nothing(release: Release, llama: Deployed) -> None:
    release.upgrade()
    release.helm("uninstall", RELEASE, "--wait", "--timeout=40s")
    llama.wait_gone(timeout_s=60)


def test_children_of_a_release_are_not_its_own(release: Release, llama: Deployed) -> None:
    release.upgrade()
    found = [
        (child["metadata"]["name"], key)
        for child in (*llama.children(), *llama.pods())
        for key in {**child["metadata"]["labels"], **child["metadata"].get("annotations", {})}
        if "helm.sh" in key or (key, "Helm") in child["metadata"]["labels"].items()
    ]
    assert found == []
    wait_for(lambda: serves(llama), "it serves")
