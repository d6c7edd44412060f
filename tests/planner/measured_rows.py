"""Published measurements as questions to the planner: one record per row, or the column that is missing.

The files have the columns of two public collections: start-up memory of vLLM (capacity) and serving latency
(latency). A row is asked exactly as the engine was started; what it does not say takes the default of that
engine version.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cells import Row, Unscored, degree, number, positive, said, whole

from shardwright_planner import (
    EngineOptions,
    Gpu,
    ModelFacts,
    PlanInputError,
    PlanRequest,
    Pool,
    ServiceLevel,
    Workload,
    find_gpu,
    find_model,
    model_names,
)
from shardwright_planner.engine import find_engine
from shardwright_planner.layout import Layout
from shardwright_planner.partition import own_partition
from shardwright_planner.quantization import parse_quantization
from shardwright_planner.setting import settings

STARTED = {"fit": True, "oom": False, "kv_too_small": False, "invalid_config": False}

CHANNEL_FP8 = {
    "quant_method": "compressed-tensors",
    "ignore": ["lm_head"],
    "config_groups": {
        "all": {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}
    },
}
BLOCK_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
CHANNEL_INT8 = {
    "quant_method": "compressed-tensors",
    "ignore": ["lm_head"],
    "config_groups": {
        "all": {"weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8}}
    },
}
GROUP_INT4 = {"quant_method": "gptq", "bits": 4, "group_size": 128}
NVFP4 = {
    "quant_method": "compressed-tensors",
    "ignore": ["lm_head"],
    "config_groups": {"all": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
}
# Endings by which people who quantize a model mark the checkpoint.
ENDINGS = (
    (r"[-.](fp8[-_]dynamic|fp8)$", CHANNEL_FP8),
    (r"[-.](quantized\.)?w8a8$", CHANNEL_INT8),
    (r"[-.](quantized\.)?(int4-)?w4a16$", GROUP_INT4),
    (r"[-.](qat-)?(gptq|awq|int4|gptq-int4|awq-int4)$", GROUP_INT4),
    (r"[-.]nvfp4$", NVFP4),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRow:
    """One start-up. Sizes in GiB; None where it was not published."""

    id: str
    model: str
    request: PlanRequest
    tensor: int
    pipeline: int
    data: int
    expert: bool
    weights: float | None
    available: float | None
    tokens: float | None
    activation: float | None
    context: float | None
    graphs: float | None
    started: bool | None

    @property
    def shape(self) -> str:
        """The same for all checkpoints of one architecture, under whatever name."""
        model = self.request.model
        return f"{model.hidden_size} x {model.layer_count}"

    @property
    def layout(self) -> Layout:
        """The sizes that the engine was started with, on as few nodes of the pool as hold them."""
        world = self.tensor * self.pipeline * self.data
        layers = self.request.model.layer_count
        stages = min(self.pipeline, layers)
        return Layout(
            tensor=self.tensor,
            pipeline=self.pipeline,
            data=self.data,
            expert=self.expert,
            gpus_per_node=world,
            partition=own_partition(layers, stages),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow:
    """One measured serving point; seconds. ``peers`` are other predictors' (TPOT, TTFT) by name."""

    id: str
    model: str
    system: str
    request: PlanRequest
    layout: Layout
    token_s: float
    first_s: float | None
    peers: Mapping[str, tuple[float | None, float | None]]

    @property
    def question(self) -> tuple[object, ...]:
        """What was measured: equal for rows that are in a file several times."""
        load, scheme = self.request.workload, self.request.model.quantization
        method = scheme.method if scheme else ""
        return self.model, method, self.system, self.layout, load, self.request.service_level.concurrency


def read_rows(path: Path) -> list[Row]:
    """Every row of a CSV file with a header, as text under the header's names.

    Columns that the header does not have are empty, cells beyond it are dropped, and a row without an id is
    called by its line.
    """
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.DictReader(file)
        rows = []
        for row in reader:
            cells = {name.strip(): value for name, value in row.items() if name and isinstance(value, str)}
            rows.append(cells | {"id": cells.get("id", "").strip() or f"line {reader.line_num}"})
        return rows


def capacity_row(row: Row) -> CapacityRow:
    """The start-up that a row describes.

    Raises:
        Unscored: naming the first column without which nothing can be asked.
    """
    if "spec decode" in row.get("notes", ""):
        raise Unscored("notes", "speculative decoding adds a model that no column describes")
    if "low-confidence" in row.get("notes", ""):
        raise Unscored("notes", "its own note calls the outcome of low confidence: the error was not read")
    version = _version(row.get("vllm_version", ""))
    model = _model(row.get("model_id", ""), "model_id")
    gpu = _gpu(row.get("gpu", ""), "gpu")
    tensor = degree(row, "tp", None)
    pipeline, data = degree(row, "pp", 1), degree(row, "dp", 1)
    utilization = number(row.get("gpu_memory_utilization", ""))
    if utilization is not None and not 0.05 <= utilization <= 1.0:
        raise Unscored("gpu_memory_utilization", f"{utilization:g} is no share from 0.05 to 1")
    values = [number(row.get(name, "")) for name in ("weights_gib_per_gpu", "available_kv_gib", "kv_tokens")]
    started = STARTED.get(row.get("outcome", "").strip().lower())
    if started is None and all(value is None for value in values):
        known = ", ".join(STARTED)
        raise Unscored("outcome", f"neither one of {known}, nor weights or KV figures to compare")
    stated = re.search(r"\bdtype=(\w+)", row.get("notes", ""))
    longest = whole(row.get("max_model_len", "")) or model.max_position
    request = PlanRequest(
        model=replace(model, max_position=max(model.max_position, longest)),
        pools=(Pool(gpu=gpu, gpus_per_node=max(8, tensor * pipeline * data), nodes=1),),
        workload=Workload(input_tokens=1, output_tokens=1, max_model_length=max(2, longest)),
        service_level=ServiceLevel(concurrency=1),
        engine=EngineOptions(
            version=version,
            dtype=stated.group(1) if stated else None,
            quantization=_online(row.get("quantization", ""), model),
            kv_cache_dtype=_cache_dtype(row.get("kv_dtype", "")),
            gpu_memory_utilization=utilization,
            max_num_seqs=whole(row.get("max_num_seqs", "")),
            max_num_batched_tokens=whole(row.get("max_num_batched_tokens", "")),
        ),
    )
    names = ("activation_gib", "non_torch_gib", "cudagraph_gib")
    activation, context, graphs = (number(row.get(name, "")) for name in names)
    return CapacityRow(
        id=row.get("id", ""),
        model=model.name,
        request=request,
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        expert=row.get("ep", "").strip().lower() == "true",
        weights=values[0],
        available=values[1],
        tokens=values[2],
        activation=activation,
        context=context,
        graphs=graphs,
        started=started,
    )


def latency_row(row: Row) -> LatencyRow:
    """The serving point that a row describes.

    Raises:
        Unscored: naming the first column without which nothing can be asked.
    """
    model = _stored(
        _model(row.get("model_path", ""), "model_path"), row.get("gemm_quant_mode", "").strip().lower()
    )
    system = row.get("system", "")
    gpu = _gpu(system.replace("_", "-"), "system")
    inputs, outputs, batch, token = (
        positive(row, name) for name in ("isl", "osl", "batch_size", "silicon_tpot_ms")
    )
    first = number(row.get("silicon_ttft_ms", ""))
    tensor, pipeline = degree(row, "tp_size", None), degree(row, "pp_size", 1)
    data = degree(row, "attention_dp_size", 1)
    if pipeline > model.layer_count:
        raise Unscored("pp_size", f"{pipeline} stages for the {model.layer_count} layers of {model.name}")
    expert = degree(row, "moe_ep_size", 1) > 1
    load = Workload(input_tokens=max(1, int(inputs)), output_tokens=max(1, int(outputs)))
    # The engine's own context limit does not bear on latency.
    model = replace(model, max_position=max(model.max_position, load.input_tokens + load.output_tokens))
    world = tensor * pipeline * data
    nodes = -(-world // 8)
    request = PlanRequest(
        model=model,
        pools=(Pool(gpu=gpu, gpus_per_node=8, nodes=nodes),),
        workload=load,
        # The file's batch is that of one attention rank.
        service_level=ServiceLevel(concurrency=max(1, round(batch * data))),
    )
    _check(request, ("isl", "osl", "batch_size"))
    return LatencyRow(
        id=row.get("id", ""),
        model=model.name,
        system=system,
        request=request,
        layout=Layout(
            tensor=tensor,
            pipeline=pipeline,
            data=data,
            expert=expert,
            nodes=nodes,
            gpus_per_node=-(-world // nodes),
            partition=own_partition(model.layer_count, pipeline),
        ),
        token_s=token / 1e3,
        first_s=first / 1e3 if first is not None and first > 0 else None,
        peers=dict(_peers(row)),
    )


def _stored(model: ModelFacts, mode: str) -> ModelFacts:
    # The file's mode says which checkpoint of the model ran; a native format is kept as it is.
    stored = model.quantization.method if model.quantization else ""
    vendor = find_model(f"nvidia/{model.name.rsplit('/', maxsplit=1)[-1]}-Instruct-FP8")
    if mode == "fp8" and not stored and vendor is not None:
        # Its cache is in 8 bits too: a GPU ran 32 requests of 9,216 tokens that hold 19 of in 16 bits.
        return replace(model, quantization=vendor.quantization)
    if mode.startswith("fp8") and not stored:
        section = BLOCK_FP8 if "block" in mode else CHANNEL_FP8
        return replace(model, quantization=parse_quantization(section))
    if mode == "nvfp4" and stored not in {"mxfp4", "modelopt_fp4", "modelopt_mixed"}:
        return replace(model, quantization=parse_quantization(NVFP4))
    return model


def _peers(row: Row) -> Iterator[tuple[str, tuple[float | None, float | None]]]:
    for name in ("aic_silicon", "aic_sol", "fit9"):
        pair = (number(row.get(f"{name}_tpot_ms", "")), number(row.get(f"{name}_ttft_ms", "")))
        yield name, (pair[0] / 1e3 if pair[0] else None, pair[1] / 1e3 if pair[1] else None)


def _check(request: PlanRequest, columns: tuple[str, ...]) -> None:
    # What the planner refuses as a question cannot be held against its answer.
    try:
        settings(request)
    except PlanInputError as error:
        raise Unscored("/".join(columns), f"{error.field}: {error.limit}") from error


def _version(text: str) -> str:
    found = re.search(r"\d+\.\d+", text)
    if found is None:
        raise Unscored("vllm_version", said(text, "is no version"))
    try:
        return find_engine(found.group()).version
    except PlanInputError as error:
        raise Unscored("vllm_version", said(text, error.limit)) from error


def _gpu(text: str, column: str) -> Gpu:
    for candidate in (text, text.split("(", maxsplit=1)[0], re.sub(r"-sxm$", "", text)):
        try:
            return find_gpu(candidate)
        except PlanInputError:
            continue
    raise Unscored(column, said(text, "is no GPU of the catalogue"))


def _model(name: str, column: str) -> ModelFacts:
    found = find_model(name) or _by_basename(name) or _by_ending(name)
    if found is None:
        raise Unscored(column, said(name, "is no model of the catalogue"))
    return found


def _by_ending(name: str) -> ModelFacts | None:
    for ending, section in ENDINGS:
        base = re.sub(ending, "", name, flags=re.IGNORECASE)
        if base == name:
            continue
        found = find_model(base) or _by_basename(base)
        if found is not None and found.quantization is None:
            return replace(found, name=name, quantization=parse_quantization(section))
    return None


def _by_basename(name: str) -> ModelFacts | None:
    wanted = name.rsplit("/", maxsplit=1)[-1].lower()
    full = _basenames().get(wanted) or _basenames().get(f"meta-{wanted}")
    return find_model(full) if full else None


@cache
def _basenames() -> Mapping[str, str]:
    return {name.rsplit("/", maxsplit=1)[-1].lower(): name for name in reversed(model_names())}


def _online(scheme: str, model: ModelFacts) -> str | None:
    return "fp8" if scheme.strip().lower() == "fp8" and model.quantization is None else None


def _cache_dtype(text: str) -> str | None:
    stated = text.strip().lower()
    if stated in {"", "auto", "none"}:
        return None
    if not stated.startswith(("fp8", "bf16", "bfloat16", "fp16", "float16")):
        raise Unscored("kv_dtype", said(text, "is no cache dtype of the planner"))
    return {"bf16": "bfloat16", "fp16": "float16"}.get(stated, stated)
