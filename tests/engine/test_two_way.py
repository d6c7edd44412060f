"""What the planner calls legal vLLM takes, and what it refuses vLLM refuses, or the reason is listed.

Judged by vLLM's own configuration and by the layers that each stage's first rank would make, without weights.
"""

import re
from collections import Counter
from collections.abc import Sequence

import pytest

from engine_parser import Answer, ParserService
from shardwright_planner.config import model_from_config
from shardwright_planner.engine import find_engine
from shardwright_planner.errors import PlanInputError
from shardwright_planner.legality import Legality
from stated_refusals import CPU, OURS, Stated
from synthetic_models import ModelFolders
from two_way_cases import Case, two_way_cases

pytestmark = pytest.mark.engine
SEED, COUNT = 20260101, 2400


def test_planner_and_engine_agree_or_the_reason_is_listed(vllm: ParserService, models: ModelFolders) -> None:
    verdicts: Counter[str] = Counter()
    met: set[Stated] = set()
    unlisted = []
    for case in two_way_cases(SEED, COUNT):
        ours = _our_refusal(case)
        answer = vllm.ask(
            [str(models.folder(case.config)), *case.words()], stages=range(case.layout.pipeline)
        )
        verdict, stated = _verdict(ours, answer)
        verdicts[verdict] += 1
        if stated is not None:
            met.add(stated)
        elif verdict not in {"both take it", "both refuse it"}:
            unlisted.append(_shown(case, ours, answer))
    print(dict(verdicts))
    assert not unlisted, f"{len(unlisted)} of {COUNT}, the first:\n" + "\n".join(unlisted[:20])
    assert verdicts["both take it"] > COUNT // 4
    assert verdicts["both refuse it"] > COUNT // 8
    assert [s.pattern for s in (*OURS, *CPU) if s not in met] == [], "listed, but met by no case"


def _our_refusal(case: Case) -> str | None:
    try:
        model = model_from_config(case.config, name=case.family)
    except PlanInputError as error:
        return str(error)
    return Legality(model, find_engine("0.32")).violation(case.layout)


def _verdict(ours: str | None, answer: Answer) -> tuple[str, Stated | None]:
    if (ours is None) == answer.accepted:
        return ("both take it" if ours is None else "both refuse it"), None
    if ours is not None:
        return "only we refuse it", _listed(OURS, ours, "")
    return "only vLLM refuses it", _listed(CPU, answer.refusal or "", answer.where)


def _listed(stated: Sequence[Stated], sentence: str, where: str) -> Stated | None:
    return next(
        (s for s in stated if re.search(s.pattern, sentence) and re.search(s.where, where)),
        None,
    )


def _shown(case: Case, ours: str | None, answer: Answer) -> str:
    theirs = (answer.refusal or "takes it").replace("\n", " ")[:160]
    return (
        f"{case.family} {case.quantization} {case.layout.label()}: ours: {ours}; vLLM: {theirs} "
        f"({answer.where})"
    )
