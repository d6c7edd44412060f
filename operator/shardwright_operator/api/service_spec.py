"""``spec.workload``, ``spec.slo``, ``spec.hardware`` and ``spec.parallelism``: the inputs of the plan.

Nothing here has a schema default: a value that the user leaves out is planned and shown in ``status.plan``,
so that a better planner may choose better one day.
"""

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.fields import ApiRecord, Flag, Int, Latency, Number, at_least, rule, rules
from shardwright_operator.api.quantities import parse_duration_s
from shardwright_planner.request import Policy

MAX_TOKENS = 16_777_216
MAX_GPUS_PER_NODE = 16
MAX_NODES = 64
MAX_STAGES = 64

Tokens = Annotated[Int, Field(ge=1, le=MAX_TOKENS)]


class WorkloadSpec(ApiRecord):
    """The typical request and the longest one."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.maxModelLength) || (has(self.inputTokens) ? self.inputTokens : 1)"
                " + (has(self.outputTokens) ? self.outputTokens : 1) <= self.maxModelLength",
                "inputTokens and outputTokens together may not exceed maxModelLength",
            )
        )
    )

    input_tokens: Tokens | None = Field(
        default=None, description="Prompt tokens of the typical request; 2048 is assumed when absent."
    )
    output_tokens: Tokens | None = Field(
        default=None, description="Output tokens of the typical request; 256 is assumed when absent."
    )
    max_model_length: Tokens | None = Field(
        default=None,
        description="Longest request in tokens, prompt and output together; planned when absent.",
    )
    requests_per_second: Annotated[Number, Field(ge=0.001, le=1_000_000)] | None = Field(
        default=None,
        json_schema_extra=at_least(0.001),
        description="Requests per second over all replicas; gives the plan's recommended replicas.",
    )

    @model_validator(mode="after")
    def _request_fits(self) -> "WorkloadSpec":
        typical = (self.input_tokens or 1) + (self.output_tokens or 1)
        if self.max_model_length is not None and typical > self.max_model_length:
            raise SpecError(
                field="maxModelLength",
                value=self.max_model_length,
                limit=f"the typical request has {typical} tokens, prompt and output together",
                remedy="raise maxModelLength or describe shorter requests",
            )
        return self


class SloSpec(ApiRecord):
    """The service level of one replica: means at a steady number of concurrent requests."""

    concurrency: Annotated[Int, Field(ge=1, le=65_536)] | None = Field(
        default=None, description="Steady concurrent requests of one replica; 32 is assumed when absent."
    )
    time_per_output_token: Latency | None = Field(
        default=None, description="Wanted mean time per output token, such as 50ms."
    )
    time_to_first_token: Latency | None = Field(
        default=None, description="Wanted mean time to first token, such as 2s."
    )
    policy: Policy | None = Field(
        default=None,
        description="What to do when the plan is predicted to miss: BestEffort (when absent) deploys the "
        "best plan that fits and says by how much it misses, Require deploys nothing.",
    )

    @property
    def time_per_output_token_s(self) -> float | None:
        """Wanted mean time per output token in seconds."""
        return None if self.time_per_output_token is None else parse_duration_s(self.time_per_output_token)

    @property
    def time_to_first_token_s(self) -> float | None:
        """Wanted mean time to first token in seconds."""
        return None if self.time_to_first_token is None else parse_duration_s(self.time_to_first_token)


class HardwareSpec(ApiRecord):
    """The nodes that one replica may use. What is absent is found from the labels of the cluster's nodes."""

    gpu: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None,
        description="GPU by catalogue name such as H100-SXM-80GB, by alias, or by the value of the node "
        "label nvidia.com/gpu.product.",
    )
    gpus_per_node: Annotated[Int, Field(ge=1, le=MAX_GPUS_PER_NODE)] | None = Field(
        default=None, description="GPUs of a node that one replica may use."
    )
    max_nodes: Annotated[Int, Field(ge=1, le=MAX_NODES)] | None = Field(
        default=None, description="Nodes that one replica may use."
    )
    gpu_hour_prices: (
        Annotated[dict[str, Annotated[Number, Field(ge=0, le=10_000)]], Field(max_length=16)] | None
    ) = Field(
        default=None,
        description="Price of a GPU-hour by GPU name, in any currency. With a price for every GPU at hand, "
        "the cheapest plan that meets the service level is chosen instead of the one with the fewest GPUs.",
    )


class ParallelismSpec(ApiRecord):
    """Pins: each is obeyed or refused by name, never adjusted."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.pipelinePartition) || !has(self.pipeline)"
                " || size(self.pipelinePartition) == self.pipeline",
                "pipelinePartition must have one entry for each of the stages that pipeline says",
                field=".pipelinePartition",
            )
        )
    )

    tensor: Annotated[Int, Field(ge=1, le=MAX_GPUS_PER_NODE * MAX_NODES)] | None = Field(
        default=None, description="Tensor-parallel size; stays within a node unless crossNodeTensor is true."
    )
    pipeline: Annotated[Int, Field(ge=1, le=MAX_STAGES)] | None = Field(
        default=None, description="Pipeline-parallel size: the number of stages."
    )
    data: Annotated[Int, Field(ge=1, le=MAX_GPUS_PER_NODE * MAX_NODES)] | None = Field(
        default=None, description="Data-parallel size inside one replica, for mixture-of-experts models."
    )
    expert: Flag | None = Field(
        default=None, description="Whether experts are spread whole over the ranks instead of being cut."
    )
    pipeline_partition: (
        Annotated[
            tuple[Annotated[Int, Field(ge=1, le=1024)], ...], Field(min_length=1, max_length=MAX_STAGES)
        ]
        | None
    ) = Field(default=None, description="Layers of each pipeline stage, in order.")
    cross_node_tensor: Flag | None = Field(
        default=None, description="Let tensor parallelism cross nodes, which is slow without a fast fabric."
    )

    @model_validator(mode="after")
    def _one_entry_per_stage(self) -> "ParallelismSpec":
        partition = self.pipeline_partition
        if partition is not None and self.pipeline is not None and len(partition) != self.pipeline:
            raise SpecError(
                field="pipelinePartition",
                value=list(partition),
                limit=f"it has {len(partition)} entries for a pipeline of {self.pipeline}",
                remedy="give one entry for each stage",
            )
        return self
