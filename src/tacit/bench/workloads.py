"""The timed workloads: LPPA with the paper's options, on random images.

W1  10 clients × 600 samples, two convolutions of 16 and 32 filters, batch 32: 18 iterations per
    round, 10 rounds
W2  100 clients × 60 samples, perceptron 784-64-10, batch 20: 3 iterations per round
W3  W2 with 1,000 clients
W4  5 clients × 12,000 samples, W1's model, batch 128: 93 iterations per round, 50 rounds (the LPPA
    paper's MNIST)
W5  1,000 clients × 64 samples, W1's model, batch 32; the limit is one model on one batch of all
    32,000 samples

W1, W2, W3 and W5 are rings with Metropolis weights. W4 is a random directed graph that contains a
ring, with Sinkhorn–Knopp weights and independent initial models; it uses the real MNIST if its
files are present.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from tacit import data, models
from tacit.algorithms.lppa import LPPA
from tacit.core.randomness import derive_key
from tacit.core.schedules import Exponential
from tacit.graph import Graph, Topology
from tacit.simulation import Generator, Setting, Simulation
from tacit.tasks import Task
from tacit.tasks.parts import Parts
from tacit.tasks.task import Init

SHAPE, CLASSES = (1, 28, 28), 10


@dataclass(frozen=True, eq=False)
class Images:
    """Training images, and a test set if they are real."""

    x: Tensor
    y: Tensor
    test: tuple[Tensor, Tensor] | None
    source: str


def ring(clients: int) -> Graph:
    return Topology.ring(clients).mixing("metropolis")


def random_directed(clients: int) -> Graph:
    """The LPPA paper's graph: a directed ring with more edges and doubly stochastic weights."""
    return Topology.random_directed(clients, 0.5).mixing("sinkhorn", seed=0)


@dataclass(frozen=True)
class Workload:
    """An experiment whose rounds are timed.

    Attributes:
        samples: Number of samples per client.
        dataset: A real dataset to use if its files are present.
        one_batch: Whether the limit is one model on one batch of all clients' samples.
    """

    name: str
    clients: int
    samples: int
    batch_size: int
    rounds: int
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    graph: Callable[[int], Graph] = ring
    init: Init = "same"
    dataset: str | None = None
    one_batch: bool = False

    @property
    def iterations(self) -> int:
        """Iterations per round."""
        return self.samples // self.batch_size

    @property
    def client_steps(self) -> int:
        """Gradients of one client on one batch, per round."""
        return self.clients * self.iterations

    def images(self) -> Images:
        """Samples of all clients in order, [clients · samples, …]."""
        count = self.clients * self.samples
        if self.dataset is not None and data.describe(self.dataset).present:
            real = data.load(self.dataset, download=False, limit_train=count)
            order = torch.cat(data.iid(len(real.train), self.clients).indices)
            test = (real.test.x, real.test.y)
            return Images(real.train.x[order], real.train.y[order], test, self.dataset)
        generator = torch.Generator().manual_seed(derive_key("bench", self.name) >> 1)
        x = torch.rand(count, *SHAPE, generator=generator)
        return Images(x, torch.randint(CLASSES, (count,), generator=generator), None, "random")

    def module(self) -> nn.Module:
        return models.build(self.model, SHAPE, CLASSES, **self.options)

    def task(self, images: Images) -> Task:
        owned = torch.arange(len(images.x)).view(self.clients, self.samples)
        parts = Parts.split((images.x, images.y), owned.unbind())
        return Task.from_module(
            self.module(), parts, batch_size=self.batch_size, test=images.test, init=self.init
        )

    def simulation(
        self, images: Images, device: torch.device, prg: Generator = "philox"
    ) -> Simulation:
        """A started simulation: λ = 0.02 · 0.95^round, Laplace(0.025) masks at the start."""
        algorithm = LPPA(Exponential(0.02, 0.95, every=self.iterations))
        simulation = Simulation(
            Setting(algorithm, self.task(images), self.graph(self.clients), device=device, prg=prg)
        )
        simulation.start()
        return simulation


W1 = Workload("W1", clients=10, samples=600, batch_size=32, rounds=10, model="cnn2")
W2 = Workload(
    "W2", clients=100, samples=60, batch_size=20, rounds=30, model="mlp", options={"hidden": [64]}
)
W3 = replace(W2, name="W3", clients=1_000, rounds=10)
W4 = Workload(
    "W4", clients=5, samples=12_000, batch_size=128, rounds=50, model="cnn2",
    graph=random_directed, init="independent", dataset="mnist",
)  # fmt: skip
W5 = Workload(
    "W5", clients=1_000, samples=64, batch_size=32, rounds=20, model="cnn2", one_batch=True
)
WORKLOADS = {workload.name: workload for workload in (W1, W2, W3, W4, W5)}

# For the benchmark of peers: the same algorithm without and with masks, which cost no bytes.
PLAIN_ALGORITHM = {"name": "dsgt", "lr": 0.05}
MASKED_ALGORITHM = {"name": "lppa", "lr": 0.05}
