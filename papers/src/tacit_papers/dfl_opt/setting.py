"""Yu et al. 2025, "Provable privacy advantages of decentralized FL via distributed optimization": its setting.

CFL is gradient averaging through a server (eq. 1), DFL is differential PDMM (Algorithm 1 with θ = 1), on a random
geometric graph with radius √(2 ln n / n), ρ = 0.4, μ = 1/30 in both (appendix E).
"""

from __future__ import annotations

import math
from typing import Any

from tacit.config.sections import Config, make_config
from tacit_papers.framework.artifact import Scale
from tacit_papers.measures.search import Search

PROTOCOLS = ("CFL", "DFL")
DATA = {"MNIST": "mnist", "CIFAR10": "cifar10"}
MU, RHO, VARIANCE = 1 / 30, 0.4, 1e-4  # σ_z² where the paper varies something else
MLP = {"name": "mlp", "hidden": [64], "activation": "sigmoid"}
SMALL_MLP = {"name": "mlp", "hidden": [32], "activation": "sigmoid"}

PROTOCOL = (
    "50 nodes on a random geometric graph in the unit square, radius √(2 ln n / n), nᵢ samples each, a perceptron with "
    "64 hidden sigmoids (the paper: two layers, no more), ρ = 0.4, μ = 1/30 in both protocols, σ_z² = 10⁻⁴ unless "
    "varied. What is inverted is computed from the messages of the first two iterations by the audit, for one "
    "corrupt node or more. DLG: squared distance and torch's L-BFGS, as published; ours: the same distance "
    "relative to the evidence and an L-BFGS with a line search. Labels are known for gradients and sums, and "
    "searched along for differences, where the paper tries all of them"
)
QUICKLY = "MNIST only (5,000 digits of it), 10 nodes, 32 hidden units, 2 victims, fewer iterations, one seed"


def radius(nodes: int) -> float:
    """Within which nodes hear each other: connected with high probability."""
    return round(math.sqrt(2 * math.log(nodes) / nodes), 6)


def nodes_at(scale: Scale) -> int:
    """Of the attacks on images."""
    return scale.pick(50, 10)


def datasets_at(scale: Scale) -> list[str]:
    """Quickly there is only the one that ships with the package."""
    return ["MNIST"] if scale.quick else list(DATA)


def config(
    dataset: str,
    protocol: str,
    scale: Scale,
    *,
    batch: int = 2,
    nodes: int | None = None,
    variance: float = VARIANCE,
    model: dict[str, Any] | None = None,
    rounds: int = 1,
) -> Config:
    """Training with so many samples per node that all are in every gradient."""
    nodes = nodes or nodes_at(scale)
    name = "mnist-mini" if scale.quick and dataset == "MNIST" else DATA[dataset]
    return make_config(
        {
            "data": {
                "name": name,
                "limit_train": nodes * batch,
                "limit_test": scale.pick(10_000, 500),
            },
            "model": model or scale.pick(MLP, SMALL_MLP),
            "graph": {"kind": "random-geometric", "clients": nodes, "radius": radius(nodes)},
            "algorithm": algorithm(protocol, variance),
            "run": {
                "batch_size": batch,
                "rounds": rounds,
                "iterations_per_round": 1,
                "evaluate_every": max(1, rounds // 20),
                "checkpoint_every": max(1, rounds // 2),
            },
        }
    )


def algorithm(protocol: str, variance: float = VARIANCE) -> dict[str, Any]:
    """The section of a configuration."""
    if protocol == "CFL":
        return {"name": "fedavg", "lr": MU}
    return {
        "name": "pdmm",
        "rho": RHO,
        "solver": {"solver": "quadratic", "mu": MU},
        "noise": {"law": "gaussian", "scale": math.sqrt(variance)},
    }


def search(attack: str, scale: Scale, *, labels_known: bool = True) -> Search:
    """Of the squared distance, by DLG or by us."""
    if attack == "DLG":
        return Search("DLG", scale.pick(300, 150), 1, labels_known)
    return Search("ours", scale.pick(300, 150), scale.pick(4, 1), labels_known)
