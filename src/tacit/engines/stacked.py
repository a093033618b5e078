"""The stacked engine: all clients in one process, their rows in one tensor."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tacit.graph import Graph
from tacit.graph.neighbourhood import slots
from tacit.rows import Sent, received, row_bytes

DENSE_UP_TO = 64  # clients; beyond that W is dense only if at least a quarter of it is filled
TILE = 1 << 22  # numbers mixed at a time


class StackedNetwork:
    """All clients' messages as products with W: dense for small or full graphs, by neighbour slots otherwise."""

    def __init__(self, graph: Graph, dtype: torch.dtype, device: torch.device | str) -> None:
        self.bytes_sent = 0
        self._edges = len(graph.edges)
        weights = sp.csr_array(graph.weights)
        filled = weights.nnz / graph.clients**2
        self._dense: Tensor | None = None
        if graph.clients <= DENSE_UP_TO or filled >= 0.25:
            self._dense = torch.as_tensor(weights.toarray(), dtype=dtype, device=device)
        else:
            self._slots = _weighted_slots(weights, dtype, device)
        # From out-edge order (source, target) to in-edge order (target, source).
        source, target = graph.edges[:, 0], graph.edges[:, 1]
        self._delivery = torch.as_tensor(np.lexsort((source, target)), device=device)

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """Σⱼ wᵢⱼ xⱼ for every client and tensor."""
        self.bytes_sent += self._edges * sum(map(row_bytes, rows.values()))
        return tuple(self._product(received(sent)) for sent in rows.values())

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        """Rows in out-edge order arrive in in-edge order."""
        self.bytes_sent += edge_rows.numel() * edge_rows.element_size()
        return edge_rows[self._delivery]

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """The mean row for every client; each row goes to the server and each client gets one back."""
        self.bytes_sent += sum(2 * len(x) * row_bytes(x) for x in rows.values())
        return tuple(x.mean(0, keepdim=True).repeat(len(x), 1) for x in rows.values())

    def _product(self, x: Tensor) -> Tensor:
        if self._dense is not None:
            return self._dense @ x
        out = torch.zeros_like(x)
        step = max(1, TILE // x.shape[1])
        for rows, neighbours, weights in self._slots:
            for part in range(0, len(rows), step):
                piece = slice(part, part + step)
                # Rows of a slot are distinct, so the sums do not depend on threads or device scheduling.
                out.index_add_(0, rows[piece], x[neighbours[piece]].mul_(weights[piece, None]))
        return out


def _weighted_slots(
    weights: sp.csr_array, dtype: torch.dtype, device: torch.device | str
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(rows, neighbours, weights) of the first, second, … entry of every row of W."""
    neighbours = torch.as_tensor(weights.indices.astype(np.int64), device=device)
    values = torch.as_tensor(weights.data, dtype=dtype, device=device)
    degree = torch.as_tensor(np.diff(weights.indptr).astype(np.int64), device=device)
    return [(rows, neighbours[entry], values[entry]) for rows, entry in slots(degree)]
