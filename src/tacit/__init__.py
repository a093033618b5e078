"""Tacit: train together, tell nothing. Privacy-preserving decentralized federated learning.

import tacit

graph = tacit.Topology.ring(5).mixing("metropolis")
task = tacit.Task.from_module(module, parts, batch_size=32)
run = tacit.simulate(tacit.LPPA(lr=0.1, noise=tacit.Laplace(1.0)), task, graph, steps=300, seed=0)
run.theta, run.history
"""

from tacit.algorithms import ALGORITHMS, DPDSGT, DSGT, LPPA
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
