"""The Job that brings a model to a shared claim, and what the ranks then do without."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client import V1Job

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.download import download_job, job_name
from shardwright_operator.build.network_policy import download_policy
from shardwright_operator.build.owner import Manifest, Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.template import render_download, render_templates
from shardwright_planner.plan import Plan

CACHED: dict[str, Any] = {
    "model": {
        "name": "meta-llama/Llama-3.1-405B-Instruct",
        "revision": "v1",
        "source": {"huggingFace": {"tokenSecretRef": {"name": "hub"}, "endpoint": "https://mirror.example"}},
    },
    "storage": {"modelCache": {"claimName": "models", "subPath": "hub"}},
    "engine": {"env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]},
}


def made(owner: Owner, raw: dict[str, Any]) -> Manifest:
    found = render_download(parse_spec(raw), owner)
    assert found is not None
    return found


def changed(**sections: Any) -> dict[str, Any]:
    raw = copy.deepcopy(CACHED)
    for section, fields in sections.items():
        raw[section] = {**raw.get(section, {}), **fields}
    return raw


def test_job_is_a_job(owner: Owner) -> None:
    job = download_job(owner, made(owner, CACHED), retry="")
    V1Job.model_validate(job)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert [*container["command"], *container["args"]] == [
        *("python3", "/opt/shardwright/launcher.py"),
        *("--folder", "/models/hub/meta-llama/Llama-3.1-405B-Instruct/v1", "--progress-port", "29610", "--"),
        *("hf", "download", "meta-llama/Llama-3.1-405B-Instruct", "--revision", "v1"),
        *("--exclude", "original/*", "--exclude", "metal/*"),
        *("--local-dir", "/models/hub/meta-llama/Llama-3.1-405B-Instruct/v1"),
    ]
    assert "nvidia.com/gpu" not in {**container["resources"]["requests"], **container["resources"]["limits"]}
    assert [v["persistentVolumeClaim"] for v in pod["volumes"] if v["name"] == "model"] == [
        {"claimName": "models"}
    ]
    by_name = {entry["name"]: entry for entry in container["env"]}
    assert by_name["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert by_name["HF_ENDPOINT"]["value"] == "https://mirror.example"
    assert by_name["HTTPS_PROXY"]["value"] == "http://proxy:3128"


def test_no_service_selects_the_downloads_pods(owner: Owner) -> None:
    labels = made(owner, CACHED)["template"]["metadata"]["labels"]

    assert "shardwright.dev/role" not in labels
    assert "shardwright.dev/group-index" not in labels
    assert labels["app.kubernetes.io/managed-by"] == "shardwright"


@pytest.mark.parametrize(
    ("clients", "ingress"),
    [
        pytest.param(None, [{"ports": [{"port": "progress", "protocol": "TCP"}]}], id="everybody"),
        pytest.param([], [], id="nobody"),
        pytest.param(
            [{"namespaceSelector": {"matchLabels": {"name": "shardwright"}}}],
            [
                {
                    "ports": [{"port": "progress", "protocol": "TCP"}],
                    "from": [{"namespaceSelector": {"matchLabels": {"name": "shardwright"}}}],
                }
            ],
            id="a namespace",
        ),
    ],
)
def test_who_may_ask_how_far_it_is(owner: Owner, clients: list[object] | None, ingress: list[object]) -> None:
    raw = changed(network={} if clients is None else {"clients": clients})
    pods = made(owner, raw)["template"]
    spec = download_policy(owner, "job", parse_spec(raw).network)["spec"]

    assert spec["ingress"] == ingress
    assert spec["podSelector"]["matchLabels"].items() <= pods["metadata"]["labels"].items()
    (container,) = pods["spec"]["containers"]
    assert container["ports"] == [{"name": "progress", "containerPort": 29610, "protocol": "TCP"}]


def test_without_a_launcher_nobody_tells(owner: Owner) -> None:
    (container,) = made(owner, changed(engine={"launcher": False}))["template"]["spec"]["containers"]
    assert "ports" not in container


def test_ranks_start_offline_from_the_folder(owner: Owner, two_nodes: Plan) -> None:
    leader, worker = render_templates(parse_spec(CACHED), two_nodes, PoolSelection(), owner)
    for template in (leader, worker):
        assert template is not None
        (container,) = template["spec"]["containers"]
        words = container["args"]
        assert words[words.index("serve") + 1] == "/models/hub/meta-llama/Llama-3.1-405B-Instruct/v1"
        assert "--revision" not in words
        names = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert names["HF_HUB_OFFLINE"] == "1"
        assert "HF_TOKEN" not in names, "who downloads nothing needs no token"
        assert {"name": "model", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]
        # compiled kernels and scratch files only
        assert container["resources"]["requests"]["ephemeral-storage"] == "16Gi"


@pytest.mark.parametrize(
    ("raw", "same"),
    [
        pytest.param(changed(engine={"image": "other/vllm:v0.33.0"}), True, id="another image"),
        pytest.param(changed(engine={"launcher": False}), True, id="no launcher"),
        pytest.param(changed(scheduling={"nodeSelector": {"zone": "b"}}), True, id="other nodes"),
        pytest.param(changed(model={"revision": "v2"}), False, id="another revision"),
        pytest.param(changed(model={"name": "meta-llama/Llama-3.1-8B"}), False, id="another model"),
        pytest.param(changed(storage={"modelCache": {"claimName": "other"}}), False, id="another claim"),
    ],
)
def test_job_is_known_by_what_it_downloads(owner: Owner, raw: dict[str, Any], *, same: bool) -> None:
    assert (job_name(owner, made(owner, raw)) == job_name(owner, made(owner, CACHED))) is same


def test_a_reference_has_a_folder_of_its_own_and_none_within_anothers(owner: Owner) -> None:
    words = made(owner, changed(model={"revision": "refs/pr/3"}))["template"]["spec"]["containers"][0]["args"]
    assert words[words.index("--revision") + 1] == "refs/pr/3"
    assert words[-1] == "/models/hub/meta-llama/Llama-3.1-405B-Instruct/refs=pr=3"


def test_the_job_of_the_longest_name_has_a_name_that_fits() -> None:
    longest = Owner(name="n" * 40, namespace="x", uid="y")
    assert len(job_name(longest, made(longest, CACHED))) <= 63


def test_no_cache_no_job(owner: Owner) -> None:
    assert render_download(parse_spec({"model": {"name": "a/b"}}), owner) is None


@pytest.mark.parametrize("claim", [False, True])
def test_chat_template_is_on_every_rank(owner: Owner, two_nodes: Plan, *, claim: bool) -> None:
    source = {"source": {"persistentVolumeClaim": {"claimName": "weights"}}} if claim else {}
    raw = {"model": {"name": "m", "chatTemplateRef": {"name": "templates", "key": "chat.jinja"}, **source}}
    for template in render_templates(parse_spec(raw), two_nodes, PoolSelection(), owner):
        assert template is not None
        (container,) = template["spec"]["containers"]
        path = container["args"][container["args"].index("--chat-template") + 1]
        mount = next(m for m in container["volumeMounts"] if m["name"] == "chat-template")
        volume = next(v["configMap"] for v in template["spec"]["volumes"] if v["name"] == "chat-template")
        assert path == f"{mount['mountPath']}/{volume['items'][0]['path']}"
        assert volume["name"] == "templates"


@pytest.mark.parametrize("argument", ["--chat-template", "--chat_template=/x.jinja"])
def test_two_chat_templates_are_refused(owner: Owner, make_plan: Callable[..., Plan], argument: str) -> None:
    raw = {
        "model": {"name": "m", "chatTemplateRef": {"name": "templates", "key": "chat.jinja"}},
        "engine": {"extraArgs": [argument]},
    }
    with pytest.raises(SpecError, match="keep one of the two"):
        render_templates(parse_spec(raw), make_plan(), PoolSelection(), owner)
