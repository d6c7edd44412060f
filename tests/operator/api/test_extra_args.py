"""Which words of spec.engine.extraArgs pass, by the grammar of vLLM's own parser."""

import pytest

from full_spec import FULL_SPEC
from shardwright_operator.api.constants import Role
from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.extra_args import JOINED, REFUSED, check_extra_args, refusal
from shardwright_operator.api.plan_request import plan_request
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_operator.build.command import engine_command
from shardwright_operator.build.ports import ports_of
from shardwright_planner import Pool, find_gpu, plan

OVERRIDABLE = {"--distributed-timeout-seconds"}
"""Options that the operator renders and a user may give again: vLLM takes the last one."""

FREE = (
    "--enable-prefix-caching",
    "--no-enable-prefix-caching",
    "--enforce-eager",
    "--block-size=32",
    "--max-num-partial-prefills",
    "--max-logprobs",
    "--max-log-len",
    "--max-lora-rank",
    "--enable-lora",
    "--enable-auto-tool-choice",
    "--enable-eplb",
    "--tool-call-parser",
    "--tokenizer",
    "--tokenizer-mode",
    "--hf-overrides",
    "--hf-config-path",
    "--model-impl",
    "--model-loader-extra-config",
    "--revisions-of-something-else",
    "--quantization-config",
    "--kv-cache-dtype-skip-layers",
    "--kv-transfer-config",
    "--kv-cache-metrics",
    "--dtype-of-something-else",
    "--decode-context-parallel-size",
    "--speculative-config",
    "--grpc-port-of-something-else",
    "--ssl-ca-certs",
    "--root-path",
    "--seed",
    "-O3",
    "-cc.mode=3",
    "-asc",
    "-dcp",
    "-sc",
    "hermes",
    "4",
    "-1",
    '{"method": "ngram", "prompt": "--model"}',
)


@pytest.mark.parametrize("word", FREE)
def test_word_passes(word: str) -> None:
    assert refusal(word) is None


@pytest.mark.parametrize("option", [option for options in REFUSED.values() for option in options])
def test_refused_option_is_found_in_every_spelling(option: str) -> None:
    dashes, rest = option[: option.index(option.lstrip("-"))], option.lstrip("-")
    spellings = [option, f"{option}=1", f"{option} 1", dashes + rest.replace("-", "_")]
    spellings += [f"--no-{rest}"] if dashes == "--" else []

    assert [word for word in spellings if refusal(word) is None] == []


@pytest.mark.parametrize("option", JOINED)
def test_value_joined_to_a_letter_is_found(option: str) -> None:
    assert refusal(f"{option}4") is not None


@pytest.mark.parametrize(
    "beginning", ["--tensor", "--pipe", "--data-parallel", "--api", "--max-model-l", "--"]
)
def test_beginning_of_a_refused_option_is_found(beginning: str) -> None:
    assert refusal(beginning) is not None


@pytest.mark.parametrize("word", ["--api-key=sk-secret", "--api_k=sk-secret", "--hf-token sk-secret"])
def test_message_does_not_repeat_a_secret(word: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_extra_args([word])

    assert "sk-secret" not in str(caught.value)


def test_every_option_that_the_operator_renders_is_refused() -> None:
    """Else a user's word, which comes last, would silently win over the plan.

    A chat template may come from the image instead; both at once are refused where they meet.
    """
    model = {
        key: value
        for key, value in FULL_SPEC["model"].items()
        if key not in {"config", "source", "chatTemplateRef"}
    }
    spec = parse_spec(
        {
            "model": {**model, "name": "deepseek-ai/DeepSeek-V3", "trustRemoteCode": True},
            "slo": {"concurrency": 8},
        }
    )
    pool = Pool(gpu=find_gpu("H100-SXM-80GB"), gpus_per_node=8, nodes=2)
    made = plan(plan_request(spec, (pool,)))

    words = {
        word
        for role in Role
        for word in engine_command(spec, made, role, startup_s=600, ports=ports_of(spec, made))
        if word.startswith("--")
    }

    assert "--data-parallel-size" in words
    assert {word for word in words if refusal(word) is None} == OVERRIDABLE


def test_a_key_behind_another_option_in_one_word_is_not_shown() -> None:
    with pytest.raises(SpecError) as caught:
        check_extra_args(("--enforce-eager --api-key sk-123",))

    assert "sk-123" not in str(caught.value)
