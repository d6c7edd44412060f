"""A ModelDeployment that a real engine serves, and how a client sees it."""

import contextlib
import functools
import http.client
import json
import re
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_plane.client import ApiError, Client, Json
from control_plane.waiting import wait_for
from deployed import Deployed
from live_engine.models import PROMPTS, Model, Models
from live_engine.pods import CACHE_FOLDER, PLUGIN_FOLDER
from operator_process import MDEP

NAME = "tiny"
GPU = "L4"
CLAIM = "models"
CACHE_CLAIM = "cache"
PATIENCE_S = 300.0
"""For what takes seconds on idle cores."""
READY_TIMEOUT_S = 1200.0
"""Imports take most of a start, which takes 40 s on two idle cores and many times that on busy ones."""
REQUEST_TIMEOUT_S = 60.0
STARTUP_TIMEOUT = "1200s"


RECOVERY: Json = {"backoff": "1s", "maxBackoff": "2s", "startupTimeout": STARTUP_TIMEOUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Sizes that a test pins, and the nodes that they take."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    nodes: int = 2

    @property
    def ranks_per_node(self) -> int:
        return self.tensor * self.pipeline * self.data // self.nodes

    def __str__(self) -> str:
        sizes = (("TP", self.tensor), ("PP", self.pipeline), ("DP", self.data))
        words = [f"{name}{size}" for name, size in sizes if size > 1]
        return " x ".join([*words, *(["EP"] if self.expert else [])])


def spec(model: Model, topology: Topology, /, *, environment: Sequence[Json] = (), **changes: Any) -> Json:
    """What a user would write for this model, with what an engine without GPUs needs besides."""
    variables = {
        "CPU_RANKS_PER_POD": str(topology.ranks_per_node),
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": PLUGIN_FOLDER,
        "SHARDWRIGHT_SKIP": "gpus,memory",
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_CACHE_ROOT": CACHE_FOLDER,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    pins = {"tensor": topology.tensor, "pipeline": topology.pipeline}
    if topology.data > 1:
        pins |= {"data": topology.data, "expert": topology.expert}
    elif topology.expert:
        pins |= {"expert": True}
    return {
        "model": {
            "name": model.name,
            "servedName": NAME,
            "dtype": "float32",
            "source": {"persistentVolumeClaim": {"claimName": CLAIM}},
            "config": model.config,
        },
        "workload": {"inputTokens": 32, "outputTokens": 32, "maxModelLength": 256},
        "slo": {"concurrency": 4},
        "hardware": {"gpu": GPU, "gpusPerNode": topology.ranks_per_node, "maxNodes": topology.nodes},
        "parallelism": pins,
        "engine": {
            "extraArgs": ["--enforce-eager"],
            "maxNumSeqs": 8,
            "env": [*({"name": name, "value": value} for name, value in variables.items()), *environment],
            # The nodes have no more than this machine's cores, and several of them have the same.
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "6Gi"}},
        },
        "storage": {"sharedMemory": "1Gi", "cacheSize": "1Gi"},
        "recovery": RECOVERY,
        **changes,
    }


def folder_claim(api: Client, namespace: str, name: str, folder: Path, mode: str) -> None:
    """Make a claim on a folder of this machine, which many nodes may mount at once."""
    volume = f"{name}-{namespace}"
    size = {"storage": "1Gi"}
    modes = [mode]
    api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": size,
                "accessModes": modes,
                "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder), "type": "Directory"},
            },
        }
    )
    api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "accessModes": modes,
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": size},
            },
        }
    )


class LiveDeployment(Deployed):
    """One deployment with one group, whose pods run."""

    def __init__(self, api: Client, namespace: str, model: Model, body: Json) -> None:
        super().__init__(api, namespace, body, name=NAME)
        self.model = model

    def pod(self, role: str) -> Json:
        """The pod of the leader or of the only worker."""
        index = {"leader": 0, "worker": 1}[role]
        return self.api.get("pods", f"{self.name}-0-{role}-{index}", self.namespace)

    def wait_serving(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until it is Ready and a completion through the client Service is right."""

        def right() -> bool:
            return self.condition("Ready")[0] == "True" and self.complete(0) == self.model.answers[0]

        wait_for(right, "it serves", timeout_s=timeout_s, interval_s=0.5, detail=self.describe)

    def wait_serving_anew(self, old: Collection[str], timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until it serves from pods none of which has one of the old uids."""

        def replaced() -> bool:
            uids = {pod["metadata"]["uid"] for pod in self.pods()}
            return bool(uids) and uids.isdisjoint(old)

        began = time.monotonic()
        wait_for(replaced, "no old pod is left", timeout_s=timeout_s, interval_s=0.3, detail=self.describe)
        self.wait_serving(timeout_s - (time.monotonic() - began))

    def complete(self, number: int, *, timeout_s: float = REQUEST_TIMEOUT_S) -> tuple[int, ...] | None:
        """Token ids of the greedy answer to a prompt, through the client Service; None when there is none."""
        answer = self.model.answers[number]
        body = {
            "model": NAME,
            "prompt": list(PROMPTS[number]),
            "max_tokens": len(answer),
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        status, text = self.request("POST", "/v1/completions", body, timeout_s=timeout_s)
        if status != http.client.OK:
            return None
        return tuple(json.loads(text)["choices"][0]["token_ids"])

    def metrics(self) -> dict[str, float]:
        """Sums of the engine's metrics by name, scraped through the client Service."""
        _, text = self.request("GET", "/metrics", None)
        found: dict[str, float] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name = line.split("{", 1)[0].split(" ", 1)[0]
                found[name] = found.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
        return found

    def cache(self) -> dict[str, int]:
        """What the engine says of its KV cache; of several data-parallel ranks, the first."""
        _, text = self.request("GET", "/metrics", None)
        line = next(line for line in text.splitlines() if line.startswith("vllm:cache_config_info{"))
        return {name: int(value) for name, value in re.findall(r'(\w+)="(\d+)"', line)}

    def longest_request(self) -> int:
        """Tokens of the longest request, as the engine tells its clients."""
        _, text = self.request("GET", "/v1/models", None)
        return int(json.loads(text)["data"][0]["max_model_len"])

    def request(
        self, method: str, path: str, body: Json | None, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> tuple[int, str]:
        """Status and text of a request to the client Service; 0 and the trouble when there was no answer."""
        service = self.api.find("services", self.name, self.namespace)
        if service is None:
            return 0, "no Service"
        port = service["spec"]["ports"][0]["port"]
        connection = http.client.HTTPConnection(service["spec"]["clusterIP"], port, timeout=timeout_s)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def describe(self) -> str:
        """Conditions, groups and pods in words, with the ends of their logs."""
        status = self.status
        lines = [
            f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in status.get("conditions", ())
        ]
        lines += [json.dumps(group) for group in status.get("groups", ())]
        for pod in self.pods():
            metadata = pod["metadata"]
            lines.append(
                f"pod {metadata['name']} on {pod['spec'].get('nodeName')}: {json.dumps(pod['status'])}"
            )
            lines.append(self.log(metadata["name"]))
        return "\n".join(lines)

    def log(self, pod: str, *, lines: int = 25, previous: bool = False) -> str:
        """The end of a pod's log, or why there is none."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        query = {"tailLines": str(lines), "previous": str(previous).lower()}
        try:
            return str(self.api.request("GET", path, query=query).get("message", ""))
        except ApiError as error:
            return f"no log: {error}"


class Live:
    """Makes deployments, each in a namespace that enforces the ``restricted`` profile."""

    def __init__(self, api: Client, models: Models) -> None:
        self._api = api
        self._models = models

    @contextlib.contextmanager
    def deployment(
        self, topology: Topology, *, cache: Path | None = None, **changes: Any
    ) -> Iterator[LiveDeployment]:
        """A deployment that is there while the block runs; ``changes`` replace fields of its spec.

        ``cache`` is an empty folder to download to, ``environment`` are more variables of the engine.
        """
        api, models = self._api, self._models
        namespace = f"live-{uuid.uuid4().hex[:6]}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": namespace, "labels": labels}
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        account = functools.partial(api.find, "serviceaccounts", "default", namespace)
        wait_for(account, f"namespace {namespace} has an account", timeout_s=PATIENCE_S)
        folder_claim(api, namespace, CLAIM, models.folder, "ReadOnlyMany")
        if cache is not None:
            cache.chmod(0o777)
            folder_claim(api, namespace, CACHE_CLAIM, cache, "ReadWriteMany")
        model = models.moe if topology.data > 1 or topology.expert else models.dense
        deployment = LiveDeployment(api, namespace, model, spec(model, topology, **changes))
        deployment.create()
        try:
            yield deployment
        finally:
            api.delete(MDEP, deployment.name, namespace)
            deployment.wait_gone(timeout_s=PATIENCE_S)
            api.delete("namespaces", namespace)


TOPOLOGIES = {
    str(topology): topology
    for topology in (
        Topology(tensor=2, pipeline=2),
        Topology(pipeline=2),
        Topology(data=2),
        Topology(tensor=2, data=2, expert=True),
    )
}
