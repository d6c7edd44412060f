"""What is no language model is refused by name; a family that nobody checked is planned and says so."""

import pytest

from shardwright_planner import (
    PlanInputError,
    PlanRequest,
    Pool,
    find_gpu,
    model_from_config,
    model_names,
    plan,
)
from shardwright_planner.catalogue import find_model

PLAIN = {
    "architectures": ["NewIdeaForCausalLM"],
    "model_type": "new_idea",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 8192,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        pytest.param(
            {**PLAIN, "architectures": ["BertForMaskedLM"]},
            "BertForMaskedLM.*generates no tokens",
            id="encoder",
        ),
        pytest.param(
            {**PLAIN, "architectures": ["LlamaForSequenceClassification"]},
            "generates no tokens",
            id="classifier",
        ),
        pytest.param(
            {**PLAIN, "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
            "T5ForConditionalGeneration.*encoder-decoder",
            id="encoder-decoder",
        ),
        pytest.param({"_class_name": "FluxTransformer2DModel"}, "diffusion pipeline", id="pictures"),
        pytest.param({**PLAIN, "model_type": "rwkv"}, "a state that is no cache", id="rwkv"),
        pytest.param({**PLAIN, "model_type": "falcon_mamba"}, "Mamba-1 mixers", id="mamba"),
    ],
)
def test_refused_by_name(config, said):
    with pytest.raises(PlanInputError, match=said):
        model_from_config(config, name="test")


def test_an_unknown_family_is_planned_and_says_so():
    facts = model_from_config(PLAIN, name="new/idea")
    pool = Pool(gpu=find_gpu("H100"), gpus_per_node=1, nodes=1)
    found = plan(PlanRequest(model=facts, pools=(pool,)))
    assert found.feasible
    said = "NewIdeaForCausalLM is planned from the generic fields of its config, with lower confidence."
    assert said in found.warnings


def test_the_catalogue_is_in_scope():
    assert all(find_model(name) is not None for name in model_names())
