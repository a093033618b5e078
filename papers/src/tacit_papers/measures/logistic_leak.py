"""Logistic regression with one sample per node: the sample, computed from what is sent, iteration by iteration."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.fedavg import FedAvg
from tacit.algorithms.pdmm import PDMM
from tacit.algorithms.solvers import GradientSolver
from tacit.core.noise import Gaussian
from tacit.core.randomness import derive_key
from tacit.graph import Topology
from tacit.record.transcript import Transcript
from tacit.simulation import Simulation
from tacit.tasks import Task
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.pdmm_differences import gradient_differences
from tacit_papers.measures.training import rounded

WIDTH = 2  # of a sample; the model has a bias too


@dataclass(frozen=True)
class LogisticLeak:
    """How far the samples that an eavesdropper computes are from the true ones, and the loss, over the iterations.

    Labels are ±: x ∈ ℝ² is normal around (−1, −1) or (1, 1). Through a server the gradient itself is sent; with PDMM
    the difference of two gradients follows from three messages (eq. 33 and 36). Either is (s·x, s) for some number s.
    """

    protocol: str  # CFL or DFL
    nodes: int
    radius: float
    iterations: int
    rate: float = 0.4  # of CFL
    mu: float = 0.1  # of the gradient step that solves local problems
    rho: float = 0.4
    deviation: float = 1.0  # σ_z

    def describe(self) -> dict[str, Any]:
        """All of its fields."""
        return {"logistic regression": asdict(self)}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Run, listen, divide."""
        x, labels = samples(self.nodes, seed)
        graph = Topology.random_geometric(self.nodes, self.radius, seed).mixing("metropolis")
        task = Task.from_loss(
            _loss, list(zip(x, labels, strict=True)), torch.zeros(WIDTH + 1).double()
        )
        transcript = Transcript()
        simulation = Simulation(
            self._algorithm(), task, graph, seed=seed, device=place.device, transcript=transcript
        )
        simulation.start()
        losses = []
        for iteration in range(self.iterations):
            simulation.step()
            theta = simulation.state.theta.cpu()
            losses.append(float(_logits(theta, x, labels)))
            place.said(f"{self.protocol}, logistic regression", iteration + 1, self.iterations)
        told = self._told(transcript)
        errors = [
            float((each[:, :WIDTH] / each[:, WIDTH:] - x).norm(dim=1).mean()) for each in told
        ]
        first = self.iterations - len(errors)  # a difference takes three messages
        return {
            "error": rounded(statistics.median(errors)),
            "largest_error": rounded(max(errors)),
            "loss": losses[-1],
            "curve": {
                "iteration": list(range(first, self.iterations)),
                "error": [rounded(value) for value in errors],
                "loss": [rounded(value) for value in losses[first:]],
            },
        }

    def _algorithm(self) -> Algorithm:
        if self.protocol == "CFL":
            return FedAvg(lr=self.rate)
        return PDMM(rho=self.rho, solver=GradientSolver(self.mu), noise=Gaussian(self.deviation))

    def _told(self, transcript: Transcript) -> list[Tensor]:
        """What the messages give of every node [n, 3], iteration by iteration."""
        if self.protocol == "CFL":
            return [
                message.rows.cpu() for message in transcript.of("grad") if message.verb == "average"
            ]
        messages = transcript.of("dz")
        return [
            gradient_differences(messages[t - 1 : t + 2], self.nodes, self.rho, self.mu, "gradient")
            for t in range(1, len(messages) - 1)
        ]


def samples(nodes: int, seed: int) -> tuple[Tensor, Tensor]:
    """One sample x [n, 2] per node and its label 0 or 1, both in float64."""
    draw = torch.Generator().manual_seed(derive_key(seed, "logistic regression") >> 1)
    labels = torch.randint(0, 2, (nodes,), generator=draw).double()
    return torch.randn(nodes, WIDTH, generator=draw).double() + (2 * labels - 1)[:, None], labels


def _loss(theta: Tensor, x: Tensor, label: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(x @ theta[:WIDTH] + theta[WIDTH], label)


def _logits(theta: Tensor, x: Tensor, labels: Tensor) -> Tensor:
    """The loss averaged over the nodes, each with its own model."""
    logits = (theta[:, :WIDTH] * x).sum(1) + theta[:, WIDTH]
    return functional.binary_cross_entropy_with_logits(logits, labels)
