"""A model that is on no volume yet: one Job brings it from a Hub, and the ranks then start without any."""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from control_plane.waiting import wait_for
from live_engine import TOPOLOGIES, Live, Models, Row
from live_engine.deployment import CACHE_CLAIM, NAME, PATIENCE_S, READY_TIMEOUT_S
from real_nodes import RealCluster
from real_nodes.network import GATEWAY
from tiny_hub import HubModel, serving

pytestmark = [pytest.mark.engine, pytest.mark.extended]

GROUP = TOPOLOGIES["PP2"]
HUB_ID = "tiny/dense"
PADDING_BYTES = 60_000_000
BYTES_PER_S = 2_000_000
"""Half a minute for the padding: the operator asks every few seconds."""


def test_one_download_for_all_ranks(
    live: Live, nodes: RealCluster, models: Models, tmp_path: Path, note: Callable[[Row], None]
) -> None:
    files = {path.name: path.read_bytes() for path in models.dense.folder.iterdir() if path.is_file()}
    files["notes/padding.bin"] = os.urandom(PADDING_BYTES)
    del files["chat_template.jinja"]
    with serving(GATEWAY) as hub:
        hub.models[HUB_ID] = HubModel(files=files, revisions=("v1",), bytes_per_s=BYTES_PER_S)
        changes = {
            "model": {
                "name": HUB_ID,
                "revision": "v1",
                "servedName": NAME,
                "dtype": "float32",
                "source": {"huggingFace": {"endpoint": hub.endpoint}},
                "config": models.dense.config,
            },
            "storage": {"sharedMemory": "1Gi", "cacheSize": "1Gi", "modelCache": {"claimName": CACHE_CLAIM}},
        }
        began = time.monotonic()
        with live.deployment(GROUP, cache=tmp_path, **changes) as deployment:
            seen: list[int] = []

            def complete() -> bool:
                download = (deployment.status.get("model") or {}).get("download") or {}
                there = download.get("bytesDownloaded")
                if there is not None and there not in seen:
                    assert deployment.pods() == [], "no GPU is taken before the model is there"
                    seen.append(there)
                return deployment.condition("ModelDownloaded") == ("True", "Downloaded")

            wait_for(complete, "the model is there", timeout_s=READY_TIMEOUT_S, detail=deployment.describe)
            assert len(seen) >= 2, f"its progress was told: {seen}"
            assert seen == sorted(seen)
            asked = len(hub.requests)
            deployment.wait_serving()
            note(Row(group=f"{GROUP}, downloaded", ready_s=time.monotonic() - began, tokens_equal=True))
            measured = wait_for(
                lambda: deployment.status.get("measured"), "the engine is measured", timeout_s=PATIENCE_S
            )
            assert measured["chatTemplate"] is False, "nobody brought a template along"

        # The padding comes in ranges if it has to begin anew; a whole file is asked for once.
        whole = Counter(path.rpartition("/")[2] for method, path, _ in hub.requests if method == "GET")
        assert whole["model.safetensors"] == 1
        assert hub.requests[asked:] == [], "the ranks are offline"
