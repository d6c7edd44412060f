"""Fields of a pod's body that decisions are made from."""

import pytest

from shardwright_operator.observe.projection import project_pod

LABELS = {
    "shardwright.dev/model-deployment": "llama",
    "shardwright.dev/group-index": "0",
    "shardwright.dev/role": "leader",
}


@pytest.mark.parametrize(
    ("status", "image_id"),
    [
        pytest.param({}, "", id="nothing runs"),
        pytest.param({"containerStatuses": [{"name": "engine", "imageID": ""}]}, "", id="not pulled yet"),
        pytest.param(
            {"containerStatuses": [{"name": "engine", "imageID": "docker.io/vllm/vllm-openai@sha256:ab"}]},
            "docker.io/vllm/vllm-openai@sha256:ab",
            id="pulled",
        ),
    ],
)
def test_image_that_runs(status: dict[str, object], image_id: str) -> None:
    metadata = {"name": "llama-0-leader-0", "namespace": "models", "uid": "u", "labels": LABELS}
    view = project_pod({"kind": "Pod", "metadata": metadata, "spec": {}, "status": status})
    assert view is not None
    assert view.image_id == image_id
