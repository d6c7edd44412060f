"""What vLLM answers in one process, without any parallelism; run by the engine's own Python.

It also leaves in vLLM's cache what it learns about the model's class, for which every later start would take
some twenty seconds.
"""

import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams

TOKENS = 12


def main(folder: Path, prompts: Path, answers: Path) -> None:
    """Write the answers to all prompts, both as lists of token ids."""
    llm = LLM(model=str(folder), dtype="float32", enforce_eager=True, max_model_len=256, max_num_seqs=4)
    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    given = json.loads(prompts.read_text())
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in given], sampling, use_tqdm=False)
    answers.write_text(json.dumps([list(output.outputs[0].token_ids) for output in outputs]))


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
