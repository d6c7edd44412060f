"""Facts of a model from the Hugging Face Hub: its config and the headers of its weights, never the weights.

``huggingface_hub`` does the talking and keeps to the user's own settings: HF_TOKEN, HF_ENDPOINT, proxies.
Only the environment names the server: a manifest of somebody else's must not choose whom a token is sent to.
What was learned of a commit never changes, so that it is kept and serves again with no network.
"""

import gzip
import importlib
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwright_operator.cli.checkpoint import QUANTIZATION, Checkpoint
from shardwright_operator.cli.console import InputError, missing_extra
from shardwright_operator.cli.documents import read_config
from shardwright_planner import PlanInputError
from shardwright_planner.config import with_quantization
from shardwright_planner.tensor_bytes import Tensor, header_tensors

DEFAULT_ENDPOINT = "https://huggingface.co"
DEFAULT_REVISION = "main"
TIMEOUT_S = 15.0
FORMAT = 1
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def fetch(name: str, revision: str | None = None, *, offline: bool = False) -> Checkpoint:
    """The checkpoint of that Hub id, from the Hub or from what was kept of it.

    Raises:
        InputError: with one line that says why not: gated, missing, no connection, nothing kept.
    """
    place = _Place(endpoint=_endpoint(), name=name, revision=revision or DEFAULT_REVISION)
    if name.count("/") != 1 or not all(part.strip() for part in name.split("/")) or name.startswith("/"):
        message = f"{name!r} is no Hub id, which has the form OWNER/NAME."
        raise InputError(message)
    kept = _Kept.read(place)
    if offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE:
        if kept is None:
            message = f"nothing is kept of {place.words}; plan it once without --offline."
            raise InputError(message)
        return kept.checkpoint
    return _Session(place).checkpoint(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    endpoint: str
    name: str
    revision: str

    @property
    def words(self) -> str:
        where = "" if self.endpoint == DEFAULT_ENDPOINT else f" on {self.endpoint}"
        which = "" if self.revision == DEFAULT_REVISION else f" at {self.revision}"
        return f"{self.name}{which}{where}"

    @property
    def file(self) -> Path:
        root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        host = self.endpoint.split("://", 1)[-1]
        name = "--".join(_safe(part) for part in (host, self.name, self.revision))
        return Path(root) / "shardwright" / "hub" / f"{name}.json.gz"


class _Session:
    """One conversation with the Hub about one model."""

    def __init__(self, place: _Place) -> None:
        try:
            # Only here: a plan of a catalogue model needs neither the library nor the second of its import.
            self._library: Any = importlib.import_module("huggingface_hub")
            self._errors: Any = importlib.import_module("huggingface_hub.errors")
        except ModuleNotFoundError as error:
            otherwise = "give the model's config.json with --config"
            raise missing_extra(error, "hub", otherwise=otherwise) from None
        self._place = place

    def checkpoint(self, kept: "_Kept | None") -> Checkpoint:
        """What the Hub says; what is kept of the same commit is not asked for again."""
        self._library.utils.disable_progress_bars()
        try:
            return self._asked(kept)
        except self._errors.GatedRepoError:
            problem = (
                f"{self._place.words} is gated: accept its terms on the Hub and set HF_TOKEN to a token "
                "of that account."
            )
        except self._errors.RepositoryNotFoundError:
            problem = (
                f"there is no model {self._place.words}, or it is private: check the name, or set HF_TOKEN."
            )
        except self._errors.RevisionNotFoundError:
            problem = f"{self._place.name} has no revision {self._place.revision!r}."
        except self._errors.EntryNotFoundError:
            problem = f"{self._place.words} has no config.json; is it a model for transformers?"
        except self._errors.HFValidationError:
            problem = f"{self._place.name!r} is no Hub id, which has the form OWNER/NAME."
        except (OSError, self._errors.HTTPError) as error:
            problem = (
                f"cannot ask {self._place.endpoint} about {self._place.name} ({_short(error)}); try again, "
                "plan with --offline what was planned before, or give --config."
            )
        raise InputError(problem)

    def _asked(self, kept: "_Kept | None") -> Checkpoint:
        place = self._place
        api = self._library.HfApi(endpoint=place.endpoint, library_name="shardwright")
        facts = api.model_info(place.name, revision=place.revision, timeout=TIMEOUT_S)
        commit = facts.sha
        if kept is not None and kept.commit == commit:
            return kept.checkpoint
        there = {sibling.rfilename for sibling in facts.siblings or ()}
        config = self._file(api, commit, "config.json")
        beside = self._file(api, commit, QUANTIZATION) if QUANTIZATION in there else None
        tensors, files = self._tensors(api, commit)
        found = Checkpoint(
            source=f"{place.words} (commit {str(commit)[:8]})",
            config=with_quantization(config, beside),
            tensors=tensors,
            total_bytes=sum(tensor.stored_bytes for tensor in tensors),
            files=files,
        )
        _Kept(commit=str(commit), checkpoint=found).write(place)
        return found

    def _file(self, api: Any, commit: str, name: str) -> dict[str, Any]:
        path = api.hf_hub_download(self._place.name, name, revision=commit, etag_timeout=TIMEOUT_S)
        return read_config(str(path))

    def _tensors(self, api: Any, commit: str) -> tuple[tuple[Tensor, ...], int]:
        try:
            found = api.get_safetensors_metadata(self._place.name, revision=commit, timeout=TIMEOUT_S)
        except self._errors.NotASafetensorsRepoError:
            return (), 0
        except self._errors.SafetensorsParsingError as error:
            message = f"the weights of {self._place.words} cannot be read: {_short(error)}."
            raise InputError(message) from None
        headers = {
            file: {
                name: {"dtype": info.dtype, "shape": list(info.shape)} for name, info in part.tensors.items()
            }
            for file, part in found.files_metadata.items()
        }
        try:
            tensors = tuple(t for file in sorted(headers) for t in header_tensors(headers[file], file))
        except PlanInputError as error:
            raise InputError(str(error)) from None
        return tensors, len(headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What is kept of a model: everything that was learned, and of which commit."""

    commit: str
    checkpoint: Checkpoint

    @classmethod
    def read(cls, place: _Place) -> "_Kept | None":
        """What is kept; None if there is nothing, or nothing that can be read."""
        try:
            data = json.loads(gzip.decompress(place.file.read_bytes()))
            return cls._parsed(data) if data["format"] == FORMAT else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zlib.error):
            return None

    @classmethod
    def _parsed(cls, data: Mapping[str, Any]) -> "_Kept":
        tensors = tuple(
            Tensor(name=str(name), dtype=str(dtype), elements=int(elements), stored_bytes=int(size))
            for name, dtype, elements, size in data["tensors"]
        )
        checkpoint = Checkpoint(
            source=str(data["source"]),
            config=dict(data["config"]),
            tensors=tensors,
            total_bytes=sum(tensor.stored_bytes for tensor in tensors),
            files=int(data["files"]),
        )
        return cls(commit=str(data["commit"]), checkpoint=checkpoint)

    def write(self, place: _Place) -> None:
        """Keep it. A cache that cannot be written costs time and no answer."""
        found = self.checkpoint
        data = {
            "format": FORMAT,
            "commit": self.commit,
            "source": found.source,
            "config": found.config,
            "files": found.files,
            "tensors": [[t.name, t.dtype, t.elements, t.stored_bytes] for t in found.tensors],
        }
        packed = gzip.compress(json.dumps(data).encode(), compresslevel=6, mtime=0)
        try:
            place.file.parent.mkdir(parents=True, exist_ok=True)
            draft = place.file.with_suffix(f".{os.getpid()}")
            draft.write_bytes(packed)
            draft.replace(place.file)
        except OSError:
            return


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def _safe(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "--" if c == "/" else "_" for c in text)


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = lines[0].rstrip(".") if lines else type(error).__name__
    return text if len(text) <= 160 else f"{text[:157]}..."
