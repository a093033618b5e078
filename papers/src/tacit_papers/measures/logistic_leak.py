"""Measure of logistic regression with one sample per node, which messages reveal."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.fedavg import FedAvg
from tacit.algorithms.pdmm import PDMM
from tacit.algorithms.solvers import GradientSolver
from tacit.core.errors import Misuse
from tacit.core.noise import Gaussian
from tacit.core.randomness import derive_key
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.graph import Topology
from tacit.record.transcript import Transcript
from tacit.tasks import Task
from tacit_papers.framework.cells import MeasureContext, Values, rounded
from tacit_papers.measures.model_snapshots import gradient_differences

WIDTH = 2  # of a sample; the model has a bias too
MAX_DRAWS = 100


@dataclass(frozen=True)
class LogisticLeak:
    """The error of the samples that an eavesdropper computes, and the loss, over the iterations.

    A sample x ∈ ℝ² is normal around (−1, −1) or (1, 1), by its label. Through a server the gradient
    itself is sent; with PDMM the difference of two gradients follows from three messages (eq. 33
    and 36). Either is (s·x, s) for some number s.
    """

    protocol: str  # CFL or DFL
    nodes: int
    radius: float
    iterations: int
    rate: float = 0.4  # of CFL
    mu: float = 0.1  # of the gradient step that solves local problems
    rho: float = 0.4
    deviation: float = 1.0  # σ_z
    dimensions: int = 2  # of the cube in which nodes are drawn

    def describe(self) -> dict[str, Any]:
        plain = asdict(self)
        # Numbers that were stored before this was a field are of a square.
        if self.dimensions == 2:
            del plain["dimensions"]
        return {"logistic regression": plain}

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        x, labels = samples(self.nodes, seed)
        graph = self._topology(seed).mixing("metropolis")
        start = torch.zeros(WIDTH + 1).double()
        task = Task(start, list(zip(x, labels, strict=True)), loss=_loss)
        transcript = Transcript()
        setting = Setting(self._algorithm(), task, graph, seed=seed, device=context.device)
        simulation = Simulation(setting, transcript=transcript)
        simulation.start()
        losses = []
        for iteration in range(self.iterations):
            simulation.step()
            losses.append(float(_mean_loss(simulation.state.theta.cpu(), x, labels)))
            context.progress(
                f"{self.protocol}, logistic regression", iteration + 1, self.iterations
            )
        errors = [
            float((rows[:, :WIDTH] / rows[:, WIDTH:] - x).norm(dim=1).mean())
            for rows in self._revealed(transcript)
        ]
        # A difference takes three messages.
        first = self.iterations - len(errors)
        return {
            "largest_degree": int(graph.topology.degrees.max()),
            "error": rounded(statistics.median(errors)),
            "largest_error": rounded(max(errors)),
            "loss": losses[-1],
            "curve": {
                "iteration": list(range(first, self.iterations)),
                "error": [rounded(value) for value in errors],
                "loss": [rounded(value) for value in losses[first:]],
            },
        }

    def _topology(self, seed: int) -> Topology:
        if self.dimensions == 2:
            return Topology.random_geometric(self.nodes, self.radius, seed)
        return geometric_in_cube(self.nodes, self.radius, self.dimensions, seed)

    def _algorithm(self) -> Algorithm:
        if self.protocol == "CFL":
            return FedAvg(lr=self.rate)
        return PDMM(rho=self.rho, solver=GradientSolver(self.mu), noise=Gaussian(self.deviation))

    def _revealed(self, transcript: Transcript) -> list[Tensor]:
        """The gradients or differences [n, 3] that messages reveal, by iteration."""
        if self.protocol == "CFL":
            messages = transcript.of("grad")
            return [message.rows.cpu() for message in messages if message.verb == "average"]
        messages, solver = transcript.of("dz"), GradientSolver(self.mu)
        return [
            gradient_differences(messages[t - 1 : t + 2], self.nodes, self.rho, solver)
            for t in range(1, len(messages) - 1)
        ]


def geometric_in_cube(nodes: int, radius: float, dimensions: int, seed: int) -> Topology:
    """Draw nodes in a unit cube and connect those within `radius`, until the graph is connected.

    Raises:
        Misuse: If no draw is connected.
    """
    rng = np.random.default_rng(seed)
    for _ in range(MAX_DRAWS):
        points = rng.random((nodes, dimensions))
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)
        topology = Topology.from_edges(np.argwhere(np.triu(apart <= radius, 1)), nodes)
        if topology.is_connected():
            return topology
    raise Misuse(f"radius = {radius:g} gave no connected graph.", "Raise radius.")


def samples(nodes: int, seed: int) -> tuple[Tensor, Tensor]:
    """One sample x [n, 2] per node and its label 0 or 1, both in float64."""
    draw = torch.Generator().manual_seed(derive_key(seed, "logistic regression") >> 1)
    labels = torch.randint(0, 2, (nodes,), generator=draw).double()
    return torch.randn(nodes, WIDTH, generator=draw).double() + (2 * labels - 1)[:, None], labels


def _loss(theta: Tensor, x: Tensor, label: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(x @ theta[:WIDTH] + theta[WIDTH], label)


def _mean_loss(theta: Tensor, x: Tensor, labels: Tensor) -> Tensor:
    """The loss averaged over the nodes, each at its own model."""
    logits = (theta[:, :WIDTH] * x).sum(1) + theta[:, WIDTH]
    return functional.binary_cross_entropy_with_logits(logits, labels)
