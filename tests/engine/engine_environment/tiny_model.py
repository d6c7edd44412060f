"""Write a Llama of a few megabytes with random weights, its tokenizer, and what it answers.

Run by the engine's own Python. The weights are spread wider than transformers' default of 0.02, with which a
small random model repeats one token for ever and any two engines agree.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 512
PROMPT_IDS = (298, 291, 261, 297, 292, 288)
ANSWER_TOKENS = 16


def main(folder: Path) -> None:
    """Write the model folder, readable for every user id."""
    folder.mkdir(parents=True)
    _tokenizer().save_pretrained(folder)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=2048,
            bos_token_id=1,
            eos_token_id=2,
            tie_word_embeddings=False,
            initializer_range=0.1,
            dtype="float32",
        )
    )
    model.save_pretrained(folder)
    model.eval()
    prompt = torch.tensor([PROMPT_IDS])
    answer = model.generate(
        prompt, max_new_tokens=ANSWER_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0].tolist()
    expected = {"promptIds": list(PROMPT_IDS), "tokenIds": answer[len(PROMPT_IDS) :]}
    (folder / "expected.json").write_text(json.dumps(expected))
    for path in folder.iterdir():
        path.chmod(0o644)


def _tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    text = "a shard holds a slice of every layer and a stage holds every slice of a few layers"
    tokenizer.train_from_iterator([text] * 20, trainer)
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    return fast


if __name__ == "__main__":
    main(Path(sys.argv[1]))
