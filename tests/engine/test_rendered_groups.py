"""Every rank of every rendered group, as vLLM's own parser and configuration understand it."""

import pytest

from engine_parser import ParserService
from group_matrix import LENGTH, GroupCase, group_cases
from rendered_group import Rank, RenderedGroup, rendered_group, variables, words_for_this_machine
from shardwright_operator.build.ports import Ports
from synthetic_models import ModelFolders

pytestmark = pytest.mark.engine
CASES = tuple(group_cases())
# Without AMX the CPU build has no chunked prefill for latent attention and raises the tokens of a step to the
# longest request (vLLM 0.32 platforms/cpu.py, check_and_update_config).
CPU_ALTERS = {"deepseek-v3": {"maxBatchedTokens"}}


def test_there_are_enough_groups() -> None:
    assert len(CASES) >= 200
    assert len({str(case) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_rank_is_what_the_plan_says(case: GroupCase, vllm: ParserService, models: ModelFolders) -> None:
    folder = models.folder(case.config)
    group = rendered_group(case.spec(folder.name))
    sizes, plan = case.sizes, group.plan

    assert (plan.tensor_parallel, plan.pipeline_parallel, plan.data_parallel, plan.expert_parallel) == (
        sizes.tensor,
        sizes.pipeline,
        sizes.data,
        sizes.expert,
    )
    assert [rank.index for rank in group.ranks] == list(range(plan.nodes))
    assert sum(rank.gpus for rank in group.ranks) == sizes.tensor * sizes.pipeline * sizes.data
    for rank in group.ranks:
        found, wanted = _facts(vllm, models, rank), _expected(case, group, rank)
        other = {key: found[key] for key in wanted if found[key] != wanted[key]}
        assert {key: other[key] for key in other.keys() - CPU_ALTERS.get(case.family, set())} == {}, rank.pod


def _facts(vllm: ParserService, models: ModelFolders, rank: Rank) -> dict[str, object]:
    answer = vllm.ask(words_for_this_machine(rank, models.root), variables(rank))
    assert answer.refusal is None, answer.refusal
    return {key: answer.facts[key] for key in _KEYS}


_KEYS = (
    *("tensorParallel", "pipelineParallel", "dataParallel", "dataParallelLocal", "dataParallelRank"),
    *("expertParallel", "worldSize", "localWorldSize", "nodes", "nodeRank", "nodeRankWithinDataRank"),
    *("masterAddress", "masterPort", "dataParallelAddress", "dataParallelPort", "headless", "executor"),
    *("maxModelLength", "maxSequences", "maxBatchedTokens", "memoryUtilization", "dtype", "servedName"),
    *("architecture", "stageLayers", "port", "shutdownTimeout"),
)


def _expected(case: GroupCase, group: RenderedGroup, rank: Rank) -> dict[str, object]:
    plan, sizes = group.plan, case.sizes
    engine_ranks = sizes.tensor * sizes.pipeline
    grouped = plan.nodes > 1 and sizes.executor != "ray"
    leader = rank.env.get("LEADER_ADDRESS", "127.0.0.1")
    spanned = max(1, engine_ranks // plan.gpus_per_node) if grouped else 1
    here = sizes.data * engine_ranks // plan.nodes if grouped else engine_ranks * sizes.data
    ports = Ports(api=8000)
    return {
        "tensorParallel": sizes.tensor,
        "pipelineParallel": sizes.pipeline,
        "dataParallel": sizes.data,
        "dataParallelLocal": max(1, here // engine_ranks),
        "dataParallelRank": rank.index * here // engine_ranks if grouped else 0,
        "expertParallel": sizes.expert,
        "worldSize": engine_ranks,
        "localWorldSize": engine_ranks // spanned,
        "nodes": plan.nodes if grouped else 1,
        "nodeRank": rank.index if grouped else 0,
        "nodeRankWithinDataRank": rank.index % spanned if grouped else 0,
        "masterAddress": leader if grouped else "127.0.0.1",
        "masterPort": ports.master if grouped else 29501,
        "dataParallelAddress": leader if grouped and sizes.data > 1 else "127.0.0.1",
        "dataParallelPort": ports.data_parallel,
        "headless": grouped and rank.index > 0,
        "executor": "mp",
        "maxModelLength": LENGTH,
        "maxSequences": plan.max_num_seqs,
        "maxBatchedTokens": plan.max_num_batched_tokens,
        "memoryUtilization": plan.gpu_memory_utilization,
        "dtype": plan.dtype,
        "servedName": "tiny",
        "architecture": case.config["architectures"][0],
        "stageLayers": [stage.layers for stage in plan.stages],
        "port": ports.api,
        "shutdownTimeout": 30,
    }
