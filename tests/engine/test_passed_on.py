"""Words and variables that pass through from the spec, and how vLLM understands them."""

from typing import Any

import pytest

from engine_parser import ParserService
from group_matrix import Sizes, pinned_spec
from rendered_group import RenderedGroup, rendered_group, variables, words_for_this_machine
from shardwright_operator.build.ports import Ports
from synthetic_models import ModelFolders, synthetic_config

pytestmark = pytest.mark.engine
TWO_BY_TWO = Sizes(tensor=2, pipeline=2, gpus=2)
NGRAM = '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":3}'


def _group(models: ModelFolders, sizes: Sizes = TWO_BY_TWO, **sections: dict[str, Any]) -> RenderedGroup:
    config = synthetic_config("llama")
    spec = pinned_spec(config, sizes, models.folder(config).name)
    for section, fields in sections.items():
        spec[section] = {**spec.get(section, {}), **fields}
    return rendered_group(spec)


def _facts(vllm: ParserService, models: ModelFolders, group: RenderedGroup, *keys: str) -> list[list[Any]]:
    answers = [vllm.ask(words_for_this_machine(rank, models.root), variables(rank)) for rank in group.ranks]
    assert [answer.refusal for answer in answers] == [None] * len(answers)
    return [[answer.facts[key] for key in keys] for answer in answers]


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        pytest.param(["--enable-lora", "--max-lora-rank", "32"], "maxLoraRank", 32, id="LoRA"),
        pytest.param([f"--speculative-config={NGRAM}"], "speculation", ["ngram", 4], id="speculation"),
        pytest.param(["--chat-template", "{{ messages }}"], "chatTemplate", "{{ messages }}", id="template"),
        pytest.param(
            ["--enforce-eager", "--enable-prefix-caching"], "executor", "mp", id="switches without a value"
        ),
    ],
)
def test_extra_arguments_reach_every_rank(
    words: list[str], key: str, value: object, vllm: ParserService, models: ModelFolders
) -> None:
    group = _group(models, engine={"extraArgs": words})
    assert _facts(vllm, models, group, key) == [[value]] * 2


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        pytest.param({"kvCacheDtype": "fp8"}, ["fp8", None, "bfloat16"], id="FP8 cache"),
        pytest.param({"kvCacheDtype": "fp8_e5m2"}, ["fp8_e5m2", None, "bfloat16"], id="another FP8 cache"),
        pytest.param({"kvCacheDtype": "auto"}, ["auto", None, "bfloat16"], id="the cache's default"),
        pytest.param({"quantization": "fp8"}, ["auto", "fp8", "bfloat16"], id="quantized while loading"),
        pytest.param(
            {"quantization": "auto"}, ["auto", None, "bfloat16"], id="quantization left to the files"
        ),
        pytest.param({"dtype": "float16"}, ["auto", None, "float16"], id="half precision"),
        pytest.param({"dtype": "float32"}, ["auto", None, "float32"], id="single precision"),
    ],
)
def test_the_model_section_means_the_same_to_the_engine(
    fields: dict[str, Any], facts: list[Any], vllm: ParserService, models: ModelFolders
) -> None:
    group = _group(models, model=fields)
    assert _facts(vllm, models, group, "cacheDtype", "quantization", "dtype") == [facts] * 2


def test_a_pinned_partition_is_the_engines(vllm: ParserService, models: ModelFolders) -> None:
    group = _group(models, parallelism={"pipelinePartition": [5, 3]})
    assert _facts(vllm, models, group, "stageLayers") == [[[5, 3]]] * 2


def test_every_variable_that_is_set_is_known_to_the_engine(vllm: ParserService, models: ModelFolders) -> None:
    for sizes in (TWO_BY_TWO, Sizes(gpus=1)):
        for rank in _group(models, sizes).ranks:
            words = [*words_for_this_machine(rank, models.root), "--fail-on-environ-validation"]
            assert vllm.ask(words, variables(rank)).refusal is None
    refused = vllm.ask(words, {"VLLM_NO_SUCH_VARIABLE": "1"})
    assert "VLLM_NO_SUCH_VARIABLE" in (refused.refusal or "")


def test_ray_starts_the_same_engine_on_the_leader(vllm: ParserService, models: ModelFolders) -> None:
    group = _group(models, Sizes(tensor=2, pipeline=2, gpus=2, executor="ray"))
    address = f"model-0-leader-0.model-0-ranks.serving.svc:{Ports(api=8000).ray}"
    leader, worker = group.ranks
    launcher = leader.launcher[leader.launcher.index("ray") :]
    assert leader.words[leader.words.index("ray") :] == worker.words[worker.words.index("ray") :]
    assert launcher[:2] == ("ray", "symmetric-run")
    assert launcher[-1] == "--"
    options = dict(zip(launcher[2:-1:2], launcher[3:-1:2], strict=False))
    assert (options["--address"], options["--min-nodes"], options["--num-gpus"]) == (address, "2", "2")
    assert [rank.env["RAY_ADDRESS"] for rank in group.ranks] == [address] * 2
    assert "--nnodes" not in leader.words
    assert _facts(vllm, models, group, "worldSize", "nodes") == [[4, 1]] * 2
