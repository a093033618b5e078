"""The spanning tree along which a sum is computed: up to the root and down again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from tacit.core.errors import Misuse
from tacit.graph.edges import Edges

# Clients whose distances to all others are computed at a time.
BLOCK = 256


@dataclass(frozen=True, eq=False)
class SpanningTree:
    """A breadth-first tree from a client of least eccentricity.

    Every client computes the same tree from the same edges: among equals, the smallest number wins.

    Attributes:
        root: The client that knows the total first.
        parent: The parent of each client [N]; the root's is -1.
        bottom_up: All clients but the root, children before parents.
    """

    root: int
    parent: npt.NDArray[np.int64]
    bottom_up: npt.NDArray[np.int64]

    @classmethod
    def of(cls, edges: Edges, clients: int) -> SpanningTree:
        """The tree of an undirected, connected graph.

        Raises:
            Misuse: If the graph is not connected.
        """
        source, target = edges[:, 0], edges[:, 1]
        ones = np.ones(len(edges))
        adjacency = sparse.csr_array((ones, (source, target)), shape=(clients, clients))
        eccentricity = np.concatenate(
            [
                csgraph.dijkstra(adjacency, indices=range(low, high), unweighted=True).max(axis=1)
                for low in range(0, clients, BLOCK)
                for high in [min(clients, low + BLOCK)]
            ]
        )
        if not np.isfinite(eccentricity).all():
            raise Misuse(
                "A sum needs a connected graph, and some clients cannot reach each other.",
                "Add edges between the parts.",
            )
        root = int(eccentricity.argmin())
        order, before = csgraph.breadth_first_order(adjacency, root, directed=False)
        parent = np.where(before >= 0, before, -1).astype(np.int64)
        return cls(root, parent, order[:0:-1].astype(np.int64))

    def children(self, client: int) -> list[int]:
        """The children of a client, ascending."""
        return [int(child) for child in np.flatnonzero(self.parent == client)]
