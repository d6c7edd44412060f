"""``shardwright.dev/v1alpha1`` ModelDeployment: the spec as one record, and the way from raw JSON to it.

Sections that the user leaves out are empty records here, so that readers need no test for None; ``to_wire``
still gives back only what was written.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from shardwright_operator.api.constants import MAX_REPLICAS
from shardwright_operator.api.engine_spec import EngineSpec
from shardwright_operator.api.errors import Described, SpecError, described_type
from shardwright_operator.api.fields import FORMS, ApiRecord, Int, rule, rules
from shardwright_operator.api.lifecycle_spec import RecoverySpec, RolloutSpec
from shardwright_operator.api.model_spec import ModelSpec
from shardwright_operator.api.pod_spec import NetworkSpec, SchedulingSpec, StorageSpec
from shardwright_operator.api.service_spec import HardwareSpec, ParallelismSpec, SloSpec, WorkloadSpec

MOST_LEVELS = 32
"""Levels of ``spec.model.config``; published ones have six at most."""


class ModelDeploymentSpec(ApiRecord):
    """A model and its service level. What is left out is planned and shown in status.plan."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.parallelism) || !has(self.parallelism.tensor)"
                " || (has(self.parallelism.crossNodeTensor) && self.parallelism.crossNodeTensor)"
                " || !has(self.hardware) || !has(self.hardware.gpusPerNode)"
                " || self.parallelism.tensor <= self.hardware.gpusPerNode",
                "parallelism.tensor may not exceed hardware.gpusPerNode "
                "unless parallelism.crossNodeTensor is true",
            ),
            rule(
                "!has(self.storage) || !has(self.storage.modelCache) || !has(self.model.source)"
                " || !has(self.model.source.persistentVolumeClaim)",
                "storage.modelCache is for models from the Hub; "
                "model.source.persistentVolumeClaim holds its files already",
            ),
        )
    )

    replicas: Annotated[Int, Field(ge=0, le=MAX_REPLICAS)] = Field(
        default=1, description="Groups that serve the model; each is one engine over all GPUs of its plan."
    )
    model: ModelSpec = Field(description="The model to serve.")
    workload: WorkloadSpec = Field(
        default_factory=WorkloadSpec, description="The requests that are expected."
    )
    slo: SloSpec = Field(
        default_factory=SloSpec,
        description="The service level of one replica, as means at a steady concurrency.",
    )
    hardware: HardwareSpec = Field(
        default_factory=HardwareSpec,
        description="The nodes that one replica may use; found from node labels when absent.",
    )
    parallelism: ParallelismSpec = Field(
        default_factory=ParallelismSpec, description="Pins: planned sizes that the user fixes."
    )
    engine: EngineSpec = Field(
        default_factory=EngineSpec, description="Image, arguments and environment of the engine."
    )
    network: NetworkSpec = Field(
        default_factory=NetworkSpec,
        description="The network between the members of a group, and who may call the API.",
    )
    storage: StorageSpec = Field(default_factory=StorageSpec, description="Volumes of the pods.")
    scheduling: SchedulingSpec = Field(
        default_factory=SchedulingSpec, description="Where the pods may run, besides the planned GPU pool."
    )
    rollout: RolloutSpec = Field(
        default_factory=RolloutSpec, description="How a changed spec reaches running groups."
    )
    recovery: RecoverySpec = Field(
        default_factory=RecoverySpec, description="How often and how fast a broken group is started again."
    )

    @model_validator(mode="after")
    def _tensor_in_node(self) -> "ModelDeploymentSpec":
        tensor, in_node = self.parallelism.tensor, self.hardware.gpus_per_node
        if tensor and in_node and tensor > in_node and not self.parallelism.cross_node_tensor:
            raise SpecError(
                field="parallelism.tensor",
                value=tensor,
                limit=f"a node has {in_node} GPUs (hardware.gpusPerNode)",
                remedy="pin a smaller size, add stages with parallelism.pipeline, "
                "or set parallelism.crossNodeTensor to true",
            )
        return self

    @model_validator(mode="after")
    def _nothing_to_download(self) -> "ModelDeploymentSpec":
        cache = self.storage.model_cache
        if cache is not None and self.model.claim is not None:
            raise SpecError(
                field="storage.modelCache.claimName",
                value=cache.claim_name,
                limit="model.source.persistentVolumeClaim holds the model's files already",
                remedy="leave storage.modelCache out, or let model.source be huggingFace",
            )
        return self

    @property
    def model_claim(self) -> tuple[str, str | None] | None:
        """Claim and folder on it that every rank mounts at the models' place, if the files are on a claim.

        A cache is mounted whole: a folder that the kubelet makes for a mount is not the user's to write to.
        """
        if self.model.claim is not None:
            return self.model.claim.claim_name, self.model.claim.sub_path
        cache = self.storage.model_cache
        return None if cache is None else (cache.claim_name, None)


def parse_spec(raw: object) -> ModelDeploymentSpec:
    """The spec of a resource as read from JSON or YAML.

    Raises:
        SpecError: for the first field that has no usable value; the limit says how many more there are.
    """
    if not isinstance(raw, Mapping):
        raise SpecError(
            field="spec",
            value=None if raw is None else described_type(raw),
            limit="a ModelDeployment says at least which model to serve",
            remedy="give spec.model.name",
        )
    try:
        spec = ModelDeploymentSpec.model_validate(_as_stored(raw))
    except ValidationError as error:
        raise _first(error) from None
    _check_depth(spec.model.config)
    return spec


def _check_depth(config: object) -> None:
    # Whatever reads the config later may go down level by level; this does not.
    level, depth = [config], 0
    while level:
        if depth > MOST_LEVELS:
            raise SpecError(
                field="spec.model.config",
                value=Described("nested more deeply"),
                limit=f"it may have {MOST_LEVELS} levels",
                remedy="give the model's own config.json",
            )
        nested = [value for value in level if isinstance(value, (Mapping, list))]
        level = [
            item for value in nested for item in (value.values() if isinstance(value, Mapping) else value)
        ]
        depth += 1


def _as_stored(value: object, path: tuple[str, ...] = ()) -> object:
    """The value as the API server would store it, for manifests that come here without passing it.

    Nulls of objects are dropped (templates render an unset value as null), and 3.0 is 3, since JSON has one
    kind of number. A model's config.json is kept as it is.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_as_stored(item, (*path, "")) for item in value]
    if not isinstance(value, Mapping) or path == ("model", "config"):
        return value
    return {str(k): _as_stored(v, (*path, str(k))) for k, v in value.items() if v is not None}


def _first(error: ValidationError) -> SpecError:
    details = error.errors(include_url=False)
    found = _spec_error(details[0])
    if len(details) > 1:
        more = f"{len(details) - 1} more field{'s' if len(details) > 2 else ''} to correct"
        found = SpecError(
            field=found.field, value=found.value, limit=found.limit, remedy=f"{found.remedy} ({more})"
        )
    return found


_BOUNDS = {
    "greater_than_equal": ("ge", "it must be at least {}"),
    "less_than_equal": ("le", "it must be at most {}"),
    "string_too_long": ("max_length", "it may have at most {} characters"),
    "string_too_short": ("min_length", "it must have at least {} characters"),
    "too_long": ("max_length", "it may have at most {} entries"),
    "too_short": ("min_length", "it must have at least {} entries"),
    "enum": ("expected", "it must be one of {}"),
}
_KINDS = {"int": "a whole number", "float": "a number", "string": "a text", "bool": "true or false"}
_KINDS |= {"tuple": "a list", "dict": "an object", "model": "an object"}


def _spec_error(detail: ErrorDetails) -> SpecError:
    path = _path(detail["loc"])
    context = detail.get("ctx", {})
    kind = detail["type"]
    nested = context.get("error")
    if isinstance(nested, SpecError):
        return nested.under(path)
    if kind == "extra_forbidden":
        return _unknown_field(path, detail["loc"], detail["input"])
    if kind == "missing":
        return SpecError(field=path, value=None, limit="it is required", remedy=f"add {path}")
    if kind == "string_pattern_mismatch":
        limit = FORMS.get(str(context.get("pattern")), f"it must match {context.get('pattern')}")
    elif kind in _BOUNDS:
        key, text = _BOUNDS[kind]
        limit = text.format(context.get(key))
    else:
        # int_type, int_from_float, bool_type, string_type, model_type, tuple_type, ...
        limit = f"it must be {_KINDS.get(kind.split('_')[0], 'of another type')}"
    return SpecError(
        field=path, value=detail["input"], limit=limit, remedy="correct the value or leave the field out"
    )


def _unknown_field(path: str, loc: tuple[int | str, ...], value: object) -> SpecError:
    known = _fields_at(loc[:-1])
    close = get_close_matches(str(loc[-1]), known, n=1)
    remedy = f"write {close[0]}" if close else f"use one of {', '.join(known)}" if known else "leave it out"
    return SpecError(field=path, value=value, limit="there is no such field", remedy=remedy)


def _path(loc: tuple[int | str, ...]) -> str:
    text = "spec"
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{_shown_key(part)}"
    return text


def _shown_key(key: str) -> str:
    # Keys come from a file: they may be long or hold line breaks, and the message is to stay one line.
    shown = key if key.isprintable() else repr(key)
    return shown if len(shown) <= 64 else f"{shown[:61]}..."


def _fields_at(loc: tuple[int | str, ...]) -> list[str]:
    record: type[BaseModel] = ModelDeploymentSpec
    for part in loc:
        if isinstance(part, int):
            continue
        field = next((f for f in record.model_fields.values() if f.alias == part), None)
        found = None if field is None else _record_in(field.annotation)
        if found is None:
            return []
        record = found
    return [field.alias or name for name, field in record.model_fields.items()]


def _record_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _record_in(argument)
        if found is not None:
            return found
    return None


__all__ = ["ModelDeploymentSpec", "parse_spec"]
