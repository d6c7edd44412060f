"""The launcher in a pod: its files in a ConfigMap, its place, and its words before the engine's.

The ConfigMap's name is a hash of its content. So an operator with a newer launcher makes a new one beside it,
the pods of standing revisions keep theirs, and a running pod's files never change under it.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from shardwright_operator.api import names
from shardwright_operator.api.constants import Role
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.command import DRAIN_S, LEADER_ADDRESS, NODE_RANK
from shardwright_operator.build.digest import digest
from shardwright_operator.build.one_file import one_file
from shardwright_operator.build.owner import Manifest, Owner, metadata
from shardwright_operator.build.ports import Ports
from shardwright_operator.build.resources import process_memory_bytes, shared_memory_bytes
from shardwright_planner.plan import Plan

FOLDER = "/opt/shardwright"
PROGRAM = "launcher.py"
PACKAGE = "shardwright_operator"
VOLUME = "launcher"
DRAIN_MARGIN_S = 5
"""Beyond the engine's own limit for running requests, which it is allowed to use up."""
STOP_S = 5
"""For an engine that does not serve. A worker has nothing to finish once its leader has ended."""


@cache
def files() -> Mapping[str, str]:
    """The launcher's sources by the path under its folder, as the interpreter will look for them."""
    own = resources.files(f"{PACKAGE}.launcher")
    found = {f"{PACKAGE}/__init__.py": resources.files(PACKAGE).joinpath("__init__.py").read_text()}
    for entry in sorted(own.iterdir(), key=lambda entry: entry.name):
        if entry.name == PROGRAM:
            found[PROGRAM] = entry.read_text()
        elif entry.name.endswith(".py"):
            found[f"{PACKAGE}/launcher/{entry.name}"] = entry.read_text()
    return found


def config_name(owner: Owner) -> str:
    """Name of the ConfigMap with this operator's launcher."""
    return names.launcher_config(owner.name, _digest(tuple(files().items())))


@lru_cache(maxsize=1)
def _digest(sources: tuple[tuple[str, str], ...]) -> str:
    return digest(dict(sources))


def launcher_config(owner: Owner, name: str) -> Manifest:
    """The ConfigMap ``name`` with this operator's launcher.

    The name may be one of an older launcher, whose ConfigMap somebody has deleted: its pods are then better
    off with the newer one, which takes the same options, than waiting for a file that nobody has any more.
    Their volumes name the files that the older one had, so that they get all of the newer one in its program.
    """
    texts = dict(files())
    if name != config_name(owner):
        texts[PROGRAM] = one_file(texts, PROGRAM)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(owner, name),
        "immutable": True,
        "data": {_key(path): text for path, text in texts.items()},
    }


def launcher_volume(owner: Owner) -> Manifest:
    """The volume with the launcher's files in their folders."""
    items = [{"key": _key(path), "path": path} for path in files()]
    return {"name": VOLUME, "configMap": {"name": config_name(owner), "items": items}}


def launcher_mount() -> Manifest:
    """Its mount."""
    return {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}


def launcher_words(
    spec: ModelDeploymentSpec,
    plan: Plan,
    role: Role,
    *,
    startup_s: int,
    ports: Ports,
    resolve_interface: bool,
) -> list[str]:
    """The words before the engine's command."""
    words = ["python3", f"{FOLDER}/{PROGRAM}"]
    words += ["--gpus", str(plan.gpus_per_node)]
    words += ["--shared-memory", str(shared_memory_bytes(spec, plan))]
    words += ["--memory", str(process_memory_bytes(plan))]
    words += ["--start-within", str(startup_s), "--stop-within", str(STOP_S)]
    if plan.nodes > 1:
        words += ["--rank", NODE_RANK, "--members", str(plan.nodes), "--leader", LEADER_ADDRESS]
        words += ["--peer-port", str(ports.peers)]
        if resolve_interface:
            words.append("--resolve-interface")
    if role is Role.LEADER:
        words += ["--port", str(ports.api), "--drain-within", str(DRAIN_S + DRAIN_MARGIN_S)]
    return [*words, "--"]


def launcher_configs(templates: Iterable[Mapping[str, Any] | None]) -> Iterator[str]:
    """Names of the launchers' ConfigMaps that pod templates mount."""
    for template in templates:
        for volume in (template or {}).get("spec", {}).get("volumes", ()):
            if volume["name"] == VOLUME:
                yield volume["configMap"]["name"]


def _key(path: str) -> str:
    # A ConfigMap's keys know no folders.
    return path.replace("/", ".")
