"""The plan: the planner's whole answer, in the shape that revisions keep and ``status.plan`` nearly has.

It carries everything that an explanation needs, because the command line prints it with no cluster and the
operator prints it later from the status alone, when the inputs may have changed. Every list and string is
bounded, since the record becomes a part of a CRD schema whose validation cost the API server budgets.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_ALTERNATIVES = 32
MAX_STAGES = 64
MAX_NOTES = 16
MAX_TEXT = 512

LARGEST_COUNT = 2**53  # beyond it JSON numbers lose digits
LARGEST_NUMBER = 1e15

Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Size = Annotated[int, Field(ge=1, le=65536)]
Number = Annotated[float, Field(ge=0, le=LARGEST_NUMBER)]
Label = Annotated[str, Field(max_length=128)]
Note = Annotated[str, Field(max_length=MAX_TEXT)]


class Rule(StrEnum):
    """Which of the documented rules gave the sizes."""

    ONE_GPU = "OneGpu"
    TENSOR_IN_NODE = "TensorParallelInOneNode"
    TENSOR_AND_PIPELINE = "TensorParallelInNodePipelineOverNodes"
    PIPELINE = "PipelineInsteadOfTensor"
    CROSS_NODE_TENSOR = "TensorParallelOverNodes"
    DATA_EXPERT = "DataAndExpertParallel"
    PINNED = "Pinned"
    NOTHING_FITS = "NothingFits"


class SplitCause(StrEnum):
    """Why the model runs on more than one GPU."""

    NOT_SPLIT = "NotSplit"
    WEIGHTS = "WeightsDoNotFit"
    CACHE = "CacheDoesNotFit"
    LATENCY = "NotFastEnough"
    PINNED = "Pinned"


class Confidence(StrEnum):
    """How far a predicted figure can be trusted."""

    MEDIUM = "Medium"
    LOW = "Low"


class Record(BaseModel):
    """Base of the plan's records: frozen, closed, camelCase on the wire."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Range(Record):
    """A predicted figure as a range. The high end decides."""

    low: Number = Field(description="Low end of the prediction, in milliseconds.")
    high: Number = Field(
        description="High end of the prediction, in milliseconds; it is held against the SLO."
    )


class Stage(Record):
    """Memory of each GPU of one pipeline stage, in bytes."""

    layers: Size = Field(description="Decoder layers of the stage.")
    weights_bytes: Count = Field(description="Weights on each GPU of the stage.")
    kv_cache_bytes: Count = Field(description="KV cache pool on each GPU of the stage.")
    activation_bytes: Count = Field(
        description="Peak activation memory, the sampler's logits on the last stage."
    )
    overhead_bytes: Count = Field(description="CUDA context, NCCL buffers and CUDA graphs.")
    margin_bytes: Count = Field(description="Safety margin that the planner keeps unplanned.")
    free_bytes: Count = Field(description="Memory that the engine leaves alone, or cannot use on this stage.")
    missing_bytes: Count = Field(description="What each GPU lacks for this plan; 0 when it fits.")


class Predicted(Record):
    """Predicted behaviour of one replica at the stated steady concurrency."""

    time_to_first_token_ms: Range = Field(
        description="Mean time to first token; the high end includes a burst."
    )
    time_per_output_token_ms: Range = Field(description="Mean time per output token.")
    time_to_first_token_confidence: Confidence = Field(description="Trust in the time to first token.")
    time_per_output_token_confidence: Confidence = Field(description="Trust in the time per output token.")
    tokens_per_second: Number = Field(description="Output tokens per second of one replica.")
    requests_per_second: Number = Field(description="Requests per second of one replica.")


class StepTime(Record):
    """Time of one decode step by term, in milliseconds, over all pipeline stages."""

    weights_ms: Number = Field(description="Reading the weights that the step touches.")
    kv_cache_ms: Number = Field(description="Reading the KV cache.")
    compute_ms: Number = Field(description="Arithmetic; it hides behind the reads or the reads behind it.")
    all_reduce_ms: Number = Field(description="AllReduce of tensor parallelism.")
    send_ms: Number = Field(description="Sends between pipeline stages.")
    all_to_all_ms: Number = Field(description="Exchange between experts.")
    launch_ms: Number = Field(description="Kernel launches, the scheduler and work per request.")
    prefill_ms: Number = Field(description="Share of other requests' prefill in each output token.")
    total_ms: Number = Field(description="Time per output token that these terms add up to.")
    binding: Label = Field(description="The largest term.")


class Communication(Record):
    """What moves between GPUs in one decode step."""

    all_reduces_per_step: Count = Field(description="AllReduce operations of a step over all layers.")
    all_reduce_bytes: Count = Field(description="Message size of one AllReduce.")
    all_reduce_sent_bytes: Count = Field(
        description="Bytes that each GPU sends in a step for all AllReduces."
    )
    all_reduce_ms: Number = Field(description="Time of all AllReduces of a step.")
    sends_per_step: Count = Field(description="Sends between pipeline stages in a step.")
    send_bytes: Count = Field(description="Bytes of one send: hidden state and residual.")
    send_ms: Number = Field(description="Time of all sends of a step.")
    all_to_alls_per_step: Count = Field(description="All-to-all operations of a step over all expert layers.")
    all_to_all_bytes: Count = Field(description="Bytes of one all-to-all over all tokens of the step.")
    all_to_all_ms: Number = Field(description="Time of all all-to-alls of a step.")
    pipeline_bubble: Number = Field(
        description="Idle share of a pipeline that runs one batch per stage at once."
    )
    tensor_link: Label = Field(description="What the AllReduce runs over: none, NVLink, PCIe or network.")


class Alternative(Record):
    """A candidate that was considered and not chosen."""

    tensor_parallel: Size = Field(description="Tensor-parallel size.")
    pipeline_parallel: Size = Field(description="Pipeline-parallel size.")
    data_parallel: Size = Field(description="Data-parallel size.")
    expert_parallel: bool = Field(description="Whether experts are spread whole over the ranks.")
    nodes: Size = Field(description="Nodes of one replica.")
    pool: Label = Field(description="Pool that the candidate runs on.")
    feasible: bool = Field(description="Whether it is legal and fits.")
    slo_predicted: bool | None = Field(default=None, description="Whether it is predicted to meet the SLO.")
    reason: Note = Field(description="Why it was not chosen, in one line.")


class Goal(Record):
    """The load and service level that the plan was made for, echoed so that it explains itself."""

    input_tokens: Count = Field(description="Prompt tokens of the typical request.")
    output_tokens: Count = Field(description="Output tokens of the typical request.")
    concurrency: Count = Field(description="Steady concurrent requests of one replica.")
    time_per_output_token_ms: Number | None = Field(default=None, description="Wanted time per output token.")
    time_to_first_token_ms: Number | None = Field(default=None, description="Wanted time to first token.")
    policy: Label = Field(description="BestEffort or Require.")


class Plan(Record):
    """How one replica of a model is to be run, and why.

    With ``feasible`` False the sizes are those of the nearest candidate and nothing must be deployed.
    """

    feasible: bool = Field(description="Whether the plan may be deployed.")
    model: Note = Field(description="Model that was planned.")
    tensor_parallel: Size = Field(description="Tensor-parallel size.")
    pipeline_parallel: Size = Field(description="Pipeline-parallel size.")
    data_parallel: Size = Field(description="Data-parallel size, for attention with expert parallelism.")
    expert_parallel: bool = Field(description="Whether experts are spread whole over the ranks.")
    nodes: Size = Field(description="Nodes, and therefore pods, of one replica.")
    gpus_per_node: Size = Field(description="GPUs used on each node, and therefore by each pod.")
    gpus_per_replica: Size = Field(description="GPUs of one replica.")
    cost_per_hour: Number | None = Field(
        default=None, description="Price of one replica per hour; only where GPUs have prices."
    )
    recommended_replicas: Size = Field(
        description="Replicas for the wanted requests per second; 1 if none given."
    )
    gpu: Label = Field(description="GPU of the plan, by its catalogue name.")
    gpu_memory_bytes: Count = Field(description="Memory of each GPU as CUDA reports it.")
    pool: Label = Field(description="Name of the pool that was chosen.")
    rule: Label = Field(description="Rule that gave the sizes.")
    reason: Note = Field(description="The decision in one sentence.")
    split_cause: Label = Field(description="Why the model runs on more than one GPU.")
    slo_predicted: bool | None = Field(
        default=None, description="Whether the SLO is predicted to be met; absent when none was given."
    )
    slo_message: Note = Field(default="", description="Predicted figures against the SLO.")
    goal: Goal = Field(description="Load and service level that the plan was made for.")
    max_model_length: Count = Field(description="Longest request in tokens, prompt and output together.")
    max_num_seqs: Count = Field(description="Most requests in one step.")
    max_num_batched_tokens: Count = Field(description="Most tokens in one step.")
    gpu_memory_utilization: Number = Field(description="Share of the GPU's memory that the engine may use.")
    dtype: Label = Field(description="Data type of activations and unquantized weights.")
    kv_cache_dtype: Label = Field(description="Data type of the KV cache.")
    quantization: Label | None = Field(default=None, description="Quantization method of the weights.")
    engine_version: Label = Field(description="vLLM version whose defaults and limits were used.")
    pipeline_partition: tuple[Size, ...] | None = Field(
        default=None,
        max_length=MAX_STAGES,
        description="Layers of each stage; only where it differs from vLLM's own split.",
    )
    weights_bytes: Count = Field(description="Weights of the checkpoint as loaded, in all.")
    stages: tuple[Stage, ...] = Field(max_length=MAX_STAGES, description="Memory by pipeline stage.")
    kv_cache_tokens: Count = Field(description="Tokens that the KV cache of one replica holds.")
    max_concurrency: Number = Field(description="Requests of the longest length that fit at the same time.")
    slo_concurrency: Number = Field(description="Typical requests that fit at the same time.")
    predicted: Predicted | None = Field(default=None, description="Predicted latency and throughput.")
    step_time: StepTime | None = Field(default=None, description="Time of a decode step by term.")
    communication: Communication = Field(description="What moves between GPUs in a decode step.")
    alternatives: tuple[Alternative, ...] = Field(
        default=(), max_length=MAX_ALTERNATIVES, description="Candidates that were considered and not chosen."
    )
    warnings: tuple[Note, ...] = Field(default=(), max_length=MAX_NOTES, description="What to be aware of.")
    remedies: tuple[Note, ...] = Field(
        default=(), max_length=MAX_NOTES, description="What would make it fit, or meet its SLO."
    )
    missing_gpus: Count = Field(default=0, description="GPUs that the nearest fitting plan needs on top.")
    input_hash: Label = Field(description="Hash of the planning inputs of the resource.")
    planner_version: Label = Field(description="Version of the planner's rules.")

    def to_wire(self) -> dict[str, object]:
        """The plan as it stands in a revision: camelCase, plain JSON types, absent instead of null."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
