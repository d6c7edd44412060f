"""What vLLM takes without a word although no group could run it: there our own checks are the only ones.

Each case shows both halves: vLLM's parser and configuration accept it, and nothing like it can be rendered.
"""

from typing import Any

import pytest

from engine_parser import ParserService
from group_matrix import Sizes, pinned_spec
from rendered_group import NotRenderedError, Rank, rendered_group, variables, words_for_this_machine
from synthetic_models import ModelFolders, synthetic_config

pytestmark = pytest.mark.engine
CONFIG = synthetic_config("llama")


def _ranks(models: ModelFolders) -> tuple[Rank, ...]:
    return rendered_group(_spec(models, Sizes(tensor=2, pipeline=2, gpus=2))).ranks


def _spec(models: ModelFolders, sizes: Sizes) -> dict[str, Any]:
    return pinned_spec(CONFIG, sizes, models.folder(CONFIG).name)


def test_more_stages_than_layers(vllm: ParserService, models: ModelFolders) -> None:
    answer = vllm.ask([str(models.folder(CONFIG)), "--pipeline-parallel-size", "16"], stages=[0])
    assert answer.accepted
    assert answer.facts["stageLayers"].count(0) == 8
    with pytest.raises(NotRenderedError, match="16 stages for 8 layers"):
        rendered_group(_spec(models, Sizes(pipeline=16, gpus=8)))


def test_a_worker_without_headless(vllm: ParserService, models: ModelFolders) -> None:
    leader, worker = _ranks(models)
    words = [word for word in words_for_this_machine(worker, models.root) if word != "--headless"]
    assert vllm.ask(words, variables(worker)).accepted
    assert ("--headless" in leader.serve, "--headless" in worker.serve) == (False, True)


def test_two_pods_with_one_rank(vllm: ParserService, models: ModelFolders) -> None:
    leader, worker = _ranks(models)
    answers = [vllm.ask(words_for_this_machine(worker, models.root), variables(worker)) for _ in range(2)]
    assert [answer.facts["nodeRank"] for answer in answers] == [1, 1]
    assert [rank.env["NODE_RANK"] for rank in (leader, worker)] == ["0", "1"]


def test_a_tensor_size_above_the_gpus_of_a_pod(vllm: ParserService, models: ModelFolders) -> None:
    assert vllm.ask([str(models.folder(CONFIG)), "--tensor-parallel-size", "16"]).accepted
    spec = _spec(models, Sizes(tensor=16, gpus=8))
    with pytest.raises(NotRenderedError, match="8 GPUs"):
        rendered_group(spec)


def test_a_stage_without_layers(vllm: ParserService, models: ModelFolders) -> None:
    partition = {"VLLM_PP_LAYER_PARTITION": "8,0"}
    words = [str(models.folder(CONFIG)), "--pipeline-parallel-size", "2"]
    assert vllm.ask(words, partition).facts["stageLayers"] == [8, 0]
    spec = _spec(models, Sizes(pipeline=2, gpus=2))
    spec["parallelism"]["pipelinePartition"] = [8, 0]
    with pytest.raises(NotRenderedError, match="pipelinePartition"):
        rendered_group(spec)
