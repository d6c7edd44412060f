"""The part that runs in the engine's Python: reads questions, asks vLLM, writes answers.

One JSON object per line each way. Importing vLLM takes about 15 s, a question some milliseconds, so that one
process serves thousands of questions. The words go the way that ``vllm serve`` sends them, up to the complete
configuration and, when asked for, to one rank's layers without weights; nothing is started.
"""

import contextlib
import functools
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from construction import rank_bytes, stand_in_for_kernels
from vllm.config import VllmConfig
from vllm.distributed.utils import get_pp_indices
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.model_executor.models import registry
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser


class _RefusalError(Exception):
    """The parser's own words."""


def main() -> None:
    """Answer until the input ends."""
    questions, answers = sys.stdin, _own_output()
    # Meant to keep CUDA out of this process; here it would only import vLLM once more for every family.
    registry._run_in_subprocess = _called
    stand_in_for_kernels()
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    _say(answers, {"ready": True})
    for line in questions:
        question = json.loads(line)
        started = time.monotonic()
        answer = _answer(parser, question)
        answer["seconds"] = round(time.monotonic() - started, 4)
        _say(answers, answer)


def _called(function: Callable[[], Any]) -> Any:
    return function()


def _own_output() -> TextIO:
    # Libraries print what they like: they get the error stream, the answers their own descriptor.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


def _answer(parser: FlexibleArgumentParser, question: dict[str, Any]) -> dict[str, Any]:
    given = {name: str(value) for name, value in question.get("env", {}).items()}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        options, config = _configured(parser, question["words"])
        answer = {"facts": _facts(options, config)}
        if "stages" in question:
            make = functools.partial(rank_bytes, config, tensor_rank=question.get("tensorRank", 0))
            answer["rankBytes"] = [make(stage=stage) for stage in question["stages"]]
    except _RefusalError as refused:
        return {"refusal": str(refused)}
    except Exception as error:  # noqa: BLE001 - whatever vLLM raises is its answer
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.partition('site-packages/')[2]}:{place.lineno}"
        return {"refusal": f"{type(error).__name__}: {error}", "where": where}
    else:
        return answer
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _configured(parser: FlexibleArgumentParser, words: list[str]) -> tuple[Any, VllmConfig]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = parser.parse_args(words)
    except SystemExit:
        raise _RefusalError(said.getvalue().strip().splitlines()[-1]) from None
    if options.model_tag:
        options.model = options.model_tag
    validate_parsed_serve_args(options)
    arguments = AsyncEngineArgs.from_cli_args(options)
    config = arguments.create_engine_config(
        usage_context=UsageContext.OPENAI_API_SERVER, headless=options.headless
    )
    return options, config


def _facts(options: Any, config: VllmConfig) -> dict[str, Any]:
    parallel, model, cache = config.parallel_config, config.model_config, config.cache_config
    lora, speculative = config.lora_config, config.speculative_config
    layers, stages = model.get_total_num_hidden_layers(), parallel.pipeline_parallel_size
    bounds = [get_pp_indices(layers, stage, stages) for stage in range(stages)]
    return {
        "tensorParallel": parallel.tensor_parallel_size,
        "pipelineParallel": parallel.pipeline_parallel_size,
        "dataParallel": parallel.data_parallel_size,
        "dataParallelLocal": parallel.data_parallel_size_local,
        "dataParallelRank": parallel.data_parallel_rank,
        "dataParallelAddress": parallel.data_parallel_master_ip,
        "dataParallelPort": parallel.data_parallel_rpc_port,
        "expertParallel": parallel.enable_expert_parallel,
        "worldSize": parallel.world_size,
        "localWorldSize": parallel.local_world_size,
        "nodes": parallel.nnodes,
        "nodesWithinDataRank": parallel.nnodes_within_dp,
        "nodeRank": parallel.node_rank,
        "nodeRankWithinDataRank": parallel.node_rank_within_dp,
        "masterAddress": parallel.master_addr,
        "masterPort": parallel.master_port,
        "distributedTimeout": parallel.distributed_timeout_seconds,
        "executor": str(parallel.distributed_executor_backend),
        "headless": bool(options.headless),
        "architecture": model.architecture,
        "maxModelLength": model.max_model_len,
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": model.quantization,
        "servedName": model.served_model_name,
        "revision": model.revision,
        "trustRemoteCode": model.trust_remote_code,
        "isMoe": model.is_moe,
        "experts": model.get_num_experts(),
        "stageLayers": [end - start for start, end in bounds],
        "cacheDtype": cache.cache_dtype,
        "memoryUtilization": cache.gpu_memory_utilization,
        "maxSequences": config.scheduler_config.max_num_seqs,
        "maxBatchedTokens": config.scheduler_config.max_num_batched_tokens,
        "host": options.host,
        "port": options.port,
        "shutdownTimeout": config.shutdown_timeout,
        "maxLoraRank": lora.max_lora_rank if lora else None,
        "speculation": [speculative.method, speculative.num_speculative_tokens] if speculative else None,
        "chatTemplate": options.chat_template,
    }


if __name__ == "__main__":
    main()
