"""Which arithmetic units a checkpoint's products run on: those of its activations, where the GPU has them."""

import pytest

from shardwright_planner import PlanInputError, PlanRequest, Pool, Workload, find_gpu, find_model, plan
from shardwright_planner.layout import Layout
from shardwright_planner.partition import own_partition
from shardwright_planner.setting import settings
from shardwright_planner.workbench import Workbench

BF16, FP8 = "meta-llama/Llama-3.3-70B-Instruct", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"
INT8, INT4 = (
    "RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8",
    "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16",
)
NVFP4 = "nvidia/DeepSeek-V3.1-NVFP4"


def request(name, gpu):
    facts = find_model(name)
    assert facts is not None
    pool = Pool(gpu=find_gpu(gpu), gpus_per_node=8, nodes=1)
    return PlanRequest(model=facts, pools=(pool,), workload=Workload(input_tokens=4096, output_tokens=128))


def prompt(name, gpu):
    """Seconds of a prompt's arithmetic at the units' peak: in 16 bits, and narrower."""
    question = request(name, gpu)
    partition = own_partition(question.model.layer_count, 1)
    layout = Layout(tensor=8, pipeline=1, gpus_per_node=8, partition=partition)
    (stage,) = Workbench(settings(question)[0]).clock(layout).work().prompt.stages
    return stage.wide_s, stage.narrow_s


@pytest.mark.parametrize(
    ("name", "gpu", "rate"),
    [
        pytest.param(FP8, "H100", 1979e12, id="FP8"),
        pytest.param(FP8, "A100", None, id="FP8 without units is widened"),
        pytest.param(INT8, "H100", 1979e12, id="INT8"),
        pytest.param(INT8, "A100", 624e12, id="INT8 where there is no FP8"),
        pytest.param(INT8, "B300", 307e12, id="INT8 where little is left of it"),
        pytest.param(INT4, "H100", None, id="activations of 16 bits"),
        pytest.param(NVFP4, "B200", 9000e12, id="FP4"),
        pytest.param(NVFP4, "H100", None, id="FP4 without units is widened"),
    ],
)
def test_units_of_a_checkpoint(name, gpu, rate):
    assert find_model(name).quantization.flops(find_gpu(gpu)) == rate


def test_what_a_gpu_widens_takes_as_long_as_in_16_bits():
    # FP8 on A100 was priced at the efficiency of FP8 units that it lacks, and FP4 on H100 at its FP8 rate.
    assert prompt(FP8, "A100") == pytest.approx((prompt(BF16, "A100")[0], 0.0))
    assert prompt(NVFP4, "H100")[1] == 0.0


def test_int8_takes_half_the_time_where_the_units_are_twice_as_fast():
    # A100 has 624 TOPS of INT8 beside 312 TFLOPS of BF16; it was priced as if it had the latter alone.
    head, whole = prompt(INT8, "A100")[0], prompt(BF16, "A100")[0]
    assert prompt(INT8, "A100")[1] == pytest.approx((whole - head) / 2)


@pytest.mark.parametrize(
    ("name", "gpu", "text"),
    [
        pytest.param(FP8, "A100", "A100-SXM-80GB has no FP8 units: FP8 weights save memory only", id="FP8"),
        pytest.param(NVFP4, "H100", "H100-SXM-80GB has no FP4 units: FP4 weights save memory only", id="FP4"),
        pytest.param(INT8, "A100", None, id="INT8 has its own"),
        pytest.param(INT4, "A100", None, id="16 bits need none"),
        pytest.param(FP8, "H100", None, id="FP8 on units for it"),
    ],
)
def test_weights_that_save_memory_only_are_said_to(name, gpu, text):
    found = [warning for warning in plan(request(name, gpu)).warnings if "units" in warning]
    assert [warning.partition(",")[0] for warning in found] == ([] if text is None else [text])


@pytest.mark.parametrize("gpu", ["B200", "B300", "RTX-5090"])
def test_int8_is_refused_where_the_engine_has_no_kernel_for_it(gpu):
    with pytest.raises(PlanInputError, match=r"integer activations run below compute capability 10\.0 only"):
        plan(request(INT8, gpu))
