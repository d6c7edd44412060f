"""Argo CD's view of a resource: the chart's health script under a real Lua.

Argo CD runs scripts in gopher-lua, which is Lua 5.1, with the base and table libraries and a clock alone
(argo-cd, util/lua/lua.go). So the script runs here in Lua 5.1 with nothing else to be found.
"""

from typing import NamedTuple

from lupa import lua51

from control_plane.client import Json
from operator_process import CHART

SCRIPT = CHART / "docs" / "argocd-health.lua"

FORBIDDEN = ("string", "math", "io", "os", "debug", "coroutine", "dofile", "loadfile", "print", "python")


class Health(NamedTuple):
    """What the script answers."""

    status: str
    message: str


def health(body: Json) -> Health:
    """Health of an object; raises ``lupa.LuaError`` when the script fails."""
    runtime = lua51.LuaRuntime(register_eval=False, register_builtins=False)
    variables = runtime.globals()
    variables["obj"] = runtime.table_from(body, recursive=True)
    # Methods of texts would find the library by their metatable.
    runtime.execute("getmetatable('').__index = nil")
    for name in FORBIDDEN:
        variables[name] = None
    answer = runtime.execute(SCRIPT.read_text())
    return Health(answer["status"], answer["message"])
