"""Write a mixture of experts of a few megabytes with random weights; run by the engine's own Python.

Its tokenizer is that of another model: the two differ in their layers alone.
"""

import shutil
import sys
from pathlib import Path

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

VOCABULARY = 512
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def main(folder: Path, dense: Path) -> None:
    """Write the model folder with the tokenizer of ``dense``, readable for every user id."""
    folder.mkdir(parents=True)
    torch.manual_seed(1)
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=256,
            moe_intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            num_experts=8,
            num_experts_per_tok=2,
            decoder_sparse_step=1,
            max_position_embeddings=2048,
            bos_token_id=1,
            eos_token_id=2,
            tie_word_embeddings=False,
            initializer_range=0.1,
            dtype="float32",
        )
    )
    model.save_pretrained(folder)
    for name in TOKENIZER:
        if (dense / name).exists():
            shutil.copy(dense / name, folder / name)
    for path in folder.iterdir():
        path.chmod(0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
