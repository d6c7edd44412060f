"""``shardwright ledger``: where memory goes over all sizes, and what a step sends between GPUs.

A plan is a choice; a ledger only counts. ``--simple`` counts as one would on paper, with its constants as
options, so that figures which people know can be compared with what the engine really holds.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.plan_request import model_facts
from shardwright_operator.cli.console import EXIT_OK, CommandParser, width, wrap
from shardwright_operator.cli.options import add_options
from shardwright_operator.cli.question import Question, questions
from shardwright_planner import ModelFacts, Pins, PlanRequest
from shardwright_planner.gpu import GIB
from shardwright_planner.ledger import (
    CommunicationLedger,
    MemoryRow,
    communication_ledger,
    memory_table,
    render_communication,
    render_memory,
)
from shardwright_planner.setting import node_bytes_per_s, settings
from shardwright_planner.simple import SimpleAssumptions, SimpleTable, render_simple, simple_table


def parser(name: str) -> CommandParser:
    """The parser of ``shardwright ledger``."""
    found = CommandParser(
        name,
        "Print the memory of every layout on the given hardware, then what one forward step sends between "
        "GPUs at bare link rates. Nothing is chosen; the communication is that of the planned sizes, or of "
        "--tensor and --pipeline. With --simple only a model is needed.",
        (
            "--model Qwen/Qwen3-32B --gpu H100-SXM-80GB --gpus-per-node 8 --nodes 2",
            "-f examples/llama-3.1-405b.yaml --tokens 64",
            "--simple --model meta-llama/Llama-3.1-70B",
            "--simple --model meta-llama/Llama-3.1-70B --gpu-bytes 141e9 --reserved-gib 6",
        ),
    )
    add_options(found)
    output = found.add_argument_group("ledger")
    output.add_argument(
        "--tokens",
        type=_count,
        metavar="N",
        help="tokens of the forward step (the concurrency: a decode step)",
    )
    output.add_argument("-o", "--output", choices=("text", "json"), default="text", help="format (text)")
    simple = found.add_argument_group("simple estimator")
    given = SimpleAssumptions()
    simple.add_argument("--simple", action="store_true", help="evenly spread weights and one reserve")
    for flag, value, text in (
        ("--gpu-bytes", given.gpu_bytes, "memory of a GPU in bytes"),
        ("--utilization", given.utilization, "share of it that is used"),
        ("--reserved-gib", given.reserved_bytes / GIB, "GiB set aside for everything but weights and cache"),
        ("--bytes-per-parameter", given.bytes_per_parameter, "bytes of a weight"),
        ("--cache-bytes", given.cache_bytes, "bytes of a cached number"),
    ):
        simple.add_argument(flag, type=_positive, default=value, metavar="X", help=f"{text} ({value:g})")
    return found


def run(arguments: Sequence[str], parser: CommandParser) -> int:
    """Print the ledgers; several resources one after the other."""
    options = parser.parse_args(arguments)
    if options.simple and options.gpu:
        # Its GPU is a number of bytes: an H200 that was named would be counted as 80e9 bytes.
        parser.error("--simple knows a GPU by --gpu-bytes alone; leave --gpu out")
    count = _simple if options.simple else _full
    made = [count(question, options) for question in questions(options)]
    for place, (record, text) in enumerate(made):
        gap = "\n" if place else ""
        sys.stdout.write(
            f"{json.dumps(record, indent=2)}\n" if options.output == "json" else f"{gap}{text}\n"
        )
    return EXIT_OK


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no positive number")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number above 0")
    return int(text)


def _simple(question: Question, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    assumptions = SimpleAssumptions(
        gpu_bytes=options.gpu_bytes,
        utilization=options.utilization,
        reserved_bytes=round(options.reserved_gib * GIB),
        bytes_per_parameter=options.bytes_per_parameter,
        cache_bytes=options.cache_bytes,
    )
    table: SimpleTable = simple_table(_model(question), assumptions=assumptions)
    rows = [{**asdict(row), "tokens": row.tokens, "long_requests": row.long_requests} for row in table.rows]
    return {**asdict(table), "rows": rows}, render_simple(table)


def _full(question: Question, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    request = question.request()
    sizes = question.answer()
    tokens = options.tokens or request.service_level.concurrency
    (pool,) = request.pools
    (setting,) = settings(request)
    # Pins narrow a plan; the table shows what they leave out as well.
    table = memory_table(replace(request, pins=Pins(cross_node_tensor=request.pins.cross_node_tensor)))
    ledger = communication_ledger(
        request.model,
        cache=(setting.cache_bytes, setting.cache_dtype),
        tokens=tokens,
        tensor=sizes.tensor_parallel,
        pipeline=sizes.pipeline_parallel,
        link_bytes_per_s=pool.gpu.link_bytes_per_s(sizes.tensor_parallel),
        network_bytes_per_s=node_bytes_per_s(pool),
    )
    return (
        {"memory": [asdict(row) for row in table], "communication": asdict(ledger)},
        _text(request, table, ledger),
    )


def _text(request: PlanRequest, table: Sequence[MemoryRow], ledger: CommunicationLedger) -> str:
    load, level = request.workload, request.service_level
    (pool,) = request.pools
    typical = load.input_tokens + load.output_tokens
    hardware = f"{pool.nodes} x {pool.gpus_per_node} {pool.gpu.name}"
    wanted = f"requests of {typical:,} tokens, {level.concurrency} wanted at once"
    heading = wrap([f"{request.model.name} on {hardware}; {wanted}"]).rstrip()
    columns = width()
    tables = (render_memory(table, width=columns), render_communication(ledger, width=columns))
    return "\n\n".join([heading, *tables])


def _model(question: Question) -> ModelFacts:
    try:
        return model_facts(question.deployment.spec)
    except SpecError as error:
        raise question.origin.refused(error) from None
