"""The options that stand for fields of the spec, and the place of each in the spec."""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from shardwright_operator.cli.console import CommandParser


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option that stands for a field of the spec."""

    flag: str
    field: str
    """Path in the spec with dots."""
    help: str
    kind: type = str
    metavar: str | None = None
    choices: tuple[str, ...] | None = None

    @property
    def key(self) -> str:
        """Name of the parsed value."""
        return self.flag.removeprefix("--").replace("-", "_")


MODEL_OPTIONS = (
    Option(flag="--model", field="model.name", metavar="NAME", help="Hub id of a model in the catalogue"),
    Option(flag="--dtype", field="model.dtype", metavar="TYPE", help="bfloat16, float16 or float32"),
    Option(
        flag="--quantization",
        field="model.quantization",
        metavar="METHOD",
        help="such as fp8, in vLLM's word",
    ),
    Option(
        flag="--kv-cache-dtype", field="model.kvCacheDtype", metavar="TYPE", help="auto, fp8, fp8_e4m3, ..."
    ),
)
HARDWARE_OPTIONS = (
    Option(
        flag="--gpu", field="hardware.gpu", metavar="NAME", help="such as H100-SXM-80GB, or its node label"
    ),
    Option(
        flag="--gpus-per-node", field="hardware.gpusPerNode", kind=int, metavar="N", help="GPUs of each node"
    ),
    Option(
        flag="--nodes",
        field="hardware.maxNodes",
        kind=int,
        metavar="N",
        help="nodes that one replica may use",
    ),
    Option(
        flag="--node-bandwidth-gbps",
        field="network.nodeBandwidthGbps",
        kind=int,
        metavar="N",
        help="network rate of a node one way, all NICs together",
    ),
)
LOAD_OPTIONS = (
    Option(
        flag="--input-tokens",
        field="workload.inputTokens",
        kind=int,
        metavar="N",
        help="prompt tokens of the typical request (2048)",
    ),
    Option(
        flag="--output-tokens",
        field="workload.outputTokens",
        kind=int,
        metavar="N",
        help="output tokens of the typical request (256)",
    ),
    Option(
        flag="--max-model-len",
        field="workload.maxModelLength",
        kind=int,
        metavar="N",
        help="longest request in tokens, prompt and output (planned)",
    ),
    Option(
        flag="--requests-per-second",
        field="workload.requestsPerSecond",
        kind=float,
        metavar="X",
        help="load over all replicas; gives their number",
    ),
    Option(
        flag="--concurrency",
        field="slo.concurrency",
        kind=int,
        metavar="N",
        help="steady concurrent requests of one replica (32)",
    ),
    Option(
        flag="--tpot",
        field="slo.timePerOutputToken",
        metavar="TIME",
        help="wanted time per output token: 50ms",
    ),
    Option(
        flag="--ttft", field="slo.timeToFirstToken", metavar="TIME", help="wanted time to first token: 2s"
    ),
    Option(
        flag="--policy",
        field="slo.policy",
        choices=("BestEffort", "Require"),
        help="whether missing the service level is refused (BestEffort)",
    ),
)
PIN_OPTIONS = (
    Option(flag="--tensor", field="parallelism.tensor", kind=int, metavar="N", help="pin tensor parallelism"),
    Option(
        flag="--pipeline", field="parallelism.pipeline", kind=int, metavar="N", help="pin pipeline stages"
    ),
    Option(flag="--data", field="parallelism.data", kind=int, metavar="N", help="pin data parallelism"),
    Option(
        flag="--gpu-memory-utilization",
        field="engine.gpuMemoryUtilization",
        kind=float,
        metavar="X",
        help="share of the GPU's memory for the engine",
    ),
    Option(
        flag="--max-num-seqs",
        field="engine.maxNumSeqs",
        kind=int,
        metavar="N",
        help="most requests in a step",
    ),
    Option(
        flag="--max-num-batched-tokens",
        field="engine.maxNumBatchedTokens",
        kind=int,
        metavar="N",
        help="most tokens in a step",
    ),
    Option(flag="--engine-version", field="engine.version", metavar="X.Y", help="vLLM version to plan for"),
)
SWITCHES = (
    ("expert", "parallelism.expert", "spread experts whole over the ranks, or --no-expert: cut them"),
    ("cross_node_tensor", "parallelism.crossNodeTensor", "let tensor parallelism cross nodes"),
)
"""Key of the parsed value, place in the spec, and help of options that are on or off."""

_ALL = (*MODEL_OPTIONS, *HARDWARE_OPTIONS, *LOAD_OPTIONS, *PIN_OPTIONS)

FLAG_OF: Mapping[str, str] = MappingProxyType({f"spec.{option.field}": option.flag for option in _ALL})
"""The option that stands for a field, for refusals in the words of whoever asked by options."""


class _Once(argparse.Action):
    """A value that may be given once: of two files the first was left out, and nobody was told."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice; put several resources into one file, or pipe them")
        setattr(namespace, self.dest, values)


def add_options(parser: CommandParser) -> None:
    """The options by which a question can be asked or altered."""
    source = parser.add_argument_group("what to plan")
    source.add_argument(
        "-f", "--filename", metavar="FILE", action=_Once, help="ModelDeployment manifest, or - for stdin"
    )
    _add(source, MODEL_OPTIONS)
    source.add_argument(
        "--config", metavar="FILE", help="the model's config.json, for models outside the catalogue"
    )
    source.add_argument(
        "--model-dir", metavar="DIR", help="folder of a checkpoint: config.json and the sizes of its tensors"
    )
    source.add_argument(
        "--hub", action="store_true", help="ask the Hugging Face Hub about a model outside the catalogue"
    )
    source.add_argument(
        "--offline", action="store_true", help="with --hub: use what is kept of it, ask nobody"
    )
    _add(parser.add_argument_group("hardware of one replica"), HARDWARE_OPTIONS)
    _add(parser.add_argument_group("load and service level"), LOAD_OPTIONS)
    pins = parser.add_argument_group("pins")
    _add(pins, PIN_OPTIONS)
    for key, _, text in SWITCHES:
        pins.add_argument(
            f"--{key.replace('_', '-')}", action=argparse.BooleanOptionalAction, default=None, help=text
        )


def add_kubeconfig(group: argparse._ActionsContainer) -> None:
    """The option that says which cluster to ask."""
    group.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file; default: KUBECONFIG, as kubectl"
    )


def add_color(group: argparse._ActionsContainer) -> None:
    """The option that says whether to colour the text."""
    group.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colour (auto)")


def given_fields(options: argparse.Namespace) -> dict[str, Any]:
    """Values of the options that were given, by their place in the spec."""
    values = vars(options)
    given = {o.field: values[o.key] for o in _ALL if values.get(o.key) is not None}
    return given | {field: values[key] for key, field, _ in SWITCHES if values.get(key) is not None}


def _add(group: argparse._ArgumentGroup, options: Iterable[Option]) -> None:
    for option in options:
        group.add_argument(
            option.flag, type=option.kind, metavar=option.metavar, choices=option.choices, help=option.help
        )
