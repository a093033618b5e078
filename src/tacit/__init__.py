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

from tacit.core.lazy_names import lazy_names
from tacit.core.version import __version__ as __version__

__all__, __getattr__, __dir__ = lazy_names(__name__)
