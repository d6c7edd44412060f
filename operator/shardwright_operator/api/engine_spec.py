"""``spec.engine``: the vLLM image, its extra arguments and environment, and what its container asks for."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from shardwright_operator.api.constants import GPU_RESOURCE
from shardwright_operator.api.errors import Described, SpecError
from shardwright_operator.api.extra_args import (
    MAX_EXTRA_ARG,
    MAX_EXTRA_ARGS,
    check_extra_args,
    extra_args_rules,
)
from shardwright_operator.api.fields import (
    ENV_NAME_PATTERN,
    IMAGE_PATTERN,
    VERSION_PATTERN,
    ApiRecord,
    DataKey,
    Flag,
    Int,
    Number,
    ObjectName,
    Quantity,
    at_least,
    map_of,
    rule,
    rules,
)
from shardwright_operator.api.reserved_env import check_env_names, env_rules
from shardwright_planner.request import Executor

MAX_ENV = 64
DEFAULT_PORT = 8000


class ImagePullPolicy(StrEnum):
    """When the kubelet pulls the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class KeyRef(ApiRecord):
    """A key of a Secret or ConfigMap in the resource's namespace."""

    name: ObjectName = Field(description="Name of the object.")
    key: DataKey = Field(description="Key in the object.")
    optional: Flag | None = Field(default=None, description="Whether the object or the key may be missing.")


class SecretKeyRef(ApiRecord):
    """A key of a Secret in the resource's namespace; required to exist."""

    name: ObjectName = Field(description="Name of the Secret.")
    key: DataKey = Field(description="Key in the Secret.")


class FieldRef(ApiRecord):
    """A field of the pod itself."""

    field_path: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="Path of the field, such as status.hostIP or spec.nodeName."
    )


class EnvSource(ApiRecord):
    """Where a variable's value comes from: exactly one."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)]"
                ".filter(x, x).size() == 1",
                "give exactly one of secretKeyRef, configMapKeyRef and fieldRef",
            )
        )
    )

    secret_key_ref: KeyRef | None = Field(default=None, description="A key of a Secret.")
    config_map_key_ref: KeyRef | None = Field(default=None, description="A key of a ConfigMap.")
    field_ref: FieldRef | None = Field(default=None, description="A field of the pod.")

    @model_validator(mode="after")
    def _exactly_one(self) -> "EnvSource":
        given = sum(x is not None for x in (self.secret_key_ref, self.config_map_key_ref, self.field_ref))
        if given != 1:
            raise SpecError(
                field="",
                value=Described(f"given with {given} sources"),
                limit="a variable has exactly one source",
                remedy="give one of secretKeyRef, configMapKeyRef and fieldRef",
            )
        return self


class EnvVar(ApiRecord):
    """An environment variable of the engine, on every rank."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("!(has(self.value) && has(self.valueFrom))", "give value or valueFrom, not both"),
        )
    )

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=ENV_NAME_PATTERN)] = Field(
        description="Name of the variable. Those that the operator sets itself are refused."
    )
    value: Annotated[str, Field(max_length=4096)] | None = Field(default=None, description="Its value.")
    value_from: EnvSource | None = Field(default=None, description="Where its value comes from.")

    @model_validator(mode="after")
    def _one_value(self) -> "EnvVar":
        if self.value is not None and self.value_from is not None:
            raise SpecError(
                field="",
                value=self.name,
                limit="it has both value and valueFrom",
                remedy="keep one of the two",
            )
        return self


class Resources(ApiRecord):
    """CPU and memory of the engine's container; GPUs are planned."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(
                rule(
                    f"!has(self.{kind}) || !('{GPU_RESOURCE}' in self.{kind})",
                    f"{GPU_RESOURCE} is planned: use spec.hardware.gpusPerNode or spec.parallelism",
                    field=f".{kind}",
                )
                for kind in ("requests", "limits")
            )
        )
    )

    requests: Annotated[dict[str, Quantity], Field(max_length=16)] | None = Field(
        default=None, description="Resource requests by name."
    )
    limits: Annotated[dict[str, Quantity], Field(max_length=16)] | None = Field(
        default=None, description="Resource limits by name."
    )

    @model_validator(mode="after")
    def _no_gpus(self) -> "Resources":
        for kind, amounts in (("requests", self.requests), ("limits", self.limits)):
            if amounts and GPU_RESOURCE in amounts:
                raise SpecError(
                    field=f"{kind}[{GPU_RESOURCE}]",
                    value=amounts[GPU_RESOURCE],
                    limit="GPUs of a pod are planned",
                    remedy="use spec.hardware.gpusPerNode or the pins of spec.parallelism",
                )
        return self


class ImagePullSecret(ApiRecord):
    """A Secret with registry credentials in the resource's namespace."""

    name: ObjectName = Field(description="Name of the Secret.")


def _with_rules(found: list[JsonDict], extra: JsonDict | None = None) -> JsonDict:
    return {**(extra or {}), **rules(*found)}


class EngineSpec(ApiRecord):
    """The engine's image, arguments, environment and resources."""

    image: Annotated[str, Field(min_length=1, max_length=512, pattern=IMAGE_PATTERN)] | None = Field(
        default=None, description="vLLM image; the operator's default when absent."
    )
    version: Annotated[str, Field(min_length=1, max_length=16, pattern=VERSION_PATTERN)] | None = Field(
        default=None,
        description="vLLM version in the image, such as 0.32; read from the image's tag when absent.",
    )
    executor: Executor | None = Field(
        default=None,
        description="How ranks on other nodes are started: mp (when absent, without Ray) or ray.",
    )
    launcher: Flag | None = Field(
        default=None,
        description="Start the engine through a small launcher that checks the pod first, ends in time and "
        "watches its peers. On when absent; false runs the engine's command bare.",
    )
    extra_args: (
        Annotated[
            tuple[Annotated[str, Field(min_length=1, max_length=MAX_EXTRA_ARG)], ...],
            Field(max_length=MAX_EXTRA_ARGS),
        ]
        | None
    ) = Field(
        default=None,
        description="Words added to the engine's command line on every rank. Planned values are refused.",
        json_schema_extra=_with_rules(extra_args_rules()),
    )
    env: Annotated[tuple[EnvVar, ...], Field(max_length=MAX_ENV)] | None = Field(
        default=None,
        description="Environment variables of the engine on every rank.",
        json_schema_extra=_with_rules(env_rules(), map_of("name")),
    )
    api_key_secret_ref: SecretKeyRef | None = Field(
        default=None,
        description="Secret with the API key that clients must send; the operator never reads it.",
    )
    resources: Resources | None = Field(default=None, description="CPU and memory of the engine's container.")
    image_pull_policy: ImagePullPolicy | None = Field(
        default=None, description="When the kubelet pulls the image."
    )
    image_pull_secrets: Annotated[tuple[ImagePullSecret, ...], Field(max_length=16)] | None = Field(
        default=None, description="Secrets with registry credentials.", json_schema_extra=map_of("name")
    )
    port: Annotated[Int, Field(ge=1024, le=65_535)] | None = Field(
        default=None,
        description=f"Port of the engine's API; when absent {DEFAULT_PORT}, or with network.hostNetwork one "
        "of the resource's own.",
    )
    gpu_memory_utilization: Annotated[Number, Field(ge=0.05, le=1.0)] | None = Field(
        default=None,
        json_schema_extra=at_least(0.05),
        description="Share of the GPU's memory that the engine may use; planned when absent.",
    )
    max_num_seqs: Annotated[Int, Field(ge=1, le=65_536)] | None = Field(
        default=None, description="Most requests in one engine step; planned when absent."
    )
    max_num_batched_tokens: Annotated[Int, Field(ge=1, le=16_777_216)] | None = Field(
        default=None, description="Most tokens in one engine step; planned when absent."
    )

    @property
    def api_port(self) -> int:
        """The port of the engine's API in a pod's own network."""
        return self.port or DEFAULT_PORT

    @property
    def uses_launcher(self) -> bool:
        """Whether the launcher stands in front of the engine."""
        return self.launcher is not False

    @model_validator(mode="after")
    def _nothing_reserved(self) -> "EngineSpec":
        check_extra_args(self.extra_args or ())
        check_env_names(variable.name for variable in self.env or ())
        return self
