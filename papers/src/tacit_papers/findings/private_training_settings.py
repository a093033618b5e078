"""The experiments on private training: data, models, sizes and learning rates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit_papers.framework.cells import Scale

CLIENTS, DEGREE = 10, 4
CLIP, MOMENTUM, CORRELATION = 0.1, 0.9, 3.0
DELTA = 1e-5
PRIVATE, CENTRAL, DECOR, LOCAL = "private-sgd", "central DP-SGD", "decor", "local noise"
ALGORITHMS = (LOCAL, DECOR, PRIVATE, CENTRAL)
# Algorithms without a guarantee, on the same graph with the same batches.
NO_GUARANTEE = "∞"
MASKS = {"noise": {"law": "laplace", "scale": 0.025}}  # of the size in its paper
PLAIN: dict[str, dict[str, Any]] = {
    "dsgt": {"name": "dsgt"},
    "lppa, fresh masks": {"name": "lppa", "fresh": True, **MASKS},
}
PLAIN_RATE = 0.1
EPSILONS = ("0.5", "1", "2", "3", "8")
Rates = dict[str, float]  # the learning rate for each ε


@dataclass(frozen=True)
class Study:
    """One dataset: how it is trained, and the accuracy that private-sgd must reach.

    Attributes:
        data: The section of the data.
        model: The section of the model.
        samples: Training samples.
        batch: Expected samples per iteration, of all clients together.
        epochs: Passes over the data.
        private: Learning rates of private-sgd, and of central DP-SGD.
        decor: Learning rates of decor.
        local: Learning rates of local noise.
        required: The accuracy in percent that is claimed, for some ε.
        compared: Whether algorithms without a guarantee are trained too.
    """

    data: dict[str, Any]
    model: dict[str, Any]
    samples: int
    batch: int
    epochs: int
    private: Rates
    decor: Rates = field(default_factory=dict)
    local: Rates = field(default_factory=dict)
    required: Rates = field(default_factory=dict)
    compared: bool = False

    @property
    def iterations_per_epoch(self) -> int:
        return self.samples // (CLIENTS * self.batch_size)

    @property
    def batch_size(self) -> int:
        """Expected samples per client."""
        return round(self.batch / CLIENTS)

    def rates(self, algorithm: str) -> Rates:
        return {LOCAL: self.local, DECOR: self.decor}.get(algorithm, self.private)

    def config(self, algorithm: str, epsilon: str, rate: float | None = None) -> Config:
        """The experiment with one algorithm and one ε; by default with its learning rate."""
        settings = self._settings()
        settings["privacy"] = {"epsilon": float(epsilon), "delta": DELTA, "clip": CLIP}
        own = {"lr": rate or self.rates(algorithm)[epsilon]}
        if algorithm in (PRIVATE, CENTRAL):
            settings["algorithm"] = {"name": "private-sgd", **own, "momentum": MOMENTUM}
        else:
            correlation = CORRELATION if algorithm == DECOR else 0.0
            settings["algorithm"] = {"name": "decor", **own, "correlation": correlation}
        if algorithm == CENTRAL:
            # One client with all data: the same sampling, and no other client to distrust.
            settings["graph"] = {"kind": "complete", "clients": 1}
            settings["run"]["batch_size"] = CLIENTS * self.batch_size
        return make_config(settings)

    def plain_config(self, label: str) -> Config:
        """The same experiment with an algorithm that has no guarantee, and no clipping."""
        rule = {**PLAIN[label], "lr": PLAIN_RATE, "momentum": MOMENTUM}
        return make_config({**self._settings(), "algorithm": rule})

    def _settings(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "model": self.model,
            "graph": {"kind": "random-regular", "clients": CLIENTS, "degree": DEGREE},
            "run": {
                "rounds": self.epochs,
                "iterations_per_round": self.iterations_per_epoch,
                "batch_size": self.batch_size,
                "evaluate_every": max(1, self.epochs // 4),
                "checkpoint_every": self.epochs,
                "allow_divergence": True,
            },
        }


def _by_epsilon(*rates: float) -> Rates:
    return dict(zip(EPSILONS, rates, strict=True))


STUDIES = {
    "MNIST": Study(
        data={"name": "mnist", "scale": "standard"},
        model={"name": "tanh-cnn2"},
        samples=60_000,
        batch=2048,
        epochs=40,
        private=_by_epsilon(0.5, 1.0, 2.0, 2.0, 4.0),
        decor=_by_epsilon(6.0, 8.0, 12.0, 20.0, 24.0),
        local=_by_epsilon(3.0, 4.0, 6.0, 9.0, 16.0),
        required={"1": 96.8, "3": 97.8},
        compared=True,
    ),
    "Fashion-MNIST": Study(
        data={"name": "fashion-mnist", "scale": "standard"},
        model={"name": "tanh-cnn2"},
        samples=60_000,
        batch=4096,
        epochs=80,
        private={"1": 2.0, "3": 4.0, "8": 6.0},
        decor={"1": 12.0, "3": 30.0, "8": 40.0},
        local={"1": 7.0, "3": 15.0, "8": 24.0},
        required={"1": 83.3, "3": 86.2, "8": 87.3},
        compared=True,
    ),
    "Adult": Study(
        data={"name": "adult"},
        model={"name": "linear"},
        samples=32_561,
        batch=2048,
        epochs=40,
        private={"1": 5.0},
        decor={"1": 40.0},
        local={"1": 20.0},
        required={"1": 82.8},
    ),
    "CIFAR-10": Study(
        data={"name": "cifar10", "scale": "standard"},
        model={"name": "tanh-cnn6", "width": 32},
        samples=50_000,
        batch=8192,
        epochs=100,
        private={"8": 4.0},
        required={"8": 58.0},
    ),
}
QUICK_STUDIES = {
    "MNIST": Study(
        data={"name": "mnist-mini", "scale": "standard"},
        model={"name": "linear"},
        samples=4_000,
        batch=400,
        epochs=8,
        private={"3": 1.0, "8": 2.0},
        decor={"3": 5.0, "8": 10.0},
        local={"3": 5.0, "8": 10.0},
        required={"3": 97.8},
    )
}


def studies(scale: Scale) -> dict[str, Study]:
    return scale.pick(STUDIES, QUICK_STUDIES)
