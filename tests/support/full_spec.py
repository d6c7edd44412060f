"""A spec with every field set: what one judge takes the other must take too."""

from typing import Any

FULL_SPEC: dict[str, Any] = {
    "replicas": 3,
    "model": {
        "name": "own-org/Own_Model-8B.v1",
        "revision": "refs-pr-1",
        "servedName": "own/model",
        "dtype": "bfloat16",
        "quantization": "fp8",
        "kvCacheDtype": "fp8_e4m3",
        "trustRemoteCode": False,
        "chatTemplateRef": {"name": "templates", "key": "chat.jinja"},
        "source": {
            "huggingFace": {
                "tokenSecretRef": {"name": "hugging-face", "key": "token"},
                "endpoint": "https://mirror.example:8443/hub",
            }
        },
        "config": {"hidden_size": 64, "nested": {"list": [1, "two", None, {"deep": True}]}},
    },
    "workload": {
        "inputTokens": 1000,
        "outputTokens": 24,
        "maxModelLength": 1024,
        "requestsPerSecond": 0.25,
    },
    "slo": {
        "concurrency": 8,
        "timePerOutputToken": "0.05s",
        "timeToFirstToken": "1m0.5s",
        "policy": "Require",
    },
    "hardware": {
        "gpu": "NVIDIA H100 80GB HBM3",
        "gpusPerNode": 8,
        "maxNodes": 4,
        "gpuHourPrices": {"H100-SXM-80GB": 2.5},
    },
    "parallelism": {
        "tensor": 16,
        "pipeline": 2,
        "data": 1,
        "expert": False,
        "pipelinePartition": [40, 40],
        "crossNodeTensor": True,
    },
    "engine": {
        "image": "registry.example:5000/team/vllm:v0.32.0-cu130@sha256:" + "0" * 64,
        "version": "0.32.0",
        "executor": "ray",
        "launcher": False,
        "extraArgs": [
            "--enable-prefix-caching",
            "--block-size=32",
            "--seed",
            "-1",
            "-O3",
            "--hf-overrides",
            '{"rope_scaling": {"--tensor-parallel-size": 1}}',
        ],
        "env": [
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "EMPTY", "value": ""},
            {"name": "BARE"},
            {
                "name": "FROM_SECRET",
                "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}},
            },
            {"name": "FROM_MAP", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k.v"}}},
            {"name": "FROM_POD", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "apiKeySecretRef": {"name": "api-key", "key": "key"},
        "resources": {
            "requests": {"cpu": 16, "memory": "200Gi", "ephemeral-storage": "1.5Ti"},
            "limits": {"memory": "400Gi"},
        },
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": [{"name": "registry"}],
        "port": 9000,
        "gpuMemoryUtilization": 0.9,
        "maxNumSeqs": 128,
        "maxNumBatchedTokens": 4096,
    },
    "network": {
        "profile": "custom",
        "socketInterface": "=eth0,eth1",
        "rdmaResource": "rdma/hca_shared_devices_a",
        "rdmaCount": 8,
        "hostNetwork": True,
        "nodeBandwidthGbps": 3200,
        "clients": [
            {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "gateway"}}},
            {"namespaceSelector": {"matchLabels": {"team": ""}}, "podSelector": {}},
        ],
    },
    "storage": {
        "sharedMemory": "64Mi",
        "cacheSize": 107374182400,
        "modelCache": {"claimName": "models", "subPath": "hub"},
    },
    "scheduling": {
        "nodeSelector": {"pool": "gpu", "topology.kubernetes.io/zone": "a"},
        "tolerations": [
            {"operator": "Exists"},
            {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 60,
            },
        ],
        "priorityClassName": "high",
        "schedulerName": "volcano",
        "topologyKey": "topology.kubernetes.io/rack",
        "gang": "Volcano",
        "queueName": "team-a",
    },
    "rollout": {
        "paused": True,
        "maxUnavailable": 2,
        "maxSurge": 1,
        "onDrain": "Block",
        "progressDeadline": "90m",
        "historyLimit": 3,
    },
    "recovery": {
        "maxRestarts": 0,
        "backoff": "1s",
        "maxBackoff": "24h",
        "resetAfter": "90m",
        "startupTimeout": "2h30m",
    },
}
