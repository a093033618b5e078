"""Public names of packages that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """The `__all__`, `__getattr__` and `__dir__` of a package.

    Its public names are those that its `__init__.pyi` imports. Type checkers read the same file, so
    there is no second list.
    """
    module = sys.modules[package]
    stub = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text("utf-8"))
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    homes = {alias.name: str(each.module) for each in imports for alias in each.names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        if home is module or not hasattr(home, name):
            import_module(f"{homes[name]}.{name}")  # Makes a submodule an attribute of its package.
        setattr(module, name, getattr(home, name))
        return getattr(home, name)

    return sorted(homes), get, lambda: sorted({*homes, *vars(module)})
