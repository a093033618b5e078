"""The edges of hosted clients, as slots that rows can be lifted to and summed from.

Out-edges are sorted by (source, target) and in-edges by (target, source). On an undirected graph
the k-th out-edge i→j and the k-th in-edge j→i are therefore the two directions of one edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tacit.core.rows import EdgeRows, NoiseRows

# See `slots`.
Slots = list[tuple[Tensor, Tensor]]
# Numbers held at a time while summing lazy rows.
WORKSPACE = 1 << 24


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The edges that enter and leave hosted clients.

    Args:
        ids: Hosted clients [n], ascending.
        out_row: The row of the hosted source of each out-edge, [e].
        out_target: The client at the other end, [e].
        in_row: The row of the hosted target of each in-edge, [f].
        in_source: The client at the other end, [f].
        own_weights: The weight wᵢᵢ of each hosted client on itself, float64 [n, 1]: see `own`.
        weights: The weight wᵢⱼ of each in-edge j→i, float64 [f, 1]: see `weighted`.
    """

    ids: Tensor
    out_row: Tensor
    out_target: Tensor
    in_row: Tensor
    in_source: Tensor
    own_weights: Tensor | None = None
    weights: Tensor | None = None

    @classmethod
    def of(
        cls,
        edges: np.ndarray,
        ids: np.ndarray,
        device: torch.device | str = "cpu",
        weights: sp.csr_array | None = None,
    ) -> Neighbourhood:
        """The neighbourhood of clients `ids` in a graph with directed `edges` [E, 2].

        `weights` is its mixing matrix W, [N, N].
        """
        source, target = edges[:, 0], edges[:, 1]
        leaving, entering = edges[np.isin(source, ids)], edges[np.isin(target, ids)]
        leaving = leaving[np.lexsort((leaving[:, 1], leaving[:, 0]))]
        entering = entering[np.lexsort((entering[:, 0], entering[:, 1]))]

        def tensor(values: np.ndarray) -> Tensor:
            return torch.as_tensor(np.ascontiguousarray(values, dtype=np.int64), device=device)

        own_weights = edge_weights = None
        if weights is not None:
            own_weights = torch.as_tensor(weights.diagonal()[ids], device=device)[:, None]
            # SciPy gives no array of numbers if there are no edges.
            between = weights[entering[:, 1], entering[:, 0]] if len(entering) else np.zeros(0)
            edge_weights = torch.as_tensor(np.asarray(between).ravel(), device=device)[:, None]
        return cls(
            ids=tensor(ids),
            out_row=tensor(np.searchsorted(ids, leaving[:, 0])),
            out_target=tensor(leaving[:, 1]),
            in_row=tensor(np.searchsorted(ids, entering[:, 1])),
            in_source=tensor(entering[:, 0]),
            own_weights=own_weights,
            weights=edge_weights,
        )

    @cached_property
    def host_ids(self) -> Tensor:
        """The hosted clients [n] in the memory of the host."""
        return self.ids.cpu()

    @property
    def out_source(self) -> Tensor:
        """The client that each out-edge leaves, [e]."""
        return self.ids[self.out_row]

    @property
    def in_target(self) -> Tensor:
        """The client that each in-edge enters, [f]."""
        return self.ids[self.in_row]

    @cached_property
    def out_degree(self) -> Tensor:
        """The number of out-neighbours of each hosted client, [n]."""
        return torch.bincount(self.out_row, minlength=len(self.ids))

    @cached_property
    def in_degree(self) -> Tensor:
        """The number of in-neighbours of each hosted client, [n]."""
        return torch.bincount(self.in_row, minlength=len(self.ids))

    @property
    def edge_ends(self) -> tuple[Tensor, Tensor]:
        """The smaller and the larger client of each out-edge, [e]: one name for both directions."""
        source, target = self.out_source, self.out_target
        return torch.minimum(source, target), torch.maximum(source, target)

    @cached_property
    def signs(self) -> Tensor:
        """Bᵢⱼ of each out-edge i→j, [e, 1]: +1 if i < j, else −1."""
        return torch.where(self.out_source < self.out_target, 1.0, -1.0)[:, None]

    def own(self, rows: Tensor) -> Tensor:
        """[n, P] → [n, P]: the part wᵢᵢxᵢ of its own row in the result of `mix`."""
        if self.own_weights is None:
            raise ValueError("a neighbourhood without own weights: give them to Neighbourhood.of")
        return self.own_weights.to(rows.dtype) * rows

    def weighted(self, edge_rows: EdgeRows) -> Tensor:
        """[f, P] → [f, P]: wᵢⱼxⱼ of the row of each in-edge j→i.

        `own(rows) + total_in(weighted(received))` is what `mix` computes, if x was sent to all.
        """
        if self.weights is None:
            raise ValueError("a neighbourhood without weights: give them to Neighbourhood.of")
        return self.weights.to(edge_rows.dtype) * edge_rows

    def by_slot(self, edge_rows: Tensor, own: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """[f, P] → the rows of each client's k-th in-neighbour [n, P], and their weights [n, 1].

        Where a client has fewer neighbours, its own row with the weight 0.
        """
        if self.weights is None:
            raise ValueError("a neighbourhood without weights: give them to Neighbourhood.of")
        rows, weights = [], []
        for clients, edges in self._in_slots:
            row, weight = own.clone(), torch.zeros_like(own[:, :1])
            row[clients] = edge_rows[edges]
            weight[clients] = self.weights[edges].to(weight.dtype)
            rows.append(row)
            weights.append(weight)
        return rows, weights

    def lift(self, rows: Tensor) -> Tensor:
        """[n, P] → [e, P]: the row of the client that each out-edge leaves."""
        return rows[self.out_row]

    def total_out(self, edge_rows: EdgeRows) -> Tensor:
        """[e, P] → [n, P]: the sum over each client's out-edges."""
        return self._add(self._zeros(edge_rows), edge_rows, self.out_degree, self._out_slots, 1)

    def total_in(self, edge_rows: EdgeRows) -> Tensor:
        """[f, P] → [n, P]: the sum over each client's in-edges."""
        return self._add(self._zeros(edge_rows), edge_rows, self.in_degree, self._in_slots, 1)

    def net_out(self, sent: EdgeRows, received: EdgeRows) -> Tensor:
        """total_out(sent) − total_in(received), [n, P], without holding both sums."""
        onto = self._zeros(sent)
        self.add_net_out(onto, sent, received)
        return onto

    def add_net_out(self, onto: Tensor, sent: EdgeRows, received: EdgeRows) -> None:
        """Add `net_out` to rows [n, P] in place."""
        self._add(onto, sent, self.out_degree, self._out_slots, 1)
        self._add(onto, received, self.in_degree, self._in_slots, -1)

    @cached_property
    def _out_slots(self) -> Slots:
        return list(slots(self.out_degree))

    @cached_property
    def _in_slots(self) -> Slots:
        return list(slots(self.in_degree))

    def _zeros(self, edge_rows: EdgeRows) -> Tensor:
        shape = (len(self.ids), edge_rows.shape[1])
        return torch.zeros(shape, dtype=edge_rows.dtype, device=self.ids.device)

    def _add(
        self, onto: Tensor, edge_rows: EdgeRows, degree: Tensor, by_slot: Slots, sign: int
    ) -> Tensor:
        """Add edges sorted by client: all the k-th edges together, k = 0, 1, … (a fixed order)."""
        if isinstance(edge_rows, NoiseRows):
            if edge_rows.add is not None:
                begin = torch.nn.functional.pad(degree.cumsum(0), (1, 0))
                edge_rows.add(onto, begin, sign)
                return onto
            if edge_rows.count * edge_rows.width <= WORKSPACE:
                edge_rows = edge_rows.tensor()
        step = max(1, WORKSPACE // max(1, onto.shape[1]))
        for rows, edges in by_slot:
            for part in range(0, len(rows), step):
                some = edge_rows[edges[part : part + step]]
                onto.index_add_(0, rows[part : part + step], some, alpha=sign)
        return onto


def slots(degree: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For k = 0, 1, …: the rows with more than k edges, and the number of each one's k-th edge.

    Edges are numbered by client. No row occurs twice in a slot, so adding one is deterministic.
    """
    first = degree.cumsum(0) - degree
    rows = torch.arange(len(degree), device=degree.device)
    k = 0
    while True:
        rows = rows[degree[rows] > k]
        if not len(rows):
            return
        yield rows, first[rows] + k
        k += 1
