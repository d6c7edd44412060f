"""Environment variables that carry a rank's identity or a planned value, hence not for ``spec.engine.env``.

The list is what the templates themselves set, plus the variables by which vLLM would silently override the
plan. Everything else (``NCCL_*``, ``VLLM_LOGGING_LEVEL``, proxies) is the user's.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pydantic.config import JsonDict

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.fields import rule

RESERVED: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("is set for each rank by the operator", "leave it out"): (
            "VLLM_HOST_IP",
            "POD_IP",
            "NODE_RANK",
            "GROUP_INDEX",
            "LEADER_ADDRESS",
            "RAY_ADDRESS",
            "MASTER_ADDR",
            "MASTER_PORT",
            "RANK",
            "LOCAL_RANK",
            "WORLD_SIZE",
            "VLLM_PORT",
            "VLLM_DP_RANK",
            "VLLM_DP_RANK_LOCAL",
            "VLLM_DP_SIZE",
            "VLLM_DP_MASTER_IP",
            "VLLM_DP_MASTER_PORT",
        ),
        ("is set by the device plugin", "leave it out"): ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        ("is planned", "use spec.parallelism.pipelinePartition"): ("VLLM_PP_LAYER_PARTITION",),
        ("belongs into a Secret", "use spec.engine.apiKeySecretRef"): ("VLLM_API_KEY",),
        ("belongs into a Secret", "use spec.model.source.huggingFace.tokenSecretRef"): (
            "HF_TOKEN",
            "HUGGING_FACE_HUB_TOKEN",
        ),
    }
)
"""Why (continues "NAME ...") and what to do instead, to the variables that they are for."""


def check_env_names(names: Iterable[str]) -> None:
    """Refuse reserved and repeated names.

    Raises:
        SpecError: with a field relative to ``spec.engine``.
    """
    seen: set[str] = set()
    for index, name in enumerate(names):
        field = f"env[{index}].name"
        for (why, instead), reserved in RESERVED.items():
            if name in reserved:
                raise SpecError(field=field, value=name, limit=f"it {why}", remedy=instead)
        if name in seen:
            raise SpecError(
                field=field,
                value=name,
                limit="a name may stand once in the list",
                remedy="keep one of the two",
            )
        seen.add(name)


def env_rules() -> list[JsonDict]:
    """The reserved names in CEL; repeated ones are refused by the list's own key."""
    found = []
    for (why, instead), reserved in RESERVED.items():
        quoted = ", ".join(f"'{name}'" for name in reserved)
        which = reserved[0] if len(reserved) == 1 else f"each of {', '.join(reserved)}"
        found.append(rule(f"self.all(e, !(e.name in [{quoted}]))", f"{which} {why}: {instead}"))
    return found
