"""Tacit: privacy-preserving decentralized federated learning.

>>> import torch, tacit
>>> task = tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.randn(5, 2))
>>> run = tacit.run(task, "lppa", graph="ring", steps=100, lr=0.1)
>>> run.theta.shape
torch.Size([5, 2])

The public names are listed in `__init__.pyi` and imported when they are first used, so that
`tacit --help` does not load torch.
"""

from typing import Any

from tacit.core.lazy_names import lazy_names
from tacit.core.version import __version__ as __version__

__all__, _public_name, __dir__ = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    if name == "simulate":
        from tacit.core.errors import Misuse

        raise Misuse("tacit.simulate is gone.", "Write tacit.run(task, algorithm, graph, steps=…).")
    return _public_name(name)
