"""All algorithms with their options, run on symbols for findings about who computes what."""

from __future__ import annotations

from typing import Any

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.private_algorithm import PrivateAlgorithm
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.config.algorithms import make_algorithm
from tacit.graph import Graph, Topology
from tacit.privacy.guarantee import Privacy
from tacit.privacy.population import Population

CLIENTS, REACH = 8, (1, 2)  # a circle with edges to the next two clients on both sides
EPSILON, DELTA = 3.0, 1e-5
# The training that the guarantee is for: that on MNIST of findings/private-training.
SAMPLES, BATCH, PARAMETERS, STEPS = 60_000, 2_048, 26_010, 1_160
LR = {"lr": 0.05}
LAPLACE = {**LR, "noise": {"law": "laplace", "scale": 0.025}}
DUAL = {"noise": {"law": "gaussian", "scale": 1.0}}
RULES: dict[str, dict[str, Any]] = {
    "dsgt": {"name": "dsgt", **LR},
    "d-psgd": {"name": "d-psgd", **LR},
    "dsg": {"name": "dsg", **LR},
    "edsg": {"name": "edsg", **LR},
    "fedavg": {"name": "fedavg", **LR},
    "push-sum": {"name": "push-sum", **LR},
    "defl-vp": {"name": "defl-vp", **LR},
    "defl-vp, private variates": {"name": "defl-vp", **LR, "private_variates": True},
    "dsg-rms": {"name": "dsg-rms", **LR},
    "edsg-rms": {"name": "edsg-rms", **LR},
    "dsgt-rms": {"name": "dsgt-rms", **LR},
    "lppa": {"name": "lppa", **LAPLACE},
    "lppa, fresh masks": {"name": "lppa", "fresh": True, **LAPLACE},
    "pdmm": {"name": "pdmm", **DUAL},
    "admm": {"name": "admm", **DUAL},
    "dp-dsgt": {"name": "dp-dsgt", **LAPLACE},
    "dp-dsgt, every iteration": {"name": "dp-dsgt", "inject": "every", **LAPLACE},
    "psgt": {"name": "psgt", **LR},
    "mdsg": {"name": "mdsg", **LR},
    "pd-lms": {"name": "pd-lms", **LR},
    "decor": {"name": "decor", **LR, "correlation": 3.0},
    "private-sgd": {"name": "private-sgd", **LR},
}


def four_neighbours() -> Graph:
    """Eight clients with four neighbours each."""
    pairs = [(i, (i + step) % CLIENTS) for i in range(CLIENTS) for step in REACH]
    return Topology.from_edges(pairs, CLIENTS).mixing("metropolis", lazy=True)


def prepared(rule: dict[str, Any], graph: Graph, iterations: int) -> Algorithm:
    """The algorithm; with noise for ε = 3 if it keeps a guarantee."""
    options = {key: value for key, value in rule.items() if key != "name"}
    algorithm = make_algorithm(rule["name"], options, 1, iterations)
    if not isinstance(algorithm, PrivateAlgorithm):
        return algorithm
    facts = Population(graph.clients, SAMPLES, BATCH, PARAMETERS, STEPS)
    return algorithm.prepared(Privacy(EPSILON, DELTA), facts, graph)


def on_symbols(rule: dict[str, Any], graph: Graph, iterations: int) -> SymbolicRun:
    """Everything that is sent in the first iterations; all clients start from one model."""
    return run_on_symbols(prepared(rule, graph, iterations), graph, iterations, common_start=True)
