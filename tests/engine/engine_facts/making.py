"""What a model class makes in its constructor, read off the source without running it.

A constructor needs a config, which nobody has for three hundred architectures; its source is there for all of
them. Followed is what Python would follow: ``super().__init__``, methods of the same object, model classes
that are named (called, passed on, or kept in a table), and language models that a multimodal wrapper looks up
by architecture. What stands below a condition about the rank is made on some pipeline stages only.
"""

import ast
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MODELS = "vllm.model_executor.models."
EMBEDDING, HEAD, SHARED_WHOLE = "embedding", "head", "shared experts whole"
_MADE = {"VocabParallelEmbedding": EMBEDDING, "ParallelLMHead": HEAD}
_WHOLE = {"is_sequence_parallel", "disable_tp"}
_SHARED = re.compile(r"shared_(expert|mlp)s?$")
_ON_SOME_STAGES = re.compile(r"is_(first|last)_rank|pp_rank")

ByName = Callable[[str], type | None]


@dataclass(frozen=True, slots=True)
class Made:
    """One thing that a constructor makes; ``everywhere``: on every pipeline stage."""

    what: str
    everywhere: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """A method of a class, and the class in whose body it stands."""

    model: type
    owner: type
    method: str


def made_by(model: type, by_name: ByName) -> set[Made]:
    """Everything of interest that ``model`` makes; ``by_name`` gives the class of an architecture."""
    found: set[Made] = set()
    todo = [(place, True) for place in _places(model, "__init__")]
    seen = set()
    while todo:
        step = todo.pop()
        if step in seen:
            continue
        seen.add(step)
        place, everywhere = step
        for node, always, target in _nodes(
            _class_bodies(place.owner.__module__)[place.owner.__name__][place.method]
        ):
            here = everywhere and always
            if isinstance(node, ast.Call):
                found |= {Made(what, here) for what in _things(node, target)}
            todo += [(further, here) for further in _followed(node, place, by_name)]
    return found


def _places(model: type, method: str, after: type | None = None) -> Iterator[_Place]:
    """Where a method of ``model`` is defined, at most one place; ``after`` that class in its order."""
    order = list(model.__mro__)
    for owner in order if after is None else order[order.index(after) + 1 :]:
        if _is_of_models(owner) and method in _class_bodies(owner.__module__).get(owner.__qualname__, ()):
            yield _Place(model, owner, method)
            return


@functools.cache
def _class_bodies(module: str) -> dict[str, dict[str, ast.FunctionDef]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        node.name: {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _is_of_models(found: object) -> bool:
    return inspect.isclass(found) and found.__module__.startswith(MODELS)


def _nodes(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, bool, str]]:
    """Each node that runs, whether every stage comes by it, and the attribute that its result becomes."""
    todo: list[tuple[ast.AST, bool, str]] = [(part, True, "") for part in (function.args, *function.body)]
    while todo:
        node, always, target = todo.pop()
        yield node, always, target
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            target = node.targets[0].attr
        conditional = isinstance(node, ast.If | ast.IfExp) and _ON_SOME_STAGES.search(ast.unparse(node.test))
        todo += [(child, always and not conditional, target) for child in _children(node)]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and _name(node.func) == "isinstance":
        return  # names a class and makes nothing
    annotation = getattr(node, "annotation", None)
    yield from (child for child in ast.iter_child_nodes(node) if child is not annotation)


def _things(call: ast.Call, target: str) -> Iterator[str]:
    name = _name(call.func)
    if name in _MADE:
        yield _MADE[name]
    whole = [k for k in call.keywords if k.arg in _WHOLE and not isinstance(k.value, ast.Constant)]
    if whole and _SHARED.search(target):
        yield SHARED_WHOLE


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _followed(node: ast.AST, place: _Place, by_name: ByName) -> Iterator[_Place]:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=method)):
            yield from _places(place.model, method, after=place.owner)
        case ast.Call(func=ast.Name(id="init_vllm_registered_model"), keywords=keywords):
            given = [k.value for k in keywords if k.arg == "architectures" and isinstance(k.value, ast.List)]
            names = [item.value for value in given for item in value.elts if isinstance(item, ast.Constant)]
            yield from _of_classes(map(by_name, names))
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            yield from _places(place.model, name)
            yield from _of_classes([getattr(place.model, name, None)])
        case ast.Name(id=name):
            value = vars(sys.modules[place.owner.__module__]).get(name)
            yield from _of_classes(value.values() if isinstance(value, dict) else [value])
        case _:
            pass


def _of_classes(found: Iterator[object]) -> Iterator[_Place]:
    for model in found:
        if _is_of_models(model):
            yield from _places(model, "__init__")
