"""Python programs of several files made into one, for places that take no more than that."""

from collections.abc import Mapping

_PRELUDE = '''"""A program with all its modules in one file."""

import importlib.abc
import importlib.util
import sys

MODULES = {modules!r}
PACKAGES = {packages!r}


class Modules(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in MODULES else None

    def is_package(self, name):
        return name in PACKAGES

    def get_source(self, name):
        return MODULES[name]


sys.meta_path.insert(0, Modules())
exec(compile({program!r}, __file__, "exec"))
'''


def one_file(files: Mapping[str, str], program: str) -> str:
    """The text of ``program``, with the other files, by their paths, as modules before any others."""
    modules, packages = {}, set()
    for path, text in files.items():
        if path == program:
            continue
        name = path.removesuffix(".py").replace("/", ".")
        if name.endswith(".__init__"):
            name = name.removesuffix(".__init__")
            packages.add(name)
        modules[name] = text
    return _PRELUDE.format(modules=modules, packages=sorted(packages), program=files[program])
