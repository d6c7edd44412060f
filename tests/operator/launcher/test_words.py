"""Causes out of what engines and downloads say, and what the launcher may be made of."""

import ast
import sys
from pathlib import Path

import pytest

from shardwright_operator import launcher
from shardwright_operator.api.constants import Reason
from shardwright_operator.launcher import reasons
from shardwright_operator.launcher.causes import cause_of, telling_line

MODULES = sorted(Path(launcher.__file__).parent.glob("*.py"))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        # seen on vLLM 0.32
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB.", "OutOfMemory"),
        (
            "(16.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.41 GiB).",
            "OutOfMemory",
        ),
        ("RuntimeError: Insufficient space in /dev/shm for shared-memory allocation: 160 MiB", "OutOfMemory"),
        (
            "DistStoreError: Timed out after 31 seconds waiting for clients. 1/2 clients joined.",
            "RendezvousTimeout",
        ),
        ("DistStoreError: wait timeout after 30000ms, keys: /default_pg/0//cpu//0/1", "RendezvousTimeout"),
        ("TimeoutError: RPC call to sample_tokens timed out.", "PeerLost"),
        ("ERROR Worker proc VllmWorker-3 died unexpectedly, shutting down executor.", "PeerLost"),
        ("vllm serve: error: unrecognized arguments: --tensor-parallel", "ConfigRejected"),
        (
            "Value error, Total number of attention heads (4) must be divisible by tensor parallel size",
            "ConfigRejected",
        ),
        ("ValueError: VLLM_PORT 'tcp://10.96.224.87:8000' appears to be a URI.", "ConfigRejected"),
        ("RuntimeError: No CUDA GPUs are available", "GpuLost"),
        # huggingface_hub 2.4
        ("Error: Model 'meta-llama/Nope' not found.", "ModelNotFound"),
        ("Error: Revision not found in model 'a/b'.", "ModelNotFound"),
        ("Error: Access denied. Model 'meta-llama/Llama-3.1-8B' requires approval.", "AccessDenied"),
        ("huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: x)", "AccessDenied"),
        (
            "OSError: nope is not a local folder and is not a valid model identifier listed on the Hub",
            "ModelNotFound",
        ),
        ("INFO everything is fine", "Unknown"),
    ],
)
def test_the_telling_line_names_the_cause(said: str, reason: str) -> None:
    assert cause_of(f"INFO first\n{said}\nINFO last") == reason


def test_consequences_do_not_hide_the_cause() -> None:
    said = "(Worker) CUDA out of memory\n(EngineCore) RPC call to x timed out\nConnection reset by peer"
    assert cause_of(said) == "OutOfMemory"


def test_telling_line_has_no_prefix() -> None:
    said = "x\n(Worker pid=12) ERROR 11-29 10:00:00 [core.py:123] TimeoutError: RPC call to x timed out.\ny"
    assert telling_line(said, "PeerLost") == "TimeoutError: RPC call to x timed out."


def test_every_reason_is_one_of_the_operators() -> None:
    assert set(reasons.ALL) <= {str(reason) for reason in Reason}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_only_the_standard_library_and_itself(module: Path) -> None:
    """The engine's image has whatever it has; newer syntax than Python 3.10 may be unknown there."""
    tree = ast.parse(module.read_text(), feature_version=(3, 10))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }

    strange = {n for n in imported if n.split(".")[0] not in sys.stdlib_module_names}
    assert {n for n in strange if not n.startswith("shardwright_operator.launcher")} == set()
