"""``spec.model``: which weights to serve, where they come from, and how they are stored."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from shardwright_operator.api.errors import Described, SpecError
from shardwright_operator.api.fields import (
    MODEL_NAME_PATTERN,
    PATH_PATTERN,
    PRESERVE,
    URL_PATTERN,
    ApiRecord,
    DataKey,
    Flag,
    GitReference,
    ObjectName,
    Word,
    rule,
    rules,
)

DEFAULT_TOKEN_KEY = "token"  # noqa: S105 - the key of a Secret, not a secret


class Dtype(StrEnum):
    """Data types of activations and unquantized weights."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


class KvCacheDtype(StrEnum):
    """Data types of the KV cache, in vLLM's words."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FP8 = "fp8"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"


class TokenSecretRef(ApiRecord):
    """A key of a Secret in the resource's namespace that holds a Hub token."""

    name: ObjectName = Field(description="Name of the Secret.")
    key: DataKey | None = Field(
        default=None, description=f"Key in the Secret; {DEFAULT_TOKEN_KEY} when absent."
    )


class ConfigMapKeyRef(ApiRecord):
    """A key of a ConfigMap in the resource's namespace; required to exist."""

    name: ObjectName = Field(description="Name of the ConfigMap.")
    key: DataKey = Field(description="Key in the ConfigMap.")


class HuggingFaceSource(ApiRecord):
    """Weights from the Hugging Face Hub, or from a mirror of it."""

    token_secret_ref: TokenSecretRef | None = Field(
        default=None,
        description="Secret with the token for gated models; the operator itself never reads it.",
    )
    endpoint: Annotated[str, Field(max_length=512, pattern=URL_PATTERN)] | None = Field(
        default=None, description="Address of a Hub mirror; the public Hub when absent."
    )


class ClaimSource(ApiRecord):
    """Weights on a volume. Groups of several nodes need a claim that many nodes may mount."""

    claim_name: ObjectName = Field(
        description="Name of the PersistentVolumeClaim in the resource's namespace."
    )
    sub_path: Annotated[str, Field(min_length=1, max_length=512, pattern=PATH_PATTERN)] | None = Field(
        default=None, description="Folder of the volume that is mounted; the whole volume when absent."
    )


class ModelSource(ApiRecord):
    """Where the weights come from: exactly one of the two."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.huggingFace) != has(self.persistentVolumeClaim)",
                "give exactly one source: huggingFace or persistentVolumeClaim",
            )
        )
    )

    hugging_face: HuggingFaceSource | None = Field(
        default=None, description="Download from the Hugging Face Hub or a mirror."
    )
    persistent_volume_claim: ClaimSource | None = Field(
        default=None, description="Read from a PersistentVolumeClaim; model.name is then a path on it."
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> "ModelSource":
        given = [name for name in ("huggingFace", "persistentVolumeClaim") if name in self.to_wire()]
        if len(given) != 1:
            raise SpecError(
                field="",
                value=Described(" and ".join(given) or "empty"),
                limit="a model has exactly one source",
                remedy="give huggingFace or persistentVolumeClaim, or leave source out for the public Hub",
            )
        return self


class ModelSpec(ApiRecord):
    """The model."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("!self.name.contains('..')", "name may not contain '..'", field=".name"),
        )
    )

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=MODEL_NAME_PATTERN)] = Field(
        description="Hub id such as meta-llama/Llama-3.1-8B-Instruct, or a path on the claim of source."
    )
    revision: GitReference | None = Field(
        default=None, description="Branch, tag, commit or reference such as refs/pr/3 on the Hub."
    )
    served_name: Annotated[str, Field(min_length=1, max_length=256, pattern=MODEL_NAME_PATTERN)] | None = (
        Field(default=None, description="Model name that clients send; the value of name when absent.")
    )
    dtype: Dtype | None = Field(
        default=None,
        description="Data type of activations and unquantized weights; the checkpoint's own when absent.",
    )
    quantization: Word | None = Field(
        default=None,
        description="Quantization in vLLM's word, such as fp8; read from the checkpoint when absent.",
    )
    kv_cache_dtype: KvCacheDtype | None = Field(
        default=None, description="Data type of the KV cache; fp8 halves it against 16 bits."
    )
    trust_remote_code: Flag | None = Field(
        default=None, description="Run Python code that comes with the checkpoint. Off when absent."
    )
    chat_template_ref: ConfigMapKeyRef | None = Field(
        default=None,
        description="ConfigMap with the chat template, for a tokenizer that has none; "
        "the tokenizer's own when absent.",
    )
    source: ModelSource | None = Field(
        default=None, description="Where the weights come from; the public Hub without a token when absent."
    )
    config: dict[str, object] | None = Field(
        default=None,
        description="The model's own config.json, for a model that the planner does not know. "
        "All its keys are kept.",
        json_schema_extra={PRESERVE: True},
    )

    @property
    def api_name(self) -> str:
        """The model name that clients send."""
        return self.served_name or self.name

    @property
    def claim(self) -> ClaimSource | None:
        """The volume that holds the weights, if they are on one."""
        return self.source.persistent_volume_claim if self.source else None

    @property
    def token_secret(self) -> tuple[str, str] | None:
        """Name and key of the Secret with the Hub token, if any."""
        hub = self.source.hugging_face if self.source else None
        if hub is None or hub.token_secret_ref is None:
            return None
        return hub.token_secret_ref.name, hub.token_secret_ref.key or DEFAULT_TOKEN_KEY

    @model_validator(mode="after")
    def _no_parent_folder(self) -> "ModelSpec":
        if ".." in self.name:
            raise SpecError(
                field="name",
                value=self.name,
                limit="a name may not contain '..'",
                remedy="give the path from the root of the claim, or the Hub id",
            )
        return self
