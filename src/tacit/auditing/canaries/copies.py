"""Many independent copies of a graph, simulated as one, with canaries in place of data.

The clients of copy r are r·N, …, r·N + N − 1. There are no edges between copies, so the weights are
block-diagonal, and noise is keyed by client, so it is independent. The algorithm's own code runs in
the simulator's engine with its own noise. Only the objective is replaced. `CanaryObjective` gives
client i of copy r the gradients

    gᵢ⁽ᵏ⁾ = cᵣᵢ sₖ C uᵣ

with a coin cᵣᵢ = ±1, a sign sₖ for the k-th gradient of every client, the clipping bound C, and a
direction uᵣ of length one. First models are zero. Canaries that are samples are in
`sample_objective`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.canaries.observed_network import ObservedNetwork
from tacit.core.hosted_clients import Objective, Sampling
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Noise
from tacit.core.randomness import Randomness
from tacit.core.workers import WorkerPool
from tacit.engines.execution import Execution
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.lazy_rows import Workspace
from tacit.engines.stacked import StackedNetwork
from tacit.engines.watchdog import Watchdog
from tacit.graph import Graph, Topology
from tacit.privacy.clipping import Clip
from tacit.record.unknowns import NO_CLIENT, Unknown


def disjoint_copies(graph: Graph, copies: int) -> Graph:
    """The graph so many times, without edges between the copies."""
    clients = graph.clients
    first = clients * np.arange(copies)[:, None, None]
    edges = (graph.edges[None] + first).reshape(-1, 2)
    topology = Topology(
        clients * copies, edges, graph.directed, f"{copies} × {graph.topology.name}"
    )
    blocks = sparse.kron(sparse.eye_array(copies), graph.weights, format="csr")
    return Graph(topology, sparse.csr_array(blocks), graph.rule)


def random_directions(copies: int, width: int, clip: Clip, seed: int) -> Tensor:
    """Directions u [copies, width], each of length one in the norm of the clip.

    An L1 ball reaches farthest in one coordinate, so there u is a coordinate's unit vector.
    """
    rng = np.random.default_rng((seed, 1))
    if clip.norm == "l1":
        rows = np.zeros((copies, width))
        rows[np.arange(copies), rng.integers(width, size=copies)] = rng.choice((-1.0, 1.0), copies)
    else:
        rows = rng.normal(size=(copies, width))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return torch.as_tensor(rows)


class Canaries(Objective, Protocol):
    """An objective with canaries in all copies.

    Attributes:
        directions: The direction of each copy's canaries, [copies, P].
        clients: The number of clients in a copy.
        dtype: Of models and gradients.
        device: Where they live.
    """

    @property
    def directions(self) -> Tensor: ...
    @property
    def clients(self) -> int: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device | str: ...


@dataclass(frozen=True, eq=False)
class CanaryObjective:
    """An objective whose gradients are canaries; it ignores the models.

    Args:
        coins: ±1 of each client of each copy, [copies, N].
        directions: The direction of each copy, [copies, P].
        signs: The sign of each gradient by the number of its batch; 1 where there is none.
        clip: Gives the length of canaries.
        dtype: Of models and gradients.
        device: Where they live.
    """

    coins: Tensor
    directions: Tensor
    signs: Mapping[int, float]
    clip: Clip
    dtype: torch.dtype
    device: torch.device | str = "cpu"

    @classmethod
    def random(
        cls,
        copies: int,
        clients: int,
        width: int,
        clip: Clip,
        signs: Mapping[int, float],
        seed: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> CanaryObjective:
        """Fair coins [copies, clients] and random directions [copies, width]."""
        coins = np.random.default_rng((seed, 0)).choice((-1.0, 1.0), (copies, clients))
        directions = random_directions(copies, width, clip, seed)
        return cls(torch.as_tensor(coins), directions, signs, clip, dtype, device)

    @property
    def clients(self) -> int:
        return self.coins.shape[1]

    def theta0(self) -> Tensor:
        shape = self.coins.numel(), self.directions.shape[1]
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        size = self.signs.get(number, 1.0) * self.clip.bound
        rows = self.coins[:, :, None] * (size * self.directions)[:, None, :]
        rows = rows.reshape(theta.shape).to(self.device, self.dtype)
        # As every gradient: rounding must not make it longer than the bound.
        rows = self.clip.clip_(rows)
        return rows if out is None else out.copy_(rows)

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        raise NotImplementedError("samples are in sample_objective")

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        # Where the gradient is g, ∇f(w) + b + cw = 0.
        return -(self.grad(linear, number) + linear) / curvature


@dataclass(frozen=True, eq=False)
class ObservedCopies:
    """The messages of all copies, as `ObservedNetwork` keeps them, and what they were made of."""

    seen: list[Tensor | None]
    canaries: Canaries
    randomness: Randomness

    def noise(self, unknown: Unknown, law: Noise) -> Tensor:
        """Noise of one client, or of two, in all copies: [copies], along their directions."""
        directions, clients = self.canaries.directions, self.canaries.clients
        first = clients * torch.arange(len(directions), device=self.canaries.device)
        other = None if unknown.other == NO_CLIENT else first + unknown.other
        ends = first + unknown.client, other
        rows = self.randomness.rows(unknown.tag, law, unknown.when, *ends).tensor()
        return torch.einsum("rp,rp->r", rows.cpu().double(), directions)


def run_copies(
    algorithm: Algorithm,
    graph: Graph,
    steps: int,
    canaries: Canaries,
    randomness: Randomness,
    component: Sequence[int] | None = None,
) -> ObservedCopies:
    """Run an algorithm on disjoint copies of a graph.

    Args:
        algorithm: What to run.
        graph: All copies, from `disjoint_copies`.
        steps: The number of iterations.
        canaries: The gradients of all clients.
        randomness: The noise of all clients, as wide as the canaries.
        component: The clients of a copy over which totals are observed; by default all.
    """
    device, pool = torch.device(canaries.device), WorkerPool.for_device(canaries.device)
    ids = np.arange(graph.clients)
    neighbourhood = Neighbourhood.of(graph.edges, ids, device, graph.weights)
    stacked = StackedNetwork(graph, canaries.dtype, device, pool)
    network = ObservedNetwork(stacked, canaries.directions, component)
    here = LazyClients(
        neighbourhood,
        network,
        canaries,
        randomness,
        algorithm.gradients_per_step,
        workspace=Workspace(stacked.buffers, pool),
    )
    execution = Execution(algorithm, here, device, Watchdog(pool), capture=False)
    execution.start()
    for _ in range(steps):
        execution.step()
    return ObservedCopies(network.seen, canaries, randomness)
