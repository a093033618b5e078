"""Mixing rules: how much each client listens to each neighbour. All give doubly stochastic weights.

A weight wᵢⱼ is what i gives to j's message, so it can only be there when j sends to i.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from tacit.core.errors import Misuse
from tacit.graph.balancing import balanced
from tacit.graph.patterns import Vector, Weights, whole_number
from tacit.graph.topology import Topology


def metropolis(topology: Topology) -> Weights:
    """wᵢⱼ = 1 / (1 + max(dᵢ, dⱼ)) on edges, wᵢᵢ = 1 − Σⱼ wᵢⱼ (Xiao and Boyd 2004). Undirected graphs."""
    _refuse_directed(topology, "metropolis")
    degrees = topology.degrees
    return _completed(topology, 1.0 / (1.0 + degrees[topology.edges].max(axis=1)))


def laplacian(topology: Topology, *, kappa: float | None = None) -> Weights:
    """W = I − L/κ with the graph Laplacian L; κ = d_max + 1 unless given. Undirected graphs."""
    _refuse_directed(topology, "laplacian")
    largest = int(topology.degrees.max())
    if kappa is None:
        kappa = largest + 1.0
    if not max(largest, 1e-300) <= kappa < np.inf:
        raise Misuse(
            f"kappa = {kappa} is below the largest degree {largest}: a weight would be negative.",
            f"Choose kappa of at least {largest}, or leave it out for {largest + 1}.",
        )
    return _completed(topology, np.full(len(topology.edges), 1.0 / kappa))


def sinkhorn(topology: Topology, *, seed: int | None = None) -> Weights:
    """The doubly stochastic diag(r) A diag(c), A positive on edges and self loops; directed graphs too.

    A is one on its pattern, or uniform in (0.1, 1] when `seed` is given. A strongly connected pattern with
    self loops has total support, so the limit exists and is unique (Sinkhorn and Knopp 1967).
    """
    n = topology.clients
    own = np.arange(n)
    rows = np.concatenate([topology.edges[:, 1], own])
    columns = np.concatenate([topology.edges[:, 0], own])
    entries = np.ones(len(rows))
    if seed is not None:
        rng = np.random.default_rng(
            [whole_number("seed", seed, at_least=0), 1]
        )  # not the stream that drew the edges
        entries = 1.0 - 0.9 * rng.random(len(rows))  # random() is in [0, 1), so this is in (0.1, 1]
    weights = balanced(sparse.csr_array((entries, (rows, columns)), shape=(n, n)))
    if topology.directed or seed is not None:
        return weights
    # The limit of a symmetric pattern is symmetric; make it so to the last bit. Off the diagonal, its entries
    # by row and column are in the order of the edges.
    halves = ((weights + weights.T) / 2).tocoo()
    return _completed(topology, halves.data[halves.row != halves.col])


def _completed(topology: Topology, weights: Vector) -> Weights:
    """The matrix with `weights` on the edges, and on the diagonal what each row lacks to one."""
    n = topology.clients
    sources, targets = topology.edges.T
    own = 1.0 - np.bincount(targets, weights=weights, minlength=n)
    everyone = np.arange(n)
    rows, columns = np.concatenate([targets, everyone]), np.concatenate([sources, everyone])
    return sparse.csr_array((np.concatenate([weights, own]), (rows, columns)), shape=(n, n))


def _refuse_directed(topology: Topology, rule: str) -> None:
    if topology.directed:
        raise Misuse(
            f'mixing "{rule}" needs an undirected topology, and {topology.name} is directed.',
            'Use mixing "sinkhorn", which is doubly stochastic on directed graphs too.',
        )
