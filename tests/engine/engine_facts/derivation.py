"""Runs in the engine's Python: imports every model class of vLLM and prints what the planner must know.

Two facts are read off the source, since nothing in the classes says them: a check of the tensor size against
the experts, and KV heads that are divided without the floor of one per rank that other models have. Read are
the model's own module, whose layers all of its models share, and what it takes from other models' modules.
What a constructor makes on which pipeline stages is read likewise (``making.py``).
"""

import contextlib
import functools
import importlib.abc
import importlib.machinery
import inspect
import json
import re
import sys
import types
from typing import Any

from making import EMBEDDING, HEAD, SHARED_WHOLE, Made, made_by

_WITHIN_EXPERTS = re.compile(
    r"if self\.tp_size > \w*\.?\w*(num_experts|n_routed_experts|num_local_experts)\b"
)
_KV_DIVIDED = re.compile(r"= (?:self|config)\.\w*(?:kv|key_value)_heads // (?:self\.)?tp_size$", re.MULTILINE)


class _Anything(type):
    """A class that has any attribute and may be called or inherited from."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {"__init__": lambda *_, **__: None})


class _Absent(types.ModuleType):
    """A module with anything in it: models import it, and run it only on images."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {"__init__": lambda *_, **__: None})


class _AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torchvision, which this environment leaves out (it is built for one torch only)."""

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def main() -> None:
    """Print one line of JSON."""
    import vllm

    facts = {**_parser_facts(), **_quantization_facts()}
    sys.meta_path.insert(0, _AbsentFinder())
    facts |= _model_facts()
    facts["version"] = ".".join(vllm.__version__.split(".")[:2])
    print(json.dumps(facts))


def _parser_facts() -> dict[str, Any]:
    from vllm import envs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    options = {option for action in parser._actions for option in action.option_strings}
    return {"options": sorted(options), "variables": sorted(envs.environment_variables)}


def _quantization_facts() -> dict[str, Any]:
    from vllm.config import model
    from vllm.model_executor.layers import quantization

    least = {}
    for method in quantization.QUANTIZATION_METHODS:
        found = quantization.get_quantization_config(method)
        try:
            least[method] = found.get_min_capability()
        except TypeError:  # an instance's answer in some methods: it does not depend on the checkpoint
            least[method] = found.get_min_capability(None)
    return {
        "quantizations": dict(sorted(least.items())),
        "deprecatedQuantizations": sorted(quantization.DEPRECATED_QUANTIZATION_METHODS),
        "halfRefused": _architectures(set(model._FLOAT16_NOT_SUPPORTED_MODELS)),
    }


def _architectures(model_types: set[str]) -> list[str]:
    from transformers.models.auto import modeling_auto as auto

    tables = (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    return sorted({names[kind] for names in tables for kind in model_types if kind in names})


def _source(model: type) -> str:
    module = inspect.getmodule(model)
    parts = [inspect.getsource(module)]
    for name, value in vars(module).items():
        home = getattr(value, "__module__", "")
        of_models = home.startswith("vllm.model_executor.models.") and home != module.__name__
        if inspect.isclass(value) and of_models and re.search(r"moe|attention", name, re.IGNORECASE):
            parts.append(_class_source(value))
    return "\n".join(parts)


@functools.cache  # it parses the whole file
def _class_source(found: type) -> str:
    return inspect.getsource(found)


def _model_facts() -> dict[str, Any]:
    from vllm.model_executor.models import registry

    def by_name(architecture: str) -> type | None:
        lazy = registry.ModelRegistry.models.get(architecture)
        with contextlib.suppress(ImportError):
            return lazy.load_model_cls() if lazy else None
        return None

    single, unread, within, divided = [], [], [], []
    everywhere: dict[str, list[str]] = {EMBEDDING: [], HEAD: [], SHARED_WHOLE: []}
    for name, lazy in sorted(registry.ModelRegistry.models.items()):
        if name in registry._SPECULATIVE_DECODING_MODELS:
            continue
        try:
            model = lazy.load_model_cls()
        except ImportError:
            unread.append(name)
            continue
        info = registry._ModelInfo.from_model_cls(model)
        if not info.is_text_generation_model:
            continue
        source = _source(model)
        if not info.supports_pp:
            single.append(name)
        if _WITHIN_EXPERTS.search(source):
            within.append(name)
        if _KV_DIVIDED.search(source):
            divided.append(name)
        made = made_by(model, by_name)
        for what, names in everywhere.items():
            if Made(what, everywhere=True) in made:
                names.append(name)
    return {
        "pipelineUnsupported": single,
        "tensorWithinExperts": within,
        "kvHeadsNotCopied": divided,
        "embeddingOnEveryStage": everywhere[EMBEDDING],
        "headOnEveryStage": everywhere[HEAD],
        "sharedExpertsWhole": everywhere[SHARED_WHOLE],
        "unread": unread,
    }


if __name__ == "__main__":
    main()
