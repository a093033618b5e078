"""The stacked engine: all clients in one process, their rows in one tensor."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tacit import native
from tacit.crew import Crew
from tacit.engines.buffers import Buffers
from tacit.graph import Graph
from tacit.graph.neighbourhood import slots
from tacit.rows import Sent, Spent, received, row_bytes

DENSE_UP_TO = 64  # clients; beyond that W is dense only if at least a quarter of it is filled
TILE = 1 << 22  # numbers mixed at a time


class StackedNetwork:
    """All clients' messages as products with W: dense for small or full graphs, row by row otherwise."""

    def __init__(
        self, graph: Graph, dtype: torch.dtype, device: torch.device | str, crew: Crew | None = None
    ) -> None:
        self.bytes_sent = 0
        self.buffers = Buffers()
        self._crew = crew or Crew(1)
        self._edges = len(graph.edges)
        weights = sp.csr_array(graph.weights)
        weights.sort_indices()
        filled = weights.nnz / graph.clients**2
        self._dense: Tensor | None = None
        self._weight: Tensor | None = None
        if graph.clients <= DENSE_UP_TO or filled >= 0.25:
            self._dense = torch.as_tensor(weights.toarray(), dtype=dtype, device=device)
        elif native.available(torch.empty(0, 0, dtype=dtype, device=device)):
            self._begin, self._source = (
                torch.as_tensor(index.astype(np.int64)) for index in (weights.indptr, weights.indices)
            )
            self._weight = torch.as_tensor(weights.data, dtype=dtype)
        else:
            self._slots = _weighted_slots(weights, dtype, device)
        # From out-edge order (source, target) to in-edge order (target, source).
        source, target = graph.edges[:, 0], graph.edges[:, 1]
        self._delivery = torch.as_tensor(np.lexsort((source, target)), device=device)

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """Σⱼ wᵢⱼ xⱼ for every client and tensor."""
        self.bytes_sent += self._edges * sum(map(row_bytes, rows.values()))
        return tuple(self._mixed(sent) for sent in rows.values())

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        """Rows in out-edge order arrive in in-edge order."""
        self.bytes_sent += edge_rows.numel() * edge_rows.element_size()
        return edge_rows[self._delivery]

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """The mean row for every client; each row goes to the server and each client gets one back."""
        self.bytes_sent += sum(2 * len(x) * row_bytes(x) for x in rows.values())
        return tuple(x.mean(0, keepdim=True).repeat(len(x), 1) for x in rows.values())

    def _mixed(self, sent: Sent) -> Tensor:
        x = received(sent)
        out = self.buffers.take(x)
        if self._dense is not None:
            torch.mm(self._dense, x, out=out)
        elif self._weight is None:
            self._sum_slots(x, out)
        else:
            begin, source, weight, x = self._begin, self._source, self._weight, x.contiguous()
            self._crew.each(
                lambda rows: native.mix(begin, source, weight, x, out, rows),
                self._crew.cut(len(x)),
            )
        if isinstance(sent, Spent):
            self.buffers.give(sent.rows)
        return out

    def _sum_slots(self, x: Tensor, out: Tensor) -> None:
        out.zero_()
        step = max(1, TILE // x.shape[1])
        for rows, neighbours, weights in self._slots:
            for part in range(0, len(rows), step):
                piece = slice(part, part + step)
                # Rows of a slot are distinct, so the sums do not depend on threads or device scheduling.
                out.index_add_(0, rows[piece], x[neighbours[piece]].mul_(weights[piece, None]))


def _weighted_slots(
    weights: sp.csr_array, dtype: torch.dtype, device: torch.device | str
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(rows, neighbours, weights) of the first, second, … entry of every row of W."""
    neighbours = torch.as_tensor(weights.indices.astype(np.int64), device=device)
    values = torch.as_tensor(weights.data, dtype=dtype, device=device)
    degree = torch.as_tensor(np.diff(weights.indptr).astype(np.int64), device=device)
    return [(rows, neighbours[entry], values[entry]) for rows, entry in slots(degree)]
