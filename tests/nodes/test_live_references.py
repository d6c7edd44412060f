"""What a real kubelet says of a Secret that is not there, before any GPU is held."""

import functools

import pytest

from control_plane.client import Client
from control_plane.waiting import wait_for
from live_engine import TOPOLOGIES, Live, LiveDeployment
from live_engine.deployment import PATIENCE_S

pytestmark = pytest.mark.engine

GROUP = TOPOLOGIES["PP2"]
VARIABLES = [{"name": "MINE", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "word"}}}]


def test_a_secret_and_its_key_are_missed_before_any_gpu_is_held(live: Live, api: Client) -> None:
    with live.deployment(GROUP, environment=VARIABLES) as deployment:
        _await_words(deployment, 'secret "mine" not found')
        metadata = {"name": "mine", "namespace": deployment.namespace}
        api.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "b"}})
        _await_words(deployment, "couldn't find key word in Secret")
        assert deployment.pods() == []
        assert api.find("statefulsets.apps", f"{deployment.name}-0-leader", deployment.namespace) is None

        api.patch("secrets", "mine", {"stringData": {"word": "x"}}, deployment.namespace)
        both = functools.partial(_running, deployment)
        wait_for(both, "both ranks run", timeout_s=PATIENCE_S, detail=deployment.describe)
        wait_for(
            lambda: api.list("jobs.batch", deployment.namespace) == [],
            "the check has gone",
            timeout_s=PATIENCE_S,
        )


def _await_words(deployment: LiveDeployment, words: str) -> None:
    def told() -> bool:
        return deployment.condition("Ready") == ("False", "SecretMissing") and words in deployment.message(
            "Ready"
        )

    wait_for(told, words, timeout_s=PATIENCE_S, detail=deployment.describe)


def _running(deployment: LiveDeployment) -> bool:
    return [pod["status"]["phase"] for pod in deployment.pods()] == ["Running", "Running"]
