"""Tacit: privacy-preserving decentralized federated learning.

>>> import torch, tacit
>>> graph = tacit.Topology.ring(5).mixing("metropolis")
>>> task = tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.randn(5, 2))
>>> run = tacit.simulate(tacit.LPPA(lr=0.1), task, graph, steps=100)
>>> run.theta.shape
torch.Size([5, 2])

The public names are listed in `__init__.pyi` and imported when they are first used, so that
`tacit --help` does not load torch.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

from tacit.core.version import __version__ as __version__

_HOMES = {
    alias.name: statement.module
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    home = _HOMES[name]
    if home == "tacit":
        value: Any = import_module(f"tacit.{name}")
    else:
        value = getattr(import_module(str(home)), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
