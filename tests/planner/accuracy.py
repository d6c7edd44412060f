"""How accurate the planner is on published measurements: ``make accuracy``.

Reads start-ups (capacity) and serving points (latency) from CSV files with the columns of the fixture, asks
the planner the same questions, and prints errors and verdicts with the shipped constants and leave-one-
model-out: with constants fitted on the rows of all other models only. Other predictors' columns are scored
alike. A row that cannot be asked is skipped, with its column and why.
"""

import argparse
import csv
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from calibration import points, readable
from cells import Row, Unscored
from measured_rows import capacity_row, latency_row, read_rows
from scores import (
    capacity_left_out,
    capacity_score,
    capacity_summary,
    grouped,
    is_impossible,
    latency_left_out,
    latency_scores,
    latency_summary,
    peer_scores,
)
from shortfalls import capacity_targets, explained_verdicts, latency_targets, wrong_orders

HERE = Path(__file__).parent / "published"
PEERS = {
    "aic_silicon": "aiconfigurator SILICON",
    "aic_sol": "aiconfigurator SOL",
    "fit9": "nine-constant fit",
}
SHOWN = 8
PIPELINE_NOTE = "rows with PP > 1: {}; pipeline figures rest on next to no measurements"


def report(capacity: Path | None, latency: Path | None) -> dict[str, object]:
    """All figures, as plain JSON types."""
    found: dict[str, object] = {}
    if capacity is not None:
        found["capacity"] = _capacity(read_rows(capacity))
    if latency is not None:
        found["latency"] = _latency(read_rows(latency))
    return found


def _capacity(rows: Sequence[Row]) -> dict[str, object]:
    usable, counted = _usable(rows, capacity_row)
    shipped = [capacity_score(row) for row in usable]
    left_out = capacity_left_out(usable, _beside(usable, "capacity.csv", capacity_row))
    return {
        "rows": counted,
        "pipelineRows": sum(row.pipeline > 1 for row in usable),
        "shippedConstants": capacity_summary(shipped),
        "leaveOneModelOut": capacity_summary(left_out),
        "targets": capacity_targets(capacity_summary(left_out)),
        "wrongVerdicts": explained_verdicts(left_out),
        "byModel": _each(left_out, lambda row: row.model, capacity_summary),
        "byLayout": _each(left_out, lambda row: f"TP{row.tensor} x PP{row.pipeline}", capacity_summary),
    }


def _latency(rows: Sequence[Row]) -> dict[str, object]:
    usable, counted = _usable(rows, latency_row)
    sample = points(usable)
    left_out = latency_left_out(sample, points(_beside(usable, "latency.csv", latency_row)))
    impossible = [point.row.id for point in sample if is_impossible(point)]
    possible = latency_summary([score for score in left_out if score.row.id not in impossible])
    return {
        "rows": counted,
        "pipelineRows": sum(row.layout.pipeline > 1 for row in usable),
        "fasterThanTheHardware": impossible,
        "shippedConstants": latency_summary(latency_scores(sample)),
        "leaveOneModelOut": latency_summary(left_out),
        "leaveOneModelOutWithoutImpossible": possible,
        "targets": latency_targets(latency_summary(left_out), possible),
        "wrongOrders": wrong_orders(left_out, impossible),
        "comparators": {title: latency_summary(peer_scores(usable, name)) for name, title in PEERS.items()},
        "byModel": _each(left_out, lambda row: row.model, latency_summary),
        "byLayout": _each(
            left_out, lambda row: f"TP{row.layout.tensor} x PP{row.layout.pipeline}", latency_summary
        ),
    }


def _usable(rows: Sequence[Row], read: Callable) -> tuple[list, dict[str, object]]:
    usable = []
    skipped: dict[str, list[str]] = {}
    reasons = []
    for row in rows:
        try:
            usable.append(read(row))
        except Unscored as lacking:
            skipped.setdefault(lacking.column, []).append(row["id"])
            reasons.append({"id": row["id"], "column": lacking.column, "reason": lacking.reason})
    counted = {"given": len(rows), "scored": len(usable), "skipped": len(rows) - len(usable)}
    return usable, counted | {"skippedForColumn": dict(sorted(skipped.items())), "skippedRows": reasons}


def _beside(rows: Sequence, file: str, read: Callable) -> list:
    # A file of a few rows, or of one model, is no sample to fit on: the fixture's rows stand beside it. They
    # are left out with their model like any other.
    there = {(row.id, row.model) for row in rows}
    return [row for row in readable(read_rows(HERE / file), read) if (row.id, row.model) not in there]


def _each(scores: Sequence, key: Callable, summary: Callable) -> dict[str, object]:
    return {name: summary(part) for name, part in grouped(scores, key).items()}


def text(found: Mapping) -> Iterator[str]:
    """The report as tables."""
    if "capacity" in found:
        yield from _capacity_text(found["capacity"])
    if "latency" in found:
        yield from _latency_text(found["latency"])


def _rows_text(title: str, part: Mapping) -> Iterator[str]:
    rows = part["rows"]
    yield f"{title}: {rows['given']} rows given, {rows['scored']} scored, {rows['skipped']} skipped"
    for column, ids in rows["skippedForColumn"].items():
        yield f"  skipped for {column}: {len(ids)}"
        lacking = [row for row in rows["skippedRows"] if row["column"] == column]
        yield from (f"    {row['id']}: {row['reason']}" for row in lacking[:SHOWN])
        if len(ids) > SHOWN:
            yield f"    and {len(ids) - SHOWN} more"
    yield "  " + PIPELINE_NOTE.format(part["pipelineRows"])


def _capacity_text(part: Mapping) -> Iterator[str]:
    yield from _rows_text("Capacity", part)
    head = ("weights", "KV GiB", "KV tokens", "over 5 %", "fits", "does not fit")
    yield _line("median / 90th percentile of |error|", head)
    for title in ("shippedConstants", "leaveOneModelOut"):
        yield _line(_TITLES[title], _capacity_cells(part[title]))
    yield from _targets_text(part["targets"])
    yield f"  wrong verdicts: {len(part['wrongVerdicts'])}"
    for row, why in part["wrongVerdicts"].items():
        yield from textwrap.wrap(f"{row}: {why}.", 150, initial_indent="    ", subsequent_indent="      ")
    for name in ("byModel", "byLayout"):
        yield _line(f"{_TITLES[name]}, leave-one-model-out", head)
        for key, summary in part[name].items():
            yield _line(key, _capacity_cells(summary))
    yield ""


def _capacity_cells(summary: Mapping) -> tuple[str, ...]:
    over, fits, refused = summary["overPromised"], summary["fits"], summary["doesNotFit"]
    return (
        _error_cell(summary["weights"]),
        _error_cell(summary["availableGib"]),
        _error_cell(summary["kvTokens"]),
        f"{over['rows']}/{over['of']}",
        f"{fits['right']}/{fits['of']}",
        f"{refused['right']}/{refused['of']}",
    )


def _latency_text(part: Mapping) -> Iterator[str]:
    yield from _rows_text("Latency", part)
    odd = part["fasterThanTheHardware"]
    yield f"  rows measured faster than the memory's peak rate allows (scored all the same): {len(odd)}"
    head = ("TPOT", "TTFT", "order", "order >5 %", "20 ms", "30 ms", "50 ms")
    yield _line("median / 90th percentile of |error|; false accepts / rejects", head)
    for title in ("shippedConstants", "leaveOneModelOut", "leaveOneModelOutWithoutImpossible"):
        yield _line(_TITLES[title], _latency_cells(part[title]))
    for title, summary in part["comparators"].items():
        yield _line(title, _latency_cells(summary))
    yield from _targets_text(part["targets"])
    yield from _orders_text(part["wrongOrders"])
    for name in ("byModel", "byLayout"):
        yield _line(f"{_TITLES[name]}, leave-one-model-out", head)
        for key, summary in part[name].items():
            yield _line(key, _latency_cells(summary))


def _targets_text(targets: Sequence[Mapping]) -> Iterator[str]:
    yield "  targets, leave-one-model-out"
    for target in targets:
        value = "-" if target["value"] is None else f"{target['value']:.4f}"
        verdict = {None: "not measured", True: "reached", False: "MISSED"}[target["reached"]]
        yield f"    {target['name']:42s} {target['target']:>8s}  {value:>8s}  {verdict}"


def _orders_text(found: Mapping) -> Iterator[str]:
    yield "  pairs in the wrong order, leave-one-model-out"
    for name, counts in found["bySystem"].items():
        impossible, near, nearer = (
            counts.get(key, 0)
            for key in ("wrongWithImpossibleRow", "wrongWithin5Percent", "wrongWithin10Percent")
        )
        close = f"{near} measured within 5 %, {nearer} within 10 %"
        what = f"{impossible} with a row faster than the hardware, {close}"
        yield f"    {name}: {counts.get('wrong', 0)} of {counts['pairs']}; {what}"
    differences = ", ".join(f"{name} {count}" for name, count in found["byDifference"].items())
    yield f"    by what the rows differ in, impossible ones apart: {differences or 'none'}"


def _latency_cells(summary: Mapping) -> tuple[str, ...]:
    order = summary["orderings"]
    return (
        _error_cell(summary["timePerOutputToken"]),
        _error_cell(summary["timeToFirstToken"]),
        _per_cent(order["right"]),
        _per_cent(order["rightApart"]),
        *(
            f"{_per_cent(v['falseAccepts'])} / {_per_cent(v['falseRejects'])}"
            for v in summary["verdicts"].values()
        ),
    )


_TITLES = {
    "shippedConstants": "shipped constants",
    "leaveOneModelOut": "leave-one-model-out",
    "leaveOneModelOutWithoutImpossible": "the same without rows faster than the hardware",
    "byModel": "by model",
    "byLayout": "by (TP, PP)",
}


def _error_cell(found: Mapping | None) -> str:
    if found is None:
        return "-"
    return f"{100 * found['median']:.1f} / {100 * found['p90']:.1f} %"


def _per_cent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _line(title: str, cells: Sequence[str]) -> str:
    return f"  {title[:62]:62s}" + "".join(f"{cell:>16s}" for cell in cells)


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--capacity", type=Path, help="start-up rows; the fixture without any file")
    parser.add_argument("--latency", type=Path, help="serving rows; the fixture without any file")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    files = (options.capacity, options.latency)
    if not any(files):
        files = (HERE / "capacity.csv", HERE / "latency.csv")
    try:
        found = report(*files)
    except (OSError, csv.Error) as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1) if options.output == "json" else "\n".join(text(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
