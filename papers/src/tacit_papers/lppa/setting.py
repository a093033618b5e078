"""Miao et al. 2025, "Lossless privacy-preserving aggregation for decentralized federated learning".

The protocol of section 6. What the paper leaves open is settled so that its Table 1 comes out: an
iteration is one mini-batch gradient and one exchange, a round is one local epoch of iterations,
λ = 0.02 · 0.95^round, clients start from different weights, W is made by Sinkhorn–Knopp from random
positive weights on a random directed graph that contains a ring, and the "DP method" adds its noise
to γ⁰ alone.
"""

from __future__ import annotations

from typing import Any

from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit_papers.framework.cells import Scale

PROTOCOL = (
    "5 clients, batch 128, λ = 0.02 · 0.95^round, one exchange per mini-batch, a round is one "
    "local epoch, 50 rounds; independent first weights; Laplace(0.025) in γ⁰ (DP) or exchanged "
    "once at the start (LPPA)"
)
QUICKLY = "2,000 training samples per client, 2,000 test samples, batch 32, 10 rounds"
IMAGES = {"MNIST": "mnist", "FMNIST": "fashion-mnist", "CIFAR10": "cifar10"}
TABLES: dict[str, dict[str, Any]] = {
    "Adult": {"name": "adult", "scale": "minmax"},
    "Rcv1": {"name": "rcv1", "features": 5000, "scale": "maxabs"},
    "Covtype": {"name": "covtype"},
}
PERCEPTRON = {"name": "mlp", "hidden": [64]}
RULES: dict[str, dict[str, Any]] = {
    "DSGT": {"name": "dsgt"},
    "DP": {"name": "dp-dsgt"},
    "LPPA": {"name": "lppa"},
}
PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {"kind": "iid"},
    "quantity": {"kind": "quantity", "alpha": 0.5},
    "Dir(0.1)": {"kind": "dirichlet", "alpha": 0.1},
    **{f"#C = {k}": {"kind": "classes", "k": k} for k in (1, 2, 3)},
}


def config(
    dataset: str,
    rule: str,
    scale: Scale,
    partition: str = "iid",
    *,
    clients: int = 5,
    algorithm: dict[str, Any] | None = None,
) -> Config:
    """The experiment of section 6, or the smaller one of `QUICKLY`.

    Args:
        dataset: A key of `IMAGES` or `TABLES`.
        rule: A key of `RULES`.
        scale: Full or quick.
        partition: A key of `PARTITIONS`.
        clients: How many.
        algorithm: Options of the rule.
    """
    image = dataset in IMAGES
    data = {"name": IMAGES[dataset]} if image else dict(TABLES[dataset])
    if scale.quick:
        data |= {"limit_train": 2000 * clients, "limit_test": 2000}
    return make_config(
        {
            "data": data,
            "partition": PARTITIONS[partition],
            "model": ({"name": "cnn2"} if image else PERCEPTRON) | {"init": "independent"},
            "graph": {
                "kind": "random-directed",
                "clients": clients,
                "p": 0.5,
                "mixing": "sinkhorn",
                "random_weights": True,
            },
            "algorithm": {
                "lr": {"schedule": "exponential", "start": 0.02, "decay": 0.95},
                **RULES[rule],
                **(algorithm or {}),
            },
            "run": {
                "rounds": scale.pick(50, 10),
                "batch_size": scale.pick(128, 32),
                "checkpoint_every": 10,
                "allow_divergence": True,
            },
        }
    )
