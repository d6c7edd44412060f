"""``status`` of the resource: its schema, and the cut that makes any status fit it.

The status is computed as plain JSON in each pass; these models give it its schema. Phases and reasons are
texts here and not enumerations, since a newer operator would otherwise be refused by the CRD of an older one.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from shardwright_operator.api.fields import LIST_MAP_KEYS, ApiRecord, map_of
from shardwright_operator.api.plan_status import PlanStatus
from shardwright_operator.api.schema import Schema, structural_schema

MAX_GROUPS = 100
MAX_NODES = 64
MAX_MESSAGE = 1024

Count = Annotated[int, Field(ge=0, le=2**53)]
Figure = Annotated[float, Field(ge=0, le=1e12)]
Name = Annotated[str, Field(max_length=253)]
Term = Annotated[str, Field(max_length=128)]
Message = Annotated[str, Field(max_length=MAX_MESSAGE)]
Time = Annotated[str, Field(max_length=64)]


class ConditionStatus(ApiRecord):
    """One condition, in the shape that all Kubernetes tools read."""

    type: Term = Field(
        description="Ready, Reconciling, Stalled, Available, PlanAccepted, SLOPredicted, "
        "ModelDownloaded, PlanVerified or FieldsOverridden."
    )
    status: Annotated[str, Field(max_length=16)] = Field(description="True, False or Unknown.")
    observed_generation: Annotated[int, Field(ge=-1, le=2**53)] | None = Field(
        default=None, description="Generation of the spec that the condition was computed from."
    )
    last_transition_time: Time = Field(description="When the status of the condition last flipped.")
    reason: Term = Field(description="Reason in one word, stable over versions.")
    message: Message = Field(description="What it means and what to do, for people.")


class FirstFailure(ApiRecord):
    """The first thing that went wrong with a group: what came after is its consequence."""

    time: Time = Field(description="When the failure was seen.")
    reason: Term = Field(description="Reason in one word.")
    node_rank: Count | None = Field(default=None, description="Node rank of the member that failed.")
    pod: Name | None = Field(default=None, description="Pod that failed.")
    pod_uid: Name | None = Field(default=None, description="UID of that pod; its successor has its name.")
    node: Name | None = Field(default=None, description="Node that the pod ran on.")
    message: Message | None = Field(default=None, description="What was seen.")
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31)] | None = Field(
        default=None, description="Exit code of the engine's container."
    )
    termination_message: Message | None = Field(
        default=None, description="Last words of the engine's container."
    )


class GroupStatus(ApiRecord):
    """One group: one engine over the GPUs of all its pods."""

    index: Annotated[int, Field(ge=0, le=999)] = Field(description="Index of the group, from 0.")
    phase: Term = Field(
        description="Pending, Starting, Forming, Ready, Degraded, Restarting, Failed or Terminating."
    )
    reason: Term | None = Field(default=None, description="Reason of the phase in one word.")
    message: Message | None = Field(default=None, description="Reason of the phase, for people.")
    revision: Name | None = Field(default=None, description="ControllerRevision that the group runs.")
    restarts: Count | None = Field(default=None, description="Restarts after failures.")
    members: Count | None = Field(default=None, description="Pods that the group has when it is whole.")
    ready_members: Count | None = Field(default=None, description="Pods of the group that are ready.")
    nodes: Annotated[tuple[Name, ...], Field(max_length=MAX_NODES)] | None = Field(
        default=None, description="Nodes of the group's pods, by node rank."
    )
    first_failure: FirstFailure | None = Field(
        default=None, description="What broke the group last: the first failure, not those that followed."
    )


class DownloadStatus(ApiRecord):
    """The Job that brings the model to the shared claim."""

    job: Name = Field(description="Name of the Job.")
    phase: Term = Field(description="Pending, Running, Complete or Failed.")
    start_time: Time | None = Field(default=None, description="When the Job began.")
    completion_time: Time | None = Field(default=None, description="When it was complete.")
    failures: Count | None = Field(default=None, description="Attempts that failed.")
    bytes: Count | None = Field(default=None, description="Size of the checkpoint as planned.")
    bytes_downloaded: Count | None = Field(
        default=None, description="Bytes that are on the claim, as the running download told last."
    )
    percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="The same in percent of the size, 99 at most while it goes on.",
    )
    reason: Term | None = Field(default=None, description="Why it does not go on, in one word.")
    message: Message | None = Field(default=None, description="Where it stands, for people.")


class ModelStatus(ApiRecord):
    """How the model reaches the ranks."""

    source: Term = Field(description="Hub, Claim or Cache.")
    trust_remote_code: bool = Field(description="Whether code that comes with the checkpoint is run.")
    download: DownloadStatus | None = Field(
        default=None, description="The download to storage.modelCache; absent without one."
    )


class LoadStatus(ApiRecord):
    """Means over the last minutes under load, rounded to two digits."""

    requests: Count = Field(description="Requests that ended in that time, in order of magnitude.")
    running: Figure | None = Field(default=None, description="Requests that ran at the same time.")
    input_tokens: Figure | None = Field(default=None, description="Tokens of a prompt.")
    time_per_output_token_ms: Figure | None = Field(default=None, description="Time per output token.")
    time_to_first_token_ms: Figure | None = Field(default=None, description="Time to first token.")
    preemptions: Count | None = Field(default=None, description="Requests that lost their KV cache.")


class MeasuredStatus(ApiRecord):
    """What the engine of one group says about itself, beside what the plan predicted."""

    group: Annotated[int, Field(ge=0, le=999)] = Field(description="Group that was asked.")
    revision: Name | None = Field(default=None, description="ControllerRevision that it runs.")
    kv_cache_blocks: Count | None = Field(default=None, description="Blocks of the KV cache of one replica.")
    kv_block_tokens: Count | None = Field(default=None, description="Tokens of a block.")
    kv_cache_tokens: Count | None = Field(
        default=None, description="Tokens that the KV cache of one replica holds."
    )
    planned_kv_cache_tokens: Count | None = Field(default=None, description="The same as planned.")
    max_model_length: Count | None = Field(default=None, description="Longest request in tokens.")
    chat_template: bool | None = Field(
        default=None,
        description="Whether there is a chat template, of the tokenizer or of model.chatTemplateRef; without "
        "one chat requests are refused.",
    )
    startup_seconds: Count | None = Field(
        default=None, description="From the start of rank 0's container to its readiness."
    )
    load: LoadStatus | None = Field(default=None, description="Under load; absent until there was enough.")


class ModelDeploymentStatus(ApiRecord):
    """What the operator found and did. A view: nothing here is needed to carry on."""

    observed_generation: Annotated[int, Field(ge=-1, le=2**53)] | None = Field(
        default=None,
        description="Generation of the spec that this status is about; -1 before the first pass.",
    )
    conditions: Annotated[tuple[ConditionStatus, ...], Field(max_length=16)] | None = Field(
        default=None, description="Conditions by the rules of kstatus.", json_schema_extra=map_of("type")
    )
    replicas: Count | None = Field(default=None, description="Groups that exist.")
    ready_replicas: Count | None = Field(default=None, description="Groups that serve requests.")
    ready: Annotated[str, Field(max_length=16)] | None = Field(
        default=None, description="Groups that serve requests, of those that are wanted."
    )
    selector: Annotated[str, Field(max_length=512)] | None = Field(
        default=None, description="Label selector of the groups' leaders, for the scale subresource."
    )
    revision: Name | None = Field(default=None, description="ControllerRevision that groups are to run.")
    image: Annotated[str, Field(max_length=512)] | None = Field(
        default=None, description="Engine image of this revision."
    )
    plan: PlanStatus | None = Field(default=None, description="The plan, with its reasons.")
    model: ModelStatus | None = Field(default=None, description="How the model reaches the ranks.")
    measured: MeasuredStatus | None = Field(
        default=None, description="What the running engine says, to be held against the plan."
    )
    groups: Annotated[tuple[GroupStatus, ...], Field(max_length=MAX_GROUPS)] | None = Field(
        default=None,
        description="The groups; broken ones first when there are more than fit.",
        json_schema_extra=map_of("index"),
    )


@cache
def status_schema() -> Schema:
    """The structural schema of the status. Shared: do not alter it."""
    return structural_schema(ModelDeploymentStatus, "status", defaults=False)


def cut_to_bounds(status: Mapping[str, Any]) -> dict[str, Any]:
    """The status with each list, text and count cut to what its schema allows, so that no write is refused.

    A refused status write would hide the very condition that has too much to say. Texts that lose their end
    say so with three dots; of keyed lists only the first item of each key stays. Some counts are told by
    pods, which may tell anything.
    """
    cut = _cut(status, status_schema())
    assert isinstance(cut, dict)  # noqa: S101  a mapping comes back as one
    return cut


def _cut(value: Any, schema: Schema) -> Any:
    # Plain JSON types only: a test against the abstract ones would be half of this.
    if isinstance(value, str):
        limit = schema.get("maxLength", len(value))
        return value if len(value) <= limit else value[: max(0, limit - 3)] + "..."[:limit]
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return {key: _cut(child, properties.get(key, {})) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_cut(item, schema.get("items", {})) for item in value]
        return _unique(items, schema.get(LIST_MAP_KEYS, ()))[: schema.get("maxItems", len(items))]
    if isinstance(value, int) and not isinstance(value, bool):
        return max(schema.get("minimum", value), min(schema.get("maximum", value), value))
    return value


def _unique(items: list[Any], keys: Sequence[str]) -> list[Any]:
    if not keys:
        return items
    seen: dict[tuple[Any, ...], Any] = {}
    for item in items:
        seen.setdefault(tuple(item.get(key) for key in keys), item)
    return list(seen.values())
