"""Weights per rank and stage: what the planner computes from the config against the layers that vLLM makes.

The 16-bit copies of latent attention are made only after loading: they are taken off the planner's figure.
The vocabulary is large, so that an embedding or a head on a stage too many is seen.
"""

import pytest

from engine_parser import ParserService
from group_matrix import DENSE, SPARSE, SPARSE_FAMILIES, GroupCase, pinned_spec
from rendered_group import rendered_group, variables, words_for_this_machine
from shardwright_planner import model_from_config
from shardwright_planner.plan import Plan
from shardwright_planner.tensors import layer_matrices
from shardwright_planner.weights import rank_elements
from synthetic_models import FAMILIES, Config, ModelFolders

pytestmark = pytest.mark.engine
VOCABULARY = 32_768
CASES = [
    GroupCase(family=family, sizes=sizes)
    for family in FAMILIES
    for sizes in (*DENSE, *(SPARSE if family in SPARSE_FAMILIES else ()))
    if sizes.executor is None
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_ranks_of_every_stage_have_the_planned_bytes(
    case: GroupCase, vllm: ParserService, models: ModelFolders
) -> None:
    config = {**case.config, "vocab_size": VOCABULARY}
    group = rendered_group(pinned_spec(config, case.sizes, models.folder(config).name))
    leader, plan = group.ranks[0], group.plan
    stages = range(plan.pipeline_parallel)
    answer = vllm.ask(words_for_this_machine(leader, models.root), variables(leader), stages=stages)
    assert answer.refusal is None
    planned = [stage.weights_bytes for stage in plan.stages]
    later = _made_after_loading(config, plan)
    loaded = [size - after for size, after in zip(planned, later, strict=True)]
    assert loaded == pytest.approx(answer.rank_bytes, rel=0.005)


def _made_after_loading(config: Config, plan: Plan) -> list[int]:
    facts = model_from_config(config, name="tiny")
    tensor = plan.tensor_parallel
    per_kind = [
        sum(2 * rank_elements(m, tensor) for m in layer_matrices(kind, facts.hidden_size) if m.derived)
        for kind in facts.kinds
    ]
    sizes, start = [], 0
    for stage in plan.stages:
        sizes.append(sum(per_kind[kind] for kind in facts.layers[start : start + stage.layers]))
        start += stage.layers
    return sizes
