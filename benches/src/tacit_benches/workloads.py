"""The timed workloads: LPPA with the paper's options, on random images or tokens.

W1  10 clients × 600 samples, two convolutions of 16 and 32 filters, batch 32: 18 iterations per
    round, 10 rounds
W2  100 clients × 60 samples, perceptron 784-64-10, batch 20: 3 iterations per round
W3  W2 with 1,000 clients
W4  5 clients × 12,000 samples, W1's model, batch 128: 93 iterations per round, 50 rounds (the LPPA
    paper's MNIST)
W5  1,000 clients × 64 samples, W1's model, batch 32; the limit is one model on one batch of all
    32,000 samples
W6  16 clients × 64 samples, ResNet-18 with GroupNorm, batch 32: 2 iterations per round
W6b 100 clients × 32 samples, the same model, batch 16
W6s 5 clients × 16 samples, the same model with a quarter of the channels, batch 8; for CPUs
W7  16 clients × 64 sequences of 64 tokens, transformer encoder of 4 layers, batch 32
W8  W7 with 6 layers, of which only LoRA adapters of rank 8 and the last linear layer are trained

W6 to W8 are compared with both limits, and run in three precisions: W6 is in float32, W6-tf32 and
W6-bf16 are the others. All but W4 are rings with Metropolis weights. W4 is a random directed
graph that contains a ring, with Sinkhorn–Knopp weights and independent initial models; it uses the
real MNIST if its files are present.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tacit import data, models
from tacit.algorithms.lppa import LPPA
from tacit.core.devices import Precision
from tacit.core.randomness import derive_key
from tacit.core.schedules import Exponential
from tacit.engines.setting import Generator, Setting
from tacit.engines.simulation import Simulation
from tacit.graph import Graph, Topology
from tacit.tasks import Objective, Task
from tacit.tasks.module_task import Init
from tacit.tasks.parts import Parts

CLASSES = 10
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bf16")
VOCABULARY = 256


@dataclass(frozen=True, eq=False)
class Images:
    """Training inputs (images, or sequences of tokens), and a test set if they are real."""

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
        shape: Shape of an input; one dimension: a sequence of tokens.
        limits: A plain loop over the clients' batches, one model on one batch of all samples, or
            both.
        lora: Rank of adapters that are trained in the place of the model; 0: none.
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
    limits: Literal["loop", "one batch", "both"] = "loop"
    shape: tuple[int, ...] = (1, 28, 28)
    lora: int = 0
    precision: Precision = "float32"

    @property
    def iterations(self) -> int:
        """Iterations per round."""
        return self.samples // self.batch_size

    @property
    def client_steps(self) -> int:
        """Gradients of one client on one batch, per round."""
        return self.clients * self.iterations

    @property
    def is_text(self) -> bool:
        """Whether inputs are sequences of tokens."""
        return len(self.shape) == 1

    def images(self) -> Images:
        """Samples of all clients in order, [clients · samples, …]."""
        count = self.clients * self.samples
        if self.dataset is not None and data.describe(self.dataset).present:
            real = data.load(self.dataset, download=False, limit_train=count)
            order = torch.cat(data.iid(len(real.train), self.clients).indices)
            test = (real.test.x, real.test.y)
            return Images(real.train.x[order], real.train.y[order], test, self.dataset)
        generator = torch.Generator().manual_seed(derive_key("bench", self.name) >> 1)
        x = torch.rand(count, *self.shape, generator=generator)
        if self.is_text:
            x = torch.randint(VOCABULARY, x.shape, generator=generator)
        return Images(x, torch.randint(CLASSES, (count,), generator=generator), None, "random")

    def module(self) -> nn.Module:
        text = {"vocabulary": VOCABULARY} if self.is_text else {}
        module = models.build(self.model, self.shape, CLASSES, **self.options, **text)
        return models.lora(module, self.lora, train=["linear"]) if self.lora else module

    def task(self, images: Images) -> Objective:
        owned = torch.arange(len(images.x)).view(self.clients, self.samples)
        parts = Parts.split((images.x, images.y), owned.unbind())
        return Task(
            self.module(), parts, batch_size=self.batch_size, test=images.test, init=self.init
        )

    def simulation(
        self, images: Images, device: torch.device, prg: Generator = "philox"
    ) -> Simulation:
        """A started simulation: λ = 0.02 · 0.95^round, Laplace(0.025) masks at the start."""
        algorithm = LPPA(Exponential(0.02, 0.95, steps=self.iterations))
        task, graph = self.task(images), self.graph(self.clients)
        setting = Setting(algorithm, task, graph, device=device, prg=prg, precision=self.precision)
        simulation = Simulation(setting)
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
    "W5", clients=1_000, samples=64, batch_size=32, rounds=20, model="cnn2", limits="one batch"
)
W6 = Workload(
    "W6", clients=16, samples=64, batch_size=32, rounds=10, model="resnet18-gn",
    shape=(3, 32, 32), limits="both",
)  # fmt: skip
W6B = replace(W6, name="W6b", clients=100, samples=32, batch_size=16)
W6S = replace(W6, name="W6s", clients=5, samples=16, batch_size=8, options={"width": 16})
W7 = Workload(
    "W7", clients=16, samples=64, batch_size=32, rounds=10, model="transformer", shape=(64,),
    limits="both",
)  # fmt: skip
W8 = replace(W7, name="W8", options={"layers": 6}, lora=8)


def in_precisions(workload: Workload) -> list[Workload]:
    """The same workload in every precision, with the precision in its name unless float32."""
    others = [replace(workload, name=f"{workload.name}-{p}", precision=p) for p in PRECISIONS[1:]]
    return [workload, *others]


# Too large for a CPU.
LARGE = (W4, W5, *(each for one in (W6, W6B, W7, W8) for each in in_precisions(one)))
WORKLOADS = {workload.name: workload for workload in (W1, W2, W3, W6S, *LARGE)}

# For the benchmark of peers: the same algorithm without and with masks, which cost no bytes.
PLAIN_ALGORITHM = {"name": "dsgt", "lr": 0.05}
MASKED_ALGORITHM = {"name": "lppa", "lr": 0.05}
