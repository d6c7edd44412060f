"""The engine for a test session: set up on first use, one process for every question."""

from collections.abc import Iterator

import pytest

from engine_environment import Environment, ensure_environment
from engine_parser import ParserService
from synthetic_models import ModelFolders


@pytest.fixture(scope="session")
def engine() -> Environment:
    """A complete environment with vLLM; the first time this takes minutes."""
    return ensure_environment()


@pytest.fixture(scope="session")
def vllm(engine: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ParserService]:
    """vLLM's parser and configuration."""
    folder = tmp_path_factory.mktemp("vllm-parser")
    with ParserService(engine, log=folder / "vllm.log") as service:
        yield service


@pytest.fixture(scope="session")
def models(engine: Environment, tmp_path_factory: pytest.TempPathFactory) -> ModelFolders:
    """Folders of synthetic models."""
    return ModelFolders(tmp_path_factory.mktemp("models"), engine.tiny_model)
