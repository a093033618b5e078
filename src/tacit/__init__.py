"""Tacit: train together, tell nothing. Privacy-preserving decentralized federated learning.

import tacit

graph = tacit.Topology.ring(5).mixing("metropolis")
task = tacit.Task.from_module(module, parts, batch_size=32)
run = tacit.simulate(tacit.LPPA(lr=0.1, noise=tacit.Laplace(1.0)), task, graph, steps=300, seed=0)
run.theta, run.history
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.algorithms import ALGORITHMS
    from tacit.algorithms.dp_dsgt import DPDSGT
    from tacit.algorithms.dsgt import DSGT
    from tacit.algorithms.lppa import LPPA
    from tacit.errors import Diverged, Misuse, TacitError
    from tacit.graph import Graph, Topology
    from tacit.privacy.noise import Gaussian, Laplace
    from tacit.schedules import Constant, Cosine, Exponential, Inverse
    from tacit.simulation import Run, Simulation, simulate
    from tacit.tasks import Task, least_squares, quadratic

__version__ = "0.1.0"

__all__ = [
    "ALGORITHMS",
    "DPDSGT",
    "DSGT",
    "LPPA",
    "Constant",
    "Cosine",
    "Diverged",
    "Exponential",
    "Gaussian",
    "Graph",
    "Inverse",
    "Laplace",
    "Misuse",
    "Run",
    "Simulation",
    "TacitError",
    "Task",
    "Topology",
    "least_squares",
    "quadratic",
    "simulate",
]

# Where each public name lives. They are imported when first used, so that `tacit --help` need not load torch.
_ROOMS = {
    "tacit.algorithms": ("ALGORITHMS",),
    "tacit.algorithms.dp_dsgt": ("DPDSGT",),
    "tacit.algorithms.dsgt": ("DSGT",),
    "tacit.algorithms.lppa": ("LPPA",),
    "tacit.errors": ("Diverged", "Misuse", "TacitError"),
    "tacit.graph": ("Graph", "Topology"),
    "tacit.privacy.noise": ("Gaussian", "Laplace"),
    "tacit.schedules": ("Constant", "Cosine", "Exponential", "Inverse"),
    "tacit.simulation": ("Run", "Simulation", "simulate"),
    "tacit.tasks": ("Task", "least_squares", "quadratic"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name, or a room such as tacit.data, on first use."""
    if name in ("data", "models"):
        return import_module(f"tacit.{name}")
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    value = getattr(import_module(_ROOM_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]
