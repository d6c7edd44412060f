"""A checkpoint as it is read for planning: its config, and what its tensors weigh.

Only the headers of safetensors files are read: eight bytes for a length and then a JSON object with the type
and shape of every tensor. A folder that holds the index but not the files still says how large the whole is.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwright_operator.cli.console import InputError
from shardwright_operator.cli.documents import read_config
from shardwright_planner import ModelFacts, PlanInputError
from shardwright_planner.config import with_quantization
from shardwright_planner.gpu import GIB
from shardwright_planner.tensor_bytes import Tensor, TensorBytes, header_tensors, tensor_bytes

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
QUANTIZATION = "hf_quant_config.json"
"""ModelOpt writes what it did into a file of its own, where older versions left config.json as it was."""
LARGEST_HEADER = 100_000_000
"""Bytes; the format's own bound on a header (safetensors, README)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What was found of a checkpoint. ``tensors`` is empty where only the size of the whole is known."""

    source: str
    """Where it comes from, in words."""
    config: Mapping[str, Any]
    tensors: tuple[Tensor, ...] = ()
    total_bytes: int = 0
    files: int = 0

    def bytes_for(self, model: ModelFacts) -> TensorBytes | None:
        """The tensors by their place in a model; None when nothing is known of them."""
        if self.tensors:
            return tensor_bytes(self.tensors, model.layer_count)
        return TensorBytes(total_bytes=self.total_bytes) if self.total_bytes else None

    def describe(self) -> str:
        """Where the sizes of the weights come from, in one sentence."""
        if not self.total_bytes:
            return f"Weights are computed from the config of {self.source}: it has no safetensors files."
        size = f"{self.total_bytes / GIB:.1f} GiB"
        if not self.tensors:
            return f"Weights are scaled to the {size} that the index of {self.source} states."
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"Weights are those of {len(self.tensors):,} tensors in {files} of {self.source} ({size})."


def read_folder(path: str) -> Checkpoint:
    """The checkpoint in a local folder.

    Raises:
        InputError: for a folder without a config.json, or files that are not what they claim to be.
    """
    folder = Path(path)
    if not folder.is_dir():
        message = f"{path} is no folder; give the one that holds config.json."
        raise InputError(message)
    beside = folder / QUANTIZATION
    config = with_quantization(
        read_config(str(folder)), read_config(str(beside)) if beside.is_file() else None
    )
    names, stated = _files(folder)
    if any(not (folder / name).is_file() for name in names):
        return Checkpoint(source=path, config=config, total_bytes=stated)
    try:
        headers = [(name, _header(folder / name)) for name in names]
        tensors = tuple(tensor for name, header in headers for tensor in header_tensors(header, name))
    except PlanInputError as error:
        raise InputError(str(error)) from None
    return Checkpoint(
        source=path,
        config=config,
        tensors=tensors,
        total_bytes=sum(tensor.stored_bytes for tensor in tensors),
        files=len(names),
    )


def index_files(index: Mapping[str, Any], source: str) -> tuple[list[str], int]:
    """Files that an index lists, and the size of the whole that it states (0 if it does not).

    Raises:
        InputError: for an index that is none; a file outside of the folder counts as that.
    """
    weights = index.get("weight_map")
    names = sorted(set(weights.values()) if isinstance(weights, dict) and _all_text(weights.values()) else ())
    if not names or any(Path(name).name != name for name in names):
        message = f"{source} has no weight_map of files beside it; download it again."
        raise InputError(message)
    metadata = index.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return names, int(size) if isinstance(size, int | float) and size > 0 else 0


def _files(folder: Path) -> tuple[list[str], int]:
    index = folder / INDEX
    if index.is_file():
        return index_files(read_config(str(index)), str(index))
    if (folder / SINGLE).is_file():
        return [SINGLE], 0
    # Some folders hold the weights twice, once in their maker's own format.
    own = sorted(file.name for file in folder.glob("*.safetensors"))
    return [name for name in own if not name.startswith("consolidated")] or own, 0


def _header(file: Path) -> Mapping[str, object]:
    problem = "it is no safetensors file"
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if 2 <= length <= LARGEST_HEADER:
                header = json.loads(stream.read(length))
                if isinstance(header, dict):
                    return header
    except OSError as error:
        problem = error.strerror or str(error)
    except (ValueError, RecursionError):
        # Its first bytes are no JSON: that is what ``problem`` says already.
        pass
    message = f"cannot read the header of {file}: {problem}."
    raise InputError(message)


def _all_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)
