"""Specs that must be refused, each with the words of both judges: the command line and the API server.

One table for both, because a spec that one of them takes and the other does not is a bug in either.
"""

import copy
from dataclasses import dataclass
from typing import Any

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


@dataclass(frozen=True, kw_only=True)
class BadSpec:
    """``local`` is a part of parse_spec's sentence, ``server`` of the API server's refusal."""

    id: str
    change: dict[str, Any]
    field: str
    local: str
    server: str | None
    """None where the schema cannot say it, and a condition does."""

    def spec(self) -> dict[str, Any]:
        """A minimal good spec with the bad part in it."""
        return _merged({"model": {"name": MODEL}}, self.change)


def _merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    merged = copy.deepcopy(base)
    for key, value in change.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _arguments(*words: str) -> dict[str, Any]:
    return {"engine": {"extraArgs": list(words)}}


_DURATION = "must be a duration such as 150ms"
_QUANTITY = "must be a quantity such as"

BAD_SPECS = (
    BadSpec(
        id="gang scheduler that is none",
        change={"scheduling": {"gang": "Slurm"}},
        field="spec.scheduling.gang",
        local="Kubernetes",
        server="spec.scheduling.gang",
    ),
    BadSpec(
        id="Kueue without its queue",
        change={"scheduling": {"gang": "Kueue"}},
        field="spec.scheduling.queueName",
        local="Kueue admits a group through a LocalQueue",
        server="queueName names a queue of gang Volcano or Kueue, and Kueue needs one",
    ),
    BadSpec(
        id="queue of nobody",
        change={"scheduling": {"queueName": "team-a"}},
        field="spec.scheduling.queueName",
        local="only gang Volcano and Kueue have queues",
        server="queueName names a queue of gang Volcano or Kueue, and Kueue needs one",
    ),
    BadSpec(
        id="queue of Kubernetes, which has none",
        change={"scheduling": {"gang": "Kubernetes", "queueName": "team-a"}},
        field="spec.scheduling.queueName",
        local="only gang Volcano and Kueue have queues",
        server="queueName names a queue of gang Volcano or Kueue, and Kueue needs one",
    ),
    BadSpec(
        id="two that decide when a group starts",
        change={"scheduling": {"gang": "Volcano", "admission": "Hold"}},
        field="spec.scheduling.admission",
        local="its scheduler decides when a group starts",
        server="with gang its scheduler decides when a group starts: leave admission out",
    ),
    BadSpec(
        id="model name with a space",
        change={"model": {"name": "my model"}},
        field="spec.model.name",
        local="must be a Hub id or a path",
        server="spec.model.name",
    ),
    BadSpec(
        id="model name that would be an option of the engine",
        change={"model": {"name": "--trust-remote-code"}},
        field="spec.model.name",
        local="must be a Hub id or a path",
        server="spec.model.name",
    ),
    BadSpec(
        id="model path that leaves the claim",
        change={"model": {"name": "../secrets"}},
        field="spec.model.name",
        local="must be a Hub id or a path",
        server="spec.model.name",
    ),
    BadSpec(
        id="model path with a parent folder inside",
        change={"model": {"name": "models/../../secrets"}},
        field="spec.model.name",
        local="may not contain '..'",
        server="name may not contain '..'",
    ),
    BadSpec(
        id="revision that leaves its folder",
        change={"model": {"revision": "refs/../../main"}},
        field="spec.model.revision",
        local="a reference such as refs/pr/3",
        server="spec.model.revision",
    ),
    BadSpec(
        id="revision that would be an option of the engine",
        change={"model": {"revision": "--trust-remote-code"}},
        field="spec.model.revision",
        local="a reference such as refs/pr/3",
        server="spec.model.revision",
    ),
    BadSpec(
        id="no model source in source",
        change={"model": {"source": {}}},
        field="spec.model.source",
        local="exactly one source",
        server="give exactly one source: huggingFace or persistentVolumeClaim",
    ),
    BadSpec(
        id="two model sources",
        change={"model": {"source": {"huggingFace": {}, "persistentVolumeClaim": {"claimName": "weights"}}}},
        field="spec.model.source",
        local="exactly one source",
        server="give exactly one source: huggingFace or persistentVolumeClaim",
    ),
    BadSpec(
        id="unknown dtype",
        change={"model": {"dtype": "int3"}},
        field="spec.model.dtype",
        local="must be one of 'auto'",
        server='supported values: "auto"',
    ),
    BadSpec(
        id="replicas below 0",
        change={"replicas": -1},
        field="spec.replicas",
        local="at least 0",
        server="should be greater than or equal to 0",
    ),
    BadSpec(
        id="replicas with four digits",
        change={"replicas": 1000},
        field="spec.replicas",
        local="at most 999",
        server="should be less than or equal to 999",
    ),
    BadSpec(
        id="replicas as a text",
        change={"replicas": "2"},
        field="spec.replicas",
        local="must be a whole number",
        server="must be of type integer",
    ),
    BadSpec(
        id="no requests per second",
        change={"workload": {"requestsPerSecond": 0}},
        field="spec.workload.requestsPerSecond",
        local="at least 0.001",
        server="must be at least 0.001",
    ),
    BadSpec(
        id="no memory for the engine",
        change={"engine": {"gpuMemoryUtilization": 0}},
        field="spec.engine.gpuMemoryUtilization",
        local="at least 0.05",
        server="must be at least 0.05",
    ),
    BadSpec(
        id="number as a text",
        change={"workload": {"requestsPerSecond": "2"}},
        field="spec.workload.requestsPerSecond",
        local="must be a number",
        server="must be of type number",
    ),
    BadSpec(
        id="resource quantity below 0",
        change={"engine": {"resources": {"requests": {"cpu": -1}}}},
        field="spec.engine.resources.requests.cpu",
        local=_QUANTITY,
        server="should be greater than or equal to 0",
    ),
    BadSpec(
        id="duration without a unit",
        change={"slo": {"timePerOutputToken": "150"}},
        field="spec.slo.timePerOutputToken",
        local=_DURATION,
        server=_DURATION,
    ),
    BadSpec(
        id="duration as a number",
        change={"slo": {"timeToFirstToken": 30}},
        field="spec.slo.timeToFirstToken",
        local="or 1m30s; write its unit behind it: ms, s, m or h",
        server="must be of type string",
    ),
    BadSpec(
        id="duration of junk",
        change={"slo": {"timePerOutputToken": "soon"}},
        field="spec.slo.timePerOutputToken",
        local=_DURATION,
        server=_DURATION,
    ),
    BadSpec(
        id="duration of nothing",
        change={"slo": {"timePerOutputToken": "0s"}},
        field="spec.slo.timePerOutputToken",
        local="from 1ms to 1h",
        server="from 1ms to 1h",
    ),
    BadSpec(
        id="duration out of bounds",
        change={"recovery": {"backoff": "48h"}},
        field="spec.recovery.backoff",
        local="from 1s to 24h",
        server="from 1s to 24h",
    ),
    BadSpec(
        id="back-off above its own cap",
        change={"recovery": {"backoff": "5m", "maxBackoff": "1m"}},
        field="spec.recovery.backoff",
        local="maxBackoff is 1m",
        server="backoff may not exceed maxBackoff",
    ),
    BadSpec(
        id="request longer than the limit",
        change={"workload": {"inputTokens": 8000, "outputTokens": 500, "maxModelLength": 8192}},
        field="spec.workload.maxModelLength",
        local="8500 tokens",
        server="inputTokens and outputTokens together may not exceed maxModelLength",
    ),
    BadSpec(
        id="a cache for a model that is on a claim already",
        change={
            "model": {"source": {"persistentVolumeClaim": {"claimName": "weights"}}},
            "storage": {"modelCache": {"claimName": "models"}},
        },
        field="spec.storage.modelCache.claimName",
        local="holds the model's files already",
        server="storage.modelCache is for models from the Hub",
    ),
    BadSpec(
        id="quantity of junk",
        change={"storage": {"sharedMemory": "lots"}},
        field="spec.storage.sharedMemory",
        local=_QUANTITY,
        server=_QUANTITY,
    ),
    BadSpec(
        id="quantity without its unit",
        change={"storage": {"cacheSize": 100}},
        field="spec.storage.cacheSize",
        local="at least 64Mi",
        server="at least 64Mi",
    ),
    BadSpec(
        id="resource quantity of junk",
        change={"engine": {"resources": {"limits": {"memory": "80 GB"}}}},
        field="spec.engine.resources.limits.memory",
        local=_QUANTITY,
        server="spec.engine.resources.limits.memory",
    ),
    BadSpec(
        id="GPUs in the resources",
        change={"engine": {"resources": {"limits": {"nvidia.com/gpu": 8}}}},
        field="spec.engine.resources.limits[nvidia.com/gpu]",
        local="GPUs of a pod are planned",
        server="nvidia.com/gpu is planned: use spec.hardware.gpusPerNode or spec.parallelism",
    ),
    BadSpec(
        id="tensor pin of 0",
        change={"parallelism": {"tensor": 0}},
        field="spec.parallelism.tensor",
        local="at least 1",
        server="should be greater than or equal to 1",
    ),
    BadSpec(
        id="tensor pin beyond the node",
        change={"parallelism": {"tensor": 16}, "hardware": {"gpusPerNode": 8}},
        field="spec.parallelism.tensor",
        local="a node has 8 GPUs",
        server="parallelism.tensor may not exceed hardware.gpusPerNode unless",
    ),
    BadSpec(
        id="partition of another length than the pipeline",
        change={"parallelism": {"pipeline": 2, "pipelinePartition": [40, 40, 46]}},
        field="spec.parallelism.pipelinePartition",
        local="3 entries for a pipeline of 2",
        server="pipelinePartition must have one entry for each of the stages",
    ),
    BadSpec(
        id="argument that contradicts the plan, joined",
        change=_arguments("--tensor-parallel-size=4"),
        field="spec.engine.extraArgs[0]",
        local="--tensor-parallel-size is planned; pin it in spec.parallelism",
        server="is planned: pin it in spec.parallelism",
    ),
    BadSpec(
        id="argument that contradicts the plan, as two words",
        change=_arguments("--enforce-eager", "-tp", "4"),
        field="spec.engine.extraArgs[1]",
        local="-tp is planned; pin it in spec.parallelism",
        server="is planned: pin it in spec.parallelism",
    ),
    BadSpec(
        id="argument that contradicts the plan, abbreviated",
        change=_arguments("--max-model", "4096"),
        field="spec.engine.extraArgs[0]",
        local="use spec.workload.maxModelLength",
        server="use spec.workload.maxModelLength",
    ),
    BadSpec(
        id="argument that contradicts the plan, with underscores",
        change=_arguments("--pipeline_parallel_size", "2"),
        field="spec.engine.extraArgs[0]",
        local="--pipeline-parallel-size is planned",
        server="is planned: pin it in spec.parallelism",
    ),
    BadSpec(
        id="argument that switches a planned value off",
        change=_arguments("--no-enable-expert-parallel"),
        field="spec.engine.extraArgs[0]",
        local="--enable-expert-parallel is planned",
        server="is planned: pin it in spec.parallelism",
    ),
    BadSpec(
        id="rank in a short argument with its value",
        change=_arguments("-r1"),
        field="spec.engine.extraArgs[0]",
        local="-r is set by the operator",
        server="set by the operator or a field of spec.model",
    ),
    BadSpec(
        id="executor in the arguments",
        change=_arguments("--distributed-executor-backend=ray"),
        field="spec.engine.extraArgs[0]",
        local="use spec.engine.executor",
        server="use spec.engine.executor",
    ),
    BadSpec(
        id="API key in the arguments",
        change=_arguments("--api-key", "sk-123"),
        field="spec.engine.extraArgs[0]",
        local="use spec.engine.apiKeySecretRef",
        server="use spec.engine.apiKeySecretRef",
    ),
    BadSpec(
        id="arguments in a file",
        change=_arguments("--config=/models/planned.yaml"),
        field="spec.engine.extraArgs[0]",
        local="--config reads options from a file",
        server="write them into spec.engine.extraArgs",
    ),
    BadSpec(
        id="port in the arguments",
        change=_arguments("--port=9000"),
        field="spec.engine.extraArgs[0]",
        local="use spec.engine.port",
        server="use spec.engine.port",
    ),
    BadSpec(
        id="option and value in one word",
        change=_arguments("--block-size 32"),
        field="spec.engine.extraArgs[0]",
        local="one word of the command line",
        server="each item is one word",
    ),
    BadSpec(
        id="variable that identifies a rank",
        change={"engine": {"env": [{"name": "VLLM_HOST_IP", "value": "10.0.0.1"}]}},
        field="spec.engine.env[0].name",
        local="set for each rank by the operator",
        server="set for each rank by the operator",
    ),
    BadSpec(
        id="token as a plain variable",
        change={"engine": {"env": [{"name": "HF_TOKEN", "value": "hf_123"}]}},
        field="spec.engine.env[0].name",
        local="use spec.model.source.huggingFace.tokenSecretRef",
        server="use spec.model.source.huggingFace.tokenSecretRef",
    ),
    BadSpec(
        id="variable twice",
        change={"engine": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}},
        field="spec.engine.env[1].name",
        local="once in the list",
        server="Duplicate value",
    ),
    BadSpec(
        id="variable with two values",
        change={
            "engine": {
                "env": [
                    {"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
                ]
            }
        },
        field="spec.engine.env[0]",
        local="both value and valueFrom",
        server="give value or valueFrom, not both",
    ),
    BadSpec(
        id="variable from nowhere",
        change={"engine": {"env": [{"name": "A", "valueFrom": {}}]}},
        field="spec.engine.env[0].valueFrom",
        local="exactly one source",
        server="give exactly one of secretKeyRef, configMapKeyRef and fieldRef",
    ),
    BadSpec(
        id="RDMA devices of no resource",
        change={"network": {"rdmaCount": 8}},
        field="spec.network.rdmaCount",
        local="rdmaResource is not given",
        server="rdmaCount needs rdmaResource",
    ),
    BadSpec(
        id="GPUs as RDMA devices",
        change={"network": {"rdmaResource": "nvidia.com/gpu"}},
        field="spec.network.rdmaResource",
        local="an extended resource DOMAIN/NAME other than nvidia.com/gpu",
        server="an extended resource DOMAIN/NAME other than nvidia.com/gpu",
    ),
    BadSpec(
        id="CPUs as RDMA devices",
        change={"network": {"rdmaResource": "cpu"}},
        field="spec.network.rdmaResource",
        local="an extended resource DOMAIN/NAME other than nvidia.com/gpu",
        server="an extended resource DOMAIN/NAME other than nvidia.com/gpu",
    ),
    BadSpec(
        id="client that is nobody",
        change={"network": {"clients": [{}]}},
        field="spec.network.clients[0]",
        local="chosen by labels",
        server="give namespaceSelector, podSelector or both",
    ),
    BadSpec(
        id="rollout that can replace nothing",
        change={"rollout": {"maxUnavailable": 0, "maxSurge": 0}},
        field="spec.rollout.maxUnavailable",
        local="maxSurge is 0 too",
        server="maxUnavailable 0 needs maxSurge of at least 1",
    ),
    BadSpec(
        id="toleration without a key",
        change={"scheduling": {"tolerations": [{"value": "gpu"}]}},
        field="spec.scheduling.tolerations[0].key",
        local="operator Equal needs a key",
        server="without a key the operator must be Exists",
    ),
    BadSpec(
        id="toleration of any value with a value",
        change={"scheduling": {"tolerations": [{"key": "a", "operator": "Exists", "value": "gpu"}]}},
        field="spec.scheduling.tolerations[0].value",
        local="takes no value",
        server="operator Exists takes no value",
    ),
    BadSpec(
        id="unknown field beside a known one",
        change={"slo": {"timePerOutputTokn": "150ms"}},
        field="spec.slo.timePerOutputTokn",
        local="there is no such field; write timePerOutputToken",
        server='unknown field "spec.slo.timePerOutputTokn"',
    ),
)
"""Every bad spec. Names of resources and what only the planner knows are tested where they are judged."""
