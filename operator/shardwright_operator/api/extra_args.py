"""Engine arguments that a user may not pass through ``spec.engine.extraArgs``, and what to use instead.

Each of them contradicts a planned value, the way a group finds itself, or would put a secret into the pod's
command line. The parser of vLLM takes underscores for dashes and any unambiguous beginning of an option
(``--tensor-par 4``; Python's argparse, vLLM 0.32 ``FlexibleArgumentParser``), so the look-up does the same.
Names come from ``vllm serve --help=all`` of vLLM 0.32.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pydantic.config import JsonDict

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.fields import rule

REFUSED: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("is planned", "pin it in spec.parallelism"): (
            "--tensor-parallel-size",
            "-tp",
            "--pipeline-parallel-size",
            "-pp",
            "--data-parallel-size",
            "-dp",
            "--enable-expert-parallel",
            "-ep",
        ),
        ("is set for each rank by the operator", "leave it out"): (
            "--nnodes",
            "--node-rank",
            "--master-addr",
            "--master-port",
            "--headless",
            "--data-parallel-address",
            "-dpa",
            "--data-parallel-backend",
            "-dpb",
            "--data-parallel-external-lb",
            "-dpe",
            "--data-parallel-hybrid-lb",
            "-dph",
            "--data-parallel-multi-port-external-lb",
            "-dpm",
            "--data-parallel-rank",
            "-dpn",
            "--data-parallel-rpc-port",
            "-dpp",
            "--data-parallel-size-local",
            "-dpl",
            "--data-parallel-start-rank",
            "-dpr",
            "--data-parallel-supervisor-port",
            "--device-ids",
        ),
        ("is tied to the pod's grace period", "leave it out"): ("--shutdown-timeout",),
        ("reads options from a file, past every check", "write them into spec.engine.extraArgs"): (
            "--config",
        ),
        ("would change how many GPUs a replica takes", "leave it out"): (
            "--prefill-context-parallel-size",
            "-pcp",
            "--enable-elastic-ep",
            "--elastic-ep-max-dp-size",
        ),
        ("is planned with", "use spec.engine.executor"): ("--distributed-executor-backend",),
        ("would show in the pod's command line", "use spec.engine.apiKeySecretRef"): ("--api-key",),
        ("would show in the pod's command line", "use spec.model.source.huggingFace.tokenSecretRef"): (
            "--hf-token",
        ),
        ("is fixed by the Service and the probes", "use spec.engine.port"): (
            "--host",
            "--port",
            "--uds",
            "--grpc",
            "--ssl-keyfile",
            "--ssl-certfile",
        ),
        (
            "is rendered from spec.model",
            "use its name, servedName, revision, dtype, quantization, kvCacheDtype or trustRemoteCode",
        ): (
            "--model",
            "--served-model-name",
            "--revision",
            "--dtype",
            "--quantization",
            "--kv-cache-dtype",
            "--trust-remote-code",
        ),
        ("is planned", "use spec.workload.maxModelLength"): ("--max-model-len",),
        ("is planned", "use spec.engine.maxNumSeqs, maxNumBatchedTokens or gpuMemoryUtilization"): (
            "--max-num-seqs",
            "--max-num-batched-tokens",
            "--gpu-memory-utilization",
            "--kv-cache-memory-bytes",
        ),
    }
)
"""Why (continues "OPTION ...") and what to do instead, to the options that they are for."""

JOINED = ("-n", "-r", "-q")
"""Short options of one letter (``--nnodes``, ``--node-rank``, ``--quantization``): their value may follow
without a space, as in ``-n2``."""

MAX_EXTRA_ARGS = 64
MAX_EXTRA_ARG = 1024


def refusal(argument: str) -> tuple[str, str, str] | None:
    """The refused option that this word means, why, and what to do instead; None for a word that may pass."""
    head = _head(argument)
    if len(head) < 2 or not head.startswith("-"):
        return None
    for (why, instead), options in REFUSED.items():
        for option in options:
            if option.startswith(head):
                return option, why, instead
    if head[:2] in JOINED:
        return head[:2], "is set by the operator or a field of spec.model", "leave it out"
    return None


def check_extra_args(arguments: Iterable[str]) -> None:
    """Refuse the first argument that contradicts the plan.

    Raises:
        SpecError: with a field relative to ``spec.engine``.
    """
    for index, argument in enumerate(arguments):
        field = f"extraArgs[{index}]"
        found = refusal(argument)
        if found is not None:
            option, why, instead = found
            # The message ends in a condition, an event and logs: a key that was given stays out of them.
            shown = argument.split("=", 1)[0].split(" ", 1)[0]
            raise SpecError(field=field, value=shown, limit=f"{option} {why}", remedy=instead)
        if argument.startswith("-") and " " in argument.split("=", 1)[0]:
            raise SpecError(
                field=field,
                value=argument.split(" ", 1)[0],
                limit="each item is one word of the command line",
                remedy="write the option and its value as two items, or join them with =",
            )


def switched_on(arguments: Iterable[str], option: str) -> bool:
    """Whether the arguments switch on an option without a value; the last word about it counts."""
    on = False
    for argument in arguments:
        word, _, value = argument.replace("_", "-").partition("=")
        if word == option:
            on = value.lower() not in {"false", "0"}
        elif word == option.replace("--", "--no-", 1):
            on = False
    return on


def extra_args_rules() -> list[JsonDict]:
    """The same refusals in CEL, one rule for each advice so that the message names the way out."""
    head = "a.split('=')[0].split(' ')[0].replace('_', '-').replace('--no-', '--')"
    found = []
    for (why, instead), options in REFUSED.items():
        quoted = ", ".join(f"'{option}'" for option in options)
        # Two characters at least: a lone "-" begins every option and means none.
        test = f"size(a) < 2 || !a.startsWith('-') || ![{quoted}].exists(o, o.startsWith({head}))"
        which = options[0] if len(options) == 1 else f"each of {', '.join(options)}"
        found.append(rule(f"self.all(a, {test})", f"{which} {why}: {instead}"))
    joined = "".join(option.removeprefix("-") for option in JOINED)
    found.append(
        rule(
            f"self.all(a, !a.matches('^-[{joined}]'))",
            f"each of {', '.join(JOINED)} is set by the operator or a field of spec.model: leave it out",
        )
    )
    found.append(
        rule(
            "self.all(a, !a.startsWith('-') || !a.split('=')[0].contains(' '))",
            "each item is one word: write an option and its value as two items, or join them with =",
        )
    )
    return found


def _head(argument: str) -> str:
    # `--no-x` switches off what `--x` switches on: the same value is contradicted.
    return argument.split("=", 1)[0].split(" ", 1)[0].replace("_", "-").replace("--no-", "--")
