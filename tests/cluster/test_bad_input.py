"""Whatever is asked for, there is an answer: one condition that says what is wrong, and what to do.

The API server refuses what the schema can express (test_api.py has those cases). What others hold or
refuse stands in test_foreign_objects.py. Here are the cases that need the planner or a claim to show.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from control_plane.client import Client, Json
from control_plane.waiting import wait_for
from deployed import LLAMA_8B, LLAMA_405B, WORKER, Deployed
from operator_process import crd, operator, operator_account
from shardwright_operator.apply import claims
from shardwright_operator.cli import main
from shardwright_operator.decide import claim

__all__ = ["crd", "operator", "operator_account"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

Nodes = Callable[..., tuple[str, ...]]

H100 = "H100-SXM-80GB"
ONE_NODE: Json = {"gpu": H100, "gpusPerNode": 8, "maxNodes": 1}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Absent claims are looked for again at once."""
    monkeypatch.setattr(claims, "MISSING_S", 0.2)
    monkeypatch.setattr(claim, "POLL_S", 0.5)


REFUSED_SPECS = {
    "pinned tensor size that does not divide the heads": (
        {
            "model": {"name": "meta-llama/Llama-3.1-70B-Instruct"},
            "parallelism": {"tensor": 6},
            "hardware": ONE_NODE,
        },
        "InvalidSpec",
        2,
        ("spec.parallelism.tensor is 6", "64 attention heads", "the legal sizes here are 1, 2, 4, 8"),
    ),
    "unknown model and no config": (
        {"model": {"name": "acme/unheard-of"}, "hardware": ONE_NODE},
        "UnknownModel",
        2,
        (
            "spec.model.name is 'acme/unheard-of'",
            "the Hub id of a model in its catalogue",
            "config.json into spec.model.config",
            "--config FILE",
        ),
    ),
    "inline config without what counts": (
        {"model": {"name": "acme/own", "config": {"model_type": "llama"}}, "hardware": ONE_NODE},
        "InvalidSpec",
        2,
        ("spec.model.config",),
    ),
    "plan that does not fit": (
        {"model": {"name": "meta-llama/Llama-3.1-405B-Instruct"}, "hardware": ONE_NODE},
        "DoesNotFit",
        1,
        ("GiB", "What would help:", "TP8 x PP2 on 16 H100-SXM-80GB GPUs fits, 8 more than allowed now"),
    ),
    "unknown GPU": (
        {
            "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
            "hardware": {**ONE_NODE, "gpu": "H900"},
        },
        "UnknownGPU",
        2,
        ("spec.hardware.gpu is 'H900'", "the known GPUs are H100-SXM-80GB", "A100-SXM-40GB"),
    ),
    "service level that is required and missed": (
        {**LLAMA_405B, "slo": {"timePerOutputToken": "2ms", "policy": "Require"}},
        "SLOMissed",
        1,
        ("time per output token", "2 ms"),
    ),
}


@pytest.mark.parametrize(
    ("spec", "reason", "code", "words"),
    [pytest.param(*case, id=name) for name, case in REFUSED_SPECS.items()],
)
def test_refused_spec_says_why_in_the_condition_and_on_the_command_line(
    *,
    spec: Json,
    reason: str,
    code: int,
    words: tuple[str, ...],
    api: Client,
    namespace: str,
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    llama = Deployed(api, namespace, spec).create()
    message = llama.wait("Stalled", "True", reason)

    assert [word for word in words if word not in message] == []
    assert llama.condition("PlanAccepted") == ("False", reason)
    assert llama.condition("Ready") == ("False", reason)
    assert llama.condition("Reconciling") == ("", "")
    assert llama.children() == []

    file = tmp_path / "llama.json"
    file.write_text(json.dumps(llama.created | {"metadata": {"name": "llama"}}))
    assert main(["plan", "-f", str(file)]) == code
    output = capsys.readouterr()
    said = " ".join((output.out + output.err).split())
    # A sentence about the spec is the same in both; an answer of the planner is laid out as a table there.
    assert (message in said) if code == 2 else (words[-1] in said)


def test_edit_that_does_not_fit_leaves_the_earlier_revision_running(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes(H100, 1)
    llama = Deployed(api, namespace, LLAMA_8B).create_ready()
    pods, plan = llama.uids(), llama.status["plan"]

    llama.edit(model={"name": "meta-llama/Llama-3.1-405B-Instruct"})
    message = llama.wait("Stalled", "True", "DoesNotFit")
    assert "GiB" in message
    assert (llama.uids(), llama.status["plan"]) == (pods, plan)
    assert llama.condition("Available") == ("True", "GroupsReady")
    assert llama.group["phase"] == "Ready"

    llama.edit(model=LLAMA_8B["model"])
    llama.wait_ready()
    assert llama.uids() == pods


def test_broken_group_of_an_earlier_revision_comes_back_while_the_new_spec_is_refused(
    api: Client, namespace: str, gpu_nodes: Nodes
) -> None:
    gpu_nodes(H100, 2)
    llama = Deployed(api, namespace, LLAMA_405B).create_ready()
    before = llama.pods()
    llama.edit(parallelism={"tensor": 6})
    llama.wait("Stalled", "True", "InvalidSpec")
    revision = llama.group["revision"]
    api.delete("pods", WORKER, namespace)

    wait_for(
        lambda: (
            llama.group.get("phase") == "Ready"
            and {p["metadata"]["uid"] for p in before}.isdisjoint(llama.uids().values())
        ),
        "the group came back",
        detail=lambda: llama.status,
    )
    assert llama.group["revision"] == revision


@pytest.fixture
def make_claim(api: Client, namespace: str) -> Iterator[Callable[[str, str], None]]:
    """``make_claim(name, mode)`` makes a claim that is bound to a volume of its own."""
    made: list[str] = []

    def make(name: str, mode: str) -> None:
        volume = f"{name}-{uuid.uuid4().hex[:8]}"
        api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume},
                "spec": {
                    "capacity": {"storage": "1Ti"},
                    "accessModes": [mode],
                    "claimRef": {"namespace": namespace, "name": name},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "nfs": {"server": "files.invalid", "path": "/models"},
                },
            }
        )
        made.append(volume)
        api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "accessModes": [mode],
                    "storageClassName": "",
                    "volumeName": volume,
                    "resources": {"requests": {"storage": "1Ti"}},
                },
            }
        )

    yield make
    for volume in made:
        api.delete("persistentvolumes", volume)


def from_claim(name: str) -> Json:
    return {**LLAMA_405B["model"], "source": {"persistentVolumeClaim": {"claimName": name}}}


def test_claim_that_one_node_only_may_mount(
    api: Client, namespace: str, gpu_nodes: Nodes, make_claim: Callable[[str, str], None]
) -> None:
    gpu_nodes(H100, 2)
    make_claim("single", "ReadWriteOnce")
    make_claim("shared", "ReadOnlyMany")
    llama = Deployed(api, namespace, {**LLAMA_405B, "model": from_claim("single")}).create()
    message = llama.wait("Stalled", "True", "VolumeNotShared")

    assert message == (
        "spec.model.source.persistentVolumeClaim.claimName is 'single', but its access modes are "
        "ReadWriteOnce and 2 pods on 2 nodes need it; use a claim with ReadOnlyMany or ReadWriteMany."
    )
    assert llama.children() == []
    llama.edit(model=from_claim("shared"))
    llama.wait_ready()


def test_claim_that_appears_later(
    api: Client, namespace: str, gpu_nodes: Nodes, make_claim: Callable[[str, str], None], impatient: None
) -> None:
    gpu_nodes(H100, 2)
    llama = Deployed(api, namespace, {**LLAMA_405B, "model": from_claim("weights")}).create()
    message = llama.wait("Reconciling", "True", "WaitingForVolume")

    assert message == (
        "the PersistentVolumeClaim 'weights' of spec.model.source.persistentVolumeClaim does not exist; "
        "create it in this namespace, with access mode ReadOnlyMany or ReadWriteMany"
    )
    assert llama.condition("Stalled") == ("", "")
    make_claim("weights", "ReadWriteMany")
    llama.wait_ready()
