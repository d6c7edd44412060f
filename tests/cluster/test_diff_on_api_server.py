"""``shardwright diff`` only reads a real API server, and the operator then does what it has said."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from control_plane import audit
from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from deployed import FOUND_405B, NCCL_DEBUG, Deployed
from operator_process import crd, operator, operator_account
from threaded_operator import ThreadedOperator

__all__ = ["crd", "operator", "operator_account"]

pytestmark = pytest.mark.cluster


@pytest.fixture
def diff(cluster: Cluster, namespace: str, tmp_path: Path) -> Callable[..., tuple[int, Json]]:
    """``diff(spec)`` runs the command in a process and returns its exit code and its JSON."""

    def run(spec: Json, name: str = "llama") -> tuple[int, Json]:
        file = tmp_path / "new.json"
        kind = {"apiVersion": "shardwright.dev/v1alpha1", "kind": "ModelDeployment"}
        metadata = {"name": name, "namespace": namespace}
        file.write_text(json.dumps({**kind, "metadata": metadata, "spec": spec}), encoding="utf-8")
        command = ["diff", "-f", str(file), "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
        done = subprocess.run(
            [sys.executable, "-m", "shardwright_operator.cli", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)

    return run


def with_(spec: Json, **sections: Json) -> Json:
    found = copy.deepcopy(spec)
    for name, section in sections.items():
        found[name] = {**found.get(name, {}), **section}
    return found


def test_what_is_told_is_what_happens(
    cluster: Cluster,
    api: Client,
    namespace: str,
    gpu_nodes: Callable[..., object],
    operator: ThreadedOperator,
    diff: Callable[..., tuple[int, Json]],
) -> None:
    gpu_nodes("H100-SXM-80GB", 2)
    code, first = diff(FOUND_405B)
    assert (code, first["groups"]) == (1, {"now": 0, "then": 1})
    assert first["placed"] == 1

    deployment = Deployed(api, namespace, FOUND_405B).create_ready()
    assert deployment.status["revision"] == first["revision"]["then"]
    since = audit.now()

    assert diff(FOUND_405B)[0] == 0
    code, refused = diff(with_(FOUND_405B, hardware={"maxNodes": 1}))
    assert (code, refused["accepted"], refused["restarting"]) == (3, False, [])
    code, told = diff(with_(FOUND_405B, engine=NCCL_DEBUG))
    assert (code, told["restarting"], told["placed"], told["toPlace"]) == (1, [0], 1, 1)
    assert told["gpus"]["now"] == told["gpus"]["then"] == 16
    assert "engine.env: NCCL_DEBUG is new" in told["podChanges"]
    if cluster.audit_log is not None:
        seen = [
            e for e in audit.read_audit(cluster.audit_log, since=since) if e.user_agent == "shardwright-diff"
        ]
        assert {event.verb for event in seen} == {"list"}

    before = deployment.uids()
    deployment.edit(engine=NCCL_DEBUG)
    deployment.wait_status(
        lambda status: status.get("revision") == told["revision"]["then"], "the revision that was told"
    )
    deployment.wait_ready()
    assert set(deployment.uids().values()).isdisjoint(before.values())
