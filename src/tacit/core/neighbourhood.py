"""The edges of hosted clients, as slots that rows can be lifted to and summed from.

Out-edges are sorted by (source, target) and in-edges by (target, source). On an undirected graph the k-th
out-edge i→j and the k-th in-edge j→i are therefore the two directions of one edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tacit.core.rows import LazyRows, Rows

Slots = list[tuple[Tensor, Tensor]]  # see `slots`
WORKSPACE = 1 << 24  # numbers held at a time while summing lazy rows


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """What hosted clients know of the graph: who sends to them and to whom they send."""

    ids: Tensor  # [n] hosted clients, ascending
    out_row: Tensor  # [e] row of the hosted source of each out-edge
    out_target: Tensor  # [e] client at the other end
    in_row: Tensor  # [f] row of the hosted target of each in-edge
    in_source: Tensor  # [f] client at the other end
    own_weight: Tensor | None = None  # [n, 1] what each hosted client gives to its own row; float64

    @classmethod
    def of(
        cls,
        edges: np.ndarray,
        ids: np.ndarray,
        device: torch.device | str = "cpu",
        own_weight: np.ndarray | None = None,
    ) -> Neighbourhood:
        """The neighbourhood of clients `ids` in a graph with directed `edges` [E, 2] of (source, target).

        `own_weight` are their wᵢᵢ [n], which only `own` needs.
        """
        source, target = edges[:, 0], edges[:, 1]
        leaving, entering = np.isin(source, ids), np.isin(target, ids)
        out, into = edges[leaving], edges[entering]
        out = out[np.lexsort((out[:, 1], out[:, 0]))]
        into = into[np.lexsort((into[:, 0], into[:, 1]))]

        def tensor(values: np.ndarray) -> Tensor:
            return torch.as_tensor(np.ascontiguousarray(values, dtype=np.int64), device=device)

        return cls(
            ids=tensor(ids),
            out_row=tensor(np.searchsorted(ids, out[:, 0])),
            out_target=tensor(out[:, 1]),
            in_row=tensor(np.searchsorted(ids, into[:, 1])),
            in_source=tensor(into[:, 0]),
            own_weight=None
            if own_weight is None
            else torch.as_tensor(own_weight, device=device)[:, None],
        )

    @property
    def out_source(self) -> Tensor:
        """[e] client that each out-edge leaves."""
        return self.ids[self.out_row]

    @property
    def in_target(self) -> Tensor:
        """[f] client that each in-edge enters."""
        return self.ids[self.in_row]

    @cached_property
    def out_degree(self) -> Tensor:
        """[n] number of out-neighbours of each hosted client."""
        return torch.bincount(self.out_row, minlength=len(self.ids))

    @cached_property
    def in_degree(self) -> Tensor:
        """[n] number of in-neighbours of each hosted client."""
        return torch.bincount(self.in_row, minlength=len(self.ids))

    @cached_property
    def signs(self) -> Tensor:
        """[e, 1] Bᵢⱼ of each out-edge i→j: +1 if i < j, else −1."""
        return torch.where(self.out_source < self.out_target, 1.0, -1.0)[:, None]

    def own(self, rows: Tensor) -> Tensor:
        """[n, P] → [n, P]: the share wᵢᵢxᵢ of its own row in what `mix` gives each client."""
        if self.own_weight is None:
            raise ValueError("a neighbourhood without own weights: give them to Neighbourhood.of")
        return self.own_weight.to(rows.dtype) * rows

    def lift(self, rows: Tensor) -> Tensor:
        """[n, P] → [e, P]: each out-edge gets the row of the client it leaves."""
        return rows[self.out_row]

    def total_out(self, edge_rows: Rows) -> Tensor:
        """[e, P] → [n, P]: the sum over each client's out-edges."""
        return self._add(self._zeros(edge_rows), edge_rows, self.out_degree, self._out_slots, 1)

    def total_in(self, edge_rows: Rows) -> Tensor:
        """[f, P] → [n, P]: the sum over each client's in-edges."""
        return self._add(self._zeros(edge_rows), edge_rows, self.in_degree, self._in_slots, 1)

    def net_out(self, sent: Rows, received: Rows) -> Tensor:
        """[n, P]: total_out(sent) − total_in(received), without holding both sums."""
        onto = self._zeros(sent)
        self.add_net_out(onto, sent, received)
        return onto

    def add_net_out(self, onto: Tensor, sent: Rows, received: Rows) -> None:
        """Add that to rows [n, P] in place."""
        self._add(onto, sent, self.out_degree, self._out_slots, 1)
        self._add(onto, received, self.in_degree, self._in_slots, -1)

    @cached_property
    def _out_slots(self) -> Slots:
        return list(slots(self.out_degree))

    @cached_property
    def _in_slots(self) -> Slots:
        return list(slots(self.in_degree))

    def _zeros(self, edge_rows: Rows) -> Tensor:
        width = edge_rows.width if isinstance(edge_rows, LazyRows) else edge_rows.shape[1]
        return torch.zeros(len(self.ids), width, dtype=edge_rows.dtype, device=self.ids.device)

    def _add(
        self, onto: Tensor, edge_rows: Rows, degree: Tensor, by_slot: Slots, sign: int
    ) -> Tensor:
        """Add edges sorted by client: all the k-th edges together, k = 0, 1, … (a fixed order)."""
        if isinstance(edge_rows, LazyRows):
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

    Edges are numbered by client. No row occurs twice in one slot, so adding a slot is deterministic everywhere.
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
