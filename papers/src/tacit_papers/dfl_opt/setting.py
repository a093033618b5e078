"""Yu et al. 2025, "Provable privacy advantages of decentralized FL via distributed optimization".

The setting of its experiments: CFL is gradient averaging through a server (eq. 1), DFL is
differential PDMM (Algorithm 1 with θ = 1) on a random geometric graph with radius √(2 ln n / n),
ρ = 0.4, μ = 1/30 in both (appendix E).
"""

from __future__ import annotations

import math
from typing import Any

from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit_papers.framework.cells import Scale
from tacit_papers.measures.inversion_search import InversionSearch

PROTOCOLS = ("CFL", "DFL")
DATA = {"MNIST": "mnist", "CIFAR10": "cifar10"}
ATTACKS = ("DLG", "ours")
MU, RHO, VARIANCE = 1 / 30, 0.4, 1e-4  # σ_z² where the paper varies something else
MLP = {"name": "mlp", "hidden": [64], "activation": "sigmoid"}
SMALL_MLP = {"name": "mlp", "hidden": [32], "activation": "sigmoid"}
# How artifacts that report SSIM format it.
SSIM: dict[str, Any] = {"metric": "ssim", "form": ".3f", "unit": "SSIM"}

PROTOCOL = (
    "50 nodes on a random geometric graph in the unit square, radius √(2 ln n / n), nᵢ samples "
    "each, a perceptron with 64 hidden sigmoids (the paper only says two layers), ρ = 0.4, "
    "μ = 1/30 in both protocols, σ_z² = 10⁻⁴ unless varied. The audit computes what is inverted "
    "from the messages of the first two iterations, for one or more corrupt nodes. DLG: squared "
    "distance and torch's L-BFGS, as published; ours: the same distance relative to the evidence "
    "and an L-BFGS with a line search. Labels are known for gradients and sums, and optimised for "
    "differences, where the paper tries all of them"
)
# Why claims about our own attack fail that hold for DLG.
RELATIVE = (
    "We expected from DLG's figures that differences tell less. With a search relative to the "
    "evidence they give a mean SSIM of {{ mean('dfl-opt/fig4', 'DFL, ours', form='.3f') }} over "
    "all times, and gradients cannot give more than 1."
)
QUICKLY = (
    "MNIST only (5,000 digits of it), 10 nodes, 32 hidden units, 2 victims, fewer iterations, "
    "one seed"
)


def radius(nodes: int) -> float:
    """Radius of a random geometric graph that is connected with high probability."""
    return round(math.sqrt(2 * math.log(nodes) / nodes), 6)


def nodes_at(scale: Scale) -> int:
    return scale.pick(50, 10)


def datasets_at(scale: Scale) -> list[str]:
    """The quick version uses only the dataset that ships with the package."""
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
    """Training where every gradient is of all samples of a node.

    Args:
        dataset: A key of `DATA`.
        protocol: "CFL" or "DFL".
        scale: Full or quick.
        batch: Samples per node.
        nodes: By default as many as the scale has.
        variance: σ_z² of DFL.
        model: The section of the configuration, by default a perceptron.
        rounds: Rounds of one iteration.
    """
    nodes = nodes or nodes_at(scale)
    name = "mnist-mini" if scale.quick and dataset == "MNIST" else DATA[dataset]
    test = scale.pick(10_000, 500)
    return make_config(
        {
            "data": {"name": name, "limit_train": nodes * batch, "limit_test": test},
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


def search(attack: str, scale: Scale, *, labels_known: bool = True) -> InversionSearch:
    """The search of DLG or of our attack, both with the squared distance."""
    iterations = scale.pick(300, 150)
    if attack == "DLG":
        return InversionSearch("DLG", iterations, 1, labels_known)
    return InversionSearch("ours", iterations, scale.pick(4, 1), labels_known)
