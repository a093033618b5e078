"""Many independent copies of a graph, simulated as one, with canaries in place of data.

The clients of copy r are r·N, …, r·N + N − 1. There are no edges between copies, so the weights are
block-diagonal, and noise is keyed by client, so it is independent. The algorithm's own code runs in
the simulator's engine with its own noise. Only the objective is replaced. Messages are kept as
numbers along the directions of the canaries. First models are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.bounds.secret_rows import SecretRows
from tacit.auditing.symbolic.row_space import Matrix
from tacit.core.fixed_point import IntegerRows, wrapped
from tacit.core.here import Network
from tacit.core.hosted_clients import Sampling
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Noise
from tacit.core.randomness import Randomness
from tacit.core.rows import Sent, received
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


@dataclass(frozen=True, eq=False)
class Canaries:
    """An objective with canaries in place of data.

    Attributes:
        coins: One of each copy [copies, ...].
        directions: The direction of each copy, [copies, P].
        clients: The number of clients in a copy.
        dtype: Of models and gradients.
        device: Where they live.
    """

    coins: Tensor
    directions: Tensor
    clients: int
    dtype: torch.dtype
    device: torch.device | str

    def theta0(self) -> Tensor:
        shape = len(self.coins) * self.clients, self.directions.shape[1]
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        raise NotImplementedError("these canaries are for sums over samples")

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        raise NotImplementedError("these canaries are gradients of batches")

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        # Where the gradient is g, ∇f(w) + b + cw = 0.
        return -(self.grad(linear, number) + linear) / curvature


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


class ObservedNetwork:
    """A network of disjoint copies that keeps its messages, projected on the copies' directions.

    `seen` has an entry per message, in the order of a transcript: rows [copies, k] in float64, or
    None for a message that is not one number per parameter. Of a total, `seen` has the sum over a
    component of each copy: what a coalition can compute that cuts the component off.

    Args:
        network: Delivers the messages.
        directions: One per copy, [copies, P].
        component: Clients of a copy; by default all.
    """

    def __init__(
        self, network: Network, directions: Tensor, component: Sequence[int] | None = None
    ) -> None:
        self._network, self._directions = network, directions
        self._component = None if component is None else list(component)
        self.seen: list[Tensor | None] = []

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        for sent in rows.values():
            self._observe(received(sent))
        return self._network.mix(**rows)

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        self._observe(edge_rows)
        return self._network.send(tag, edge_rows, private=private)

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        """The sum over each copy. Masks cancel exactly, in the total and over a component."""
        copies, totals = len(self._directions), []
        for sent in rows.values():
            by_copy = sent.integers.reshape(copies, -1, sent.integers.shape[1])
            total = sent.decode(wrapped(by_copy.sum(1)))
            part = total
            if self._component is not None:
                part = sent.decode(wrapped(by_copy[:, self._component].sum(1)))
            # What is sent up the tree is masked.
            self.seen.append(None)
            self._observe(part)
            totals.append(total.repeat_interleave(by_copy.shape[1], 0))
        return tuple(totals)

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """The mean over each copy: each has a server of its own."""
        copies = len(self._directions)
        for sent in rows.values():
            self._observe(sent)
        means = [x.reshape(copies, -1, x.shape[1]).mean(1) for x in rows.values()]
        for mean in means:
            self._observe(mean)
        pairs = zip(rows.values(), means, strict=True)
        return tuple(mean.repeat_interleave(len(x) // copies, 0) for x, mean in pairs)

    def _observe(self, rows: Tensor) -> None:
        copies, width = self._directions.shape
        if rows.shape[1] != width:
            self.seen.append(None)
            return
        by_copy = rows.detach().reshape(copies, -1, width).cpu().double()
        self.seen.append(torch.einsum("rkp,rp->rk", by_copy, self._directions))


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


def observed_rows(view: SecretRows, observed: ObservedCopies) -> Matrix:
    """The rows [copies, m] of a view as seen in all copies, less the noise that is known."""
    messages = view.run.transcript.messages
    if len(observed.seen) != len(messages):
        raise ValueError(f"{len(observed.seen)} messages were sent, {len(messages)} on symbols")
    columns = []
    for message, row in view.rows:
        rows = observed.seen[message]
        if rows is None or rows.shape[1] <= row:
            raise ValueError(f"the message {messages[message].tag!r} has another shape")
        columns.append(rows[:, row])
    seen: Matrix = torch.stack(columns, 1).numpy()
    for unknown in view.known_noise:
        drawn = observed.noise(unknown, view.run.laws[unknown]).numpy()
        seen -= np.outer(drawn, view.coefficients[:, view.run.columns[unknown]])
    return seen
