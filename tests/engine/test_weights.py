"""Weights per rank: what the planner computes from the config against the layers that vLLM makes.

Left out are layouts in which vLLM is known to hold more or less at this stage: pipelines (some families keep
the embedding and the head on every stage), attention DP with TP and EP (shared experts are then copied), and
latent attention (its 16-bit copies are made only after loading).
"""

import pytest

from engine_parser import ParserService
from group_matrix import DENSE, SPARSE, SPARSE_FAMILIES, GroupCase
from rendered_group import rendered_group, variables, words_for_this_machine
from synthetic_models import FAMILIES, ModelFolders

pytestmark = pytest.mark.engine
CASES = [
    GroupCase(family=family, sizes=sizes)
    for family in FAMILIES
    if family != "deepseek-v3"
    for sizes in (*DENSE, *(SPARSE if family in SPARSE_FAMILIES else ()))
    if sizes.pipeline == 1 and not (sizes.tensor > 1 and sizes.data > 1 and sizes.expert)
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rank_has_the_planned_bytes(case: GroupCase, vllm: ParserService, models: ModelFolders) -> None:
    group = rendered_group(case.spec(models.folder(case.config).name))
    leader = group.ranks[0]
    answer = vllm.ask(words_for_this_machine(leader, models.root), variables(leader), stages=[0])
    assert answer.refusal is None
    assert group.plan.stages[0].weights_bytes == pytest.approx(answer.rank_bytes[0], rel=0.005)
