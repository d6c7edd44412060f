"""Inputs and pins that no plan can be made from, each with its field, value, limit and remedy."""

import pickle

import pytest

from shardwright_planner import (
    EngineOptions,
    Pins,
    PlanInputError,
    PlanRequest,
    Pool,
    ServiceLevel,
    Workload,
    find_gpu,
    find_model,
    input_hash,
    plan,
)


def request(name="meta-llama/Llama-3.1-8B", gpu="H100", gpus=8, nodes=1, **parts):
    facts = find_model(name)
    assert facts is not None
    pool = Pool(gpu=find_gpu(gpu), gpus_per_node=gpus, nodes=nodes, name="pool")
    return PlanRequest(**{"model": facts, "pools": (pool,), **parts})


REFUSED = [
    pytest.param(
        request(pools=()),
        "hardware is not given, but a plan needs at least one pool of GPU nodes; name a GPU and the nodes, "
        "or add GPU nodes to the cluster.",
        id="no pool",
    ),
    pytest.param(
        request(workload=Workload(max_model_length=200_000)),
        "workload.maxModelLength is 200000, but meta-llama/Llama-3.1-8B takes at most 131072 tokens in all; "
        "use 131072 or less.",
        id="too long for the model",
    ),
    pytest.param(
        request(workload=Workload(output_tokens=2**24)),
        "workload.outputTokens is 16777216, but meta-llama/Llama-3.1-8B takes at most 131072 tokens in all; "
        "use 129024 or less.",
        id="the output alone too long for the model",
    ),
    pytest.param(
        request(workload=Workload(input_tokens=200_000, output_tokens=150_000)),
        "workload.inputTokens is 200000, but meta-llama/Llama-3.1-8B takes at most 131072 tokens in all; "
        "lower both.",
        id="prompt and output each too long for the model",
    ),
    pytest.param(
        request(workload=Workload(input_tokens=4000, max_model_length=4096)),
        "workload.maxModelLength is 4096, but the typical request alone has 4256 tokens; raise it, or lower "
        "inputTokens and outputTokens.",
        id="shorter than the typical request",
    ),
    pytest.param(
        request(service_level=ServiceLevel(time_per_output_token_s=float("nan"))),
        "slo.timePerOutputToken is nan, but it must be above zero; correct the value or leave it out.",
        id="no number",
    ),
    pytest.param(
        request(service_level=ServiceLevel(concurrency=0)),
        "slo.concurrency is 0, but it is a whole number from 1 to 1000000; correct the value.",
        id="no requests",
    ),
    pytest.param(
        request(engine=EngineOptions(gpu_memory_utilization=1.5)),
        "engine.gpuMemoryUtilization is 1.5, but it is a share from 0.05 to 1.0; leave it out to take the "
        "engine's default.",
        id="more than the GPU",
    ),
    pytest.param(
        request(engine=EngineOptions(quantization="awq")),
        "model.quantization is 'awq', but a 16-bit checkpoint can be quantized while loading to fp8 only; "
        "use fp8, or a checkpoint that was prepared for this method.",
        id="a method that needs a prepared checkpoint",
    ),
    pytest.param(
        request("Qwen/Qwen3-8B-FP8", engine=EngineOptions(quantization="awq")),
        "model.quantization is 'awq', but the checkpoint of Qwen/Qwen3-8B-FP8 is stored as fp8; leave the "
        "field out, or choose another checkpoint.",
        id="a method that the checkpoint does not have",
    ),
    pytest.param(
        request(pins=Pins(tensor=3)),
        "parallelism.tensor is 3, but 32 attention heads do not divide by TP 3 (the legal sizes here are 1, "
        "2, 4, 8); use one of these, or leave it out.",
        id="heads",
    ),
    pytest.param(
        request(pins=Pins(pipeline=33), nodes=8),
        "parallelism.pipeline is 33, but 33 stages for 32 layers; use 1, or another model or version.",
        id="more stages than layers",
    ),
    pytest.param(
        request(pins=Pins(tensor=8, pipeline=3)),
        "parallelism is 'tensor 8, pipeline 3', but no replica of these sizes lies evenly on the nodes it "
        "may use (1 x 8 H100-SXM-80GB); pin fewer values, or allow more nodes.",
        id="more GPUs than there are",
    ),
    pytest.param(
        request(pins=Pins(data=2)),
        "parallelism.data is 2, but data-parallel ranks of a dense model are whole copies; leave it out and "
        "set spec.replicas.",
        id="copies of a dense model",
    ),
    pytest.param(
        request(pins=Pins(expert=True)),
        "parallelism.expert is True, but meta-llama/Llama-3.1-8B has no experts; leave it out.",
        id="experts of a dense model",
    ),
    pytest.param(
        request(pins=Pins(pipeline_partition=(16, 15))),
        "parallelism.pipelinePartition is [16, 15], but the layers must be positive and add up to the "
        "model's 32; correct the numbers, or leave it out.",
        id="layers left over",
    ),
    pytest.param(
        request(pins=Pins(pipeline=4, pipeline_partition=(16, 16))),
        "parallelism.pipelinePartition is [16, 16], but it names 2 stages and parallelism.pipeline is 4; "
        "give one number of layers per stage.",
        id="stages that disagree",
    ),
]


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_a_refusal_is_one_clear_sentence(asked, message):
    with pytest.raises(PlanInputError) as caught:
        plan(asked)
    assert str(caught.value) == message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message  # noqa: S301  our own object


@pytest.mark.parametrize(
    ("pins", "want"),
    [
        pytest.param(Pins(tensor=2), (2, 1, 1, False), id="tensor"),
        pytest.param(Pins(pipeline=2), (1, 2, 1, False), id="pipeline"),
        pytest.param(Pins(tensor=2, pipeline=3), (2, 3, 1, False), id="six GPUs of eight"),
        pytest.param(Pins(pipeline_partition=(20, 12)), (1, 2, 1, False), id="partition"),
    ],
)
def test_pins_are_obeyed(pins, want):
    found = plan(request(pins=pins))
    assert (
        found.tensor_parallel,
        found.pipeline_parallel,
        found.data_parallel,
        found.expert_parallel,
    ) == want
    assert found.pipeline_partition == pins.pipeline_partition


@pytest.mark.parametrize(
    ("pins", "want"),
    [
        pytest.param(Pins(data=8), (1, 1, 8, True), id="data"),
        pytest.param(Pins(tensor=8), (8, 1, 1, True), id="blocks that only whole experts allow"),
        pytest.param(Pins(tensor=4, expert=False), (4, 1, 1, False), id="without whole experts"),
        pytest.param(Pins(tensor=4, expert=True), (4, 1, 1, True), id="with whole experts"),
        pytest.param(Pins(tensor=4, pipeline=2, data=2), (4, 2, 2, True), id="all three"),
    ],
)
def test_pins_of_a_sparse_model_are_obeyed(pins, want):
    found = plan(request("Qwen/Qwen3-235B-A22B-FP8", nodes=2, pins=pins))
    assert (
        found.tensor_parallel,
        found.pipeline_parallel,
        found.data_parallel,
        found.expert_parallel,
    ) == want


def test_the_hash_covers_what_was_asked_and_not_what_the_cluster_has():
    base = input_hash(request())
    assert base == input_hash(request(nodes=7, gpus=4, gpu="L4"))
    assert base == input_hash(request(workload=Workload()))
    others = [
        request("meta-llama/Llama-3.1-70B"),
        request(workload=Workload(input_tokens=4096)),
        request(service_level=ServiceLevel(concurrency=33)),
        request(pins=Pins(tensor=2)),
        request(engine=EngineOptions(version="0.33")),
        request(hardware_key="H100-SXM-80GB/8/2"),
    ]
    assert len({base, *map(input_hash, others)}) == len(others) + 1


def test_the_hash_does_not_move_between_versions_of_this_package():
    # A stored plan stays in force until this value changes: a change here would plan every deployment anew.
    assert input_hash(request()) == "02a377494c3b7847"
