"""The workloads that are timed: LPPA with the paper's options, on images that a keyed generator makes.

W1   10 clients × 600 samples, two convolutions of 16 and 32 filters, batch 32: 18 iterations per round, 10 rounds
W2   100 clients × 60 samples, perceptron 784-64-10, batch 20: 3 iterations per round
W3   1,000 clients, otherwise W2
W4   5 clients × 12,000 samples, W1's model, batch 128: 93 iterations per round, 50 rounds (the LPPA paper's MNIST)
W5   1,000 clients × 64 samples, W1's model, batch 32, against one model on one batch of all 32,000

W1, W2, W3 and W5 are rings with Metropolis weights. W4 is a random directed graph that contains a ring, with
Sinkhorn–Knopp weights and initial weights of each client's own; it takes the real MNIST where that is at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

import tacit
from tacit import data, models
from tacit.core.randomness import derive_key
from tacit.graph import Graph, Topology
from tacit.tasks.parts import Parts
from tacit.tasks.task import Init

SHAPE, CLASSES = (1, 28, 28), 10


@dataclass(frozen=True, eq=False)
class Images:
    """What is trained on, and judged on where the images mean something."""

    x: Tensor
    y: Tensor
    test: tuple[Tensor, Tensor] | None
    source: str


def ring(clients: int) -> Graph:
    """Everyone with the next and the one before."""
    return Topology.ring(clients).mixing("metropolis")


def random_directed(clients: int) -> Graph:
    """The LPPA paper's: a directed ring and further edges, with random doubly stochastic weights."""
    return Topology.random_directed(clients, 0.5).mixing("sinkhorn", seed=0)


@dataclass(frozen=True)
class Workload:
    """An experiment whose rounds are timed; a round is one pass over a client's data, one exchange per batch."""

    name: str
    clients: int
    samples: int  # of each client
    batch_size: int
    rounds: int
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    graph: Callable[[int], Graph] = ring
    init: Init = "same"
    dataset: str | None = None  # taken where its files are at hand
    one_batch: bool = False  # the limit is one model on one batch of everybody's samples

    @property
    def iterations(self) -> int:
        """Per round."""
        return self.samples // self.batch_size

    @property
    def client_steps(self) -> int:
        """Gradients of one client on one batch, per round."""
        return self.clients * self.iterations

    @property
    def words(self) -> str:
        """In a line."""
        return (
            f"{self.clients:,} clients × {self.samples:,} samples, {self.model}, batch {self.batch_size}, "
            f"{self.iterations} iterations per round"
        )

    def images(self) -> Images:
        """Samples of all clients [clients · samples, …], the first client's first."""
        count = self.clients * self.samples
        if self.dataset is not None and data.describe(self.dataset).present:
            real = data.load(self.dataset, download=False, limit_train=count)
            dealt = torch.cat(
                [torch.as_tensor(own) for own in data.iid(len(real.train), self.clients).indices]
            )
            return Images(
                real.train.x[dealt], real.train.y[dealt], (real.test.x, real.test.y), self.dataset
            )
        generator = torch.Generator().manual_seed(derive_key("bench", self.name) >> 1)
        x = torch.rand(count, *SHAPE, generator=generator)
        return Images(x, torch.randint(CLASSES, (count,), generator=generator), None, "random")

    def module(self) -> nn.Module:
        """A new model."""
        return models.build(self.model, SHAPE, CLASSES, **self.options)

    def task(self, images: Images) -> tacit.Task:
        """What the clients minimise."""
        owned = torch.arange(len(images.x)).view(self.clients, self.samples)
        parts = Parts.split((images.x, images.y), owned.unbind())
        return tacit.Task.from_module(
            self.module(), parts, batch_size=self.batch_size, test=images.test, init=self.init
        )

    def simulation(
        self, images: Images, device: torch.device, prg: Literal["philox", "chacha20"] = "philox"
    ) -> tacit.Simulation:
        """The experiment before its first iteration: λ = 0.02 · 0.95^round, Laplace(0.025) masks at the start."""
        algorithm = tacit.LPPA(tacit.Exponential(0.02, 0.95, every=self.iterations))
        simulation = tacit.Simulation(
            algorithm, self.task(images), self.graph(self.clients), device=device, prg=prg
        )
        simulation.start()
        return simulation


W1 = Workload("W1", clients=10, samples=600, batch_size=32, rounds=10, model="cnn2")
W2 = Workload(
    "W2", clients=100, samples=60, batch_size=20, rounds=30, model="mlp", options={"hidden": [64]}
)
W3 = Workload(
    "W3", clients=1_000, samples=60, batch_size=20, rounds=10, model="mlp", options={"hidden": [64]}
)
W4 = Workload(
    "W4", clients=5, samples=12_000, batch_size=128, rounds=50, model="cnn2",
    graph=random_directed, init="independent", dataset="mnist",
)  # fmt: skip
W5 = Workload(
    "W5", clients=1_000, samples=64, batch_size=32, rounds=20, model="cnn2", one_batch=True
)
WORKLOADS = {workload.name: workload for workload in (W1, W2, W3, W4, W5)}

# What peers are timed with: the same rule without and with masks, which are to cost no bytes.
PLAIN_ALGORITHM = {"name": "dsgt", "lr": 0.05}
MASKED_ALGORITHM = {"name": "lppa", "lr": 0.05}
