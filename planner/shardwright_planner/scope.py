"""Which models the planner takes on: those that generate text token by token with layers it can size.

An unknown family of that kind is planned from generic fields and says so. What is of another kind is refused
by name: a number for it would look like an answer.
"""

from collections.abc import Sequence

from shardwright_planner.errors import PlanInputError
from shardwright_planner.keys import Keys

NOT_GENERATING = (
    *("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"),
    *("ForMultipleChoice", "ForImageClassification", "ForObjectDetection", "ForCTC", "ForPreTraining"),
)
NOT_SIZED = {
    "rwkv": "a state that is no cache",
    "rwkv5": "a state that is no cache",
    "rwkv6": "a state that is no cache",
    "rwkv7": "a state that is no cache",
    "xlstm": "a state that is no cache",
    "recurrent_gemma": "a state that is no cache",
    "mamba": "Mamba-1 mixers",
    "falcon_mamba": "Mamba-1 mixers",
}
"""Families by ``model_type``, with what the planner has no arithmetic for."""


def check_scope(top: Keys, architectures: Sequence[str], model_type: str) -> None:
    """Refuse what is no model to plan, by the name that the config gives it.

    Raises:
        PlanInputError: for encoders, encoder-decoders, pictures, and states of a kind that is not sized.
    """
    name = architectures[0] if architectures else model_type
    diffuser = top.text("_class_name")
    if diffuser:
        raise _refusal(
            "_class_name", diffuser, "it is a part of a diffusion pipeline, and vLLM serves text models"
        )
    if top.flag("is_encoder_decoder"):
        raise _refusal(
            "is_encoder_decoder",
            name,
            "it is an encoder-decoder, whose cross-attention the planner cannot size",
        )
    if name.endswith(NOT_GENERATING) or name in {"BertModel", "RobertaModel", "XLMRobertaModel"}:
        raise _refusal("architectures", name, "it is an encoder, which generates no tokens")
    if model_type in NOT_SIZED:
        raise _refusal(
            "model_type", model_type, f"it has {NOT_SIZED[model_type]}, which the planner cannot size"
        )


def _refusal(key: str, value: str, limit: str) -> PlanInputError:
    return PlanInputError(
        field=f"model.config.{key}", value=value, limit=limit, remedy="plan a decoder-only language model"
    )
