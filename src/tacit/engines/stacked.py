"""The stacked engine: all clients in one process, their rows in one tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tacit.core.fixed_point import WORD_BYTES, IntegerRows, wrapped
from tacit.core.rows import Sent, received, row_bytes, shared
from tacit.core.workers import WorkerPool
from tacit.engines.buffers import Buffers
from tacit.engines.product import Product
from tacit.graph import Graph

Terms = Sequence[tuple[float, Tensor]]


class StackedNetwork:
    """All clients' messages as products with W."""

    def __init__(
        self,
        graph: Graph,
        dtype: torch.dtype,
        device: torch.device | str,
        pool: WorkerPool | None = None,
    ) -> None:
        self.bytes_sent = 0
        self.buffers = Buffers()
        self._edges, self._clients = len(graph.edges), graph.clients
        self._weights = Product(sp.csr_array(graph.weights), dtype, device, pool)
        # From out-edge order (source, target) to in-edge order (target, source).
        source, target = graph.edges[:, 0], graph.edges[:, 1]
        self._delivery = torch.as_tensor(np.lexsort((source, target)), device=device)

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        self.count_mix(rows.values())
        mixed = []
        for sent in rows.values():
            x = received(sent)
            mixed.append(self.buffers.take(x))
            self.mix_into(mixed[-1], x)
        return tuple(mixed)

    def count_mix(self, rows: Iterable[Sent]) -> None:
        """Count the bytes of mixing these rows."""
        self.bytes_sent += self._edges * sum(map(row_bytes, rows))

    def mix_into(self, out: Tensor, x: Tensor) -> None:
        """Write Σⱼ wᵢⱼ xⱼ of rows x [N, P] into `out`, without counting bytes."""
        self._weights.write(out, x)

    @property
    def mixes_sums(self) -> bool:
        """Whether `mix_sum_into` is possible."""
        return self._weights.adds_terms

    def mix_sum_into(self, out: Tensor, x: Tensor, terms: Terms, bad: Tensor) -> None:
        """As `mix_into`, plus up to two terms factor·rows, in one pass.

        bad[i] becomes whether row i of `out` has a number that is not finite, bool [N].
        """
        self._weights.write(out, x, terms=terms, bad=bad)

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        self.bytes_sent += edge_rows.numel() * edge_rows.element_size()
        return edge_rows[self._delivery]

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        # Masks cancel exactly, so that nothing is lost by leaving them out.
        self.count_total(rows.values())
        totals = []
        for sent in rows.values():
            total = sent.decode(wrapped(sent.total()))
            totals.append(shared(total, sent.shape[0]))
        return tuple(totals)

    def count_total(self, rows: Iterable[IntegerRows]) -> None:
        """Count the bytes of the total: each client but one sends a row up and receives one."""
        width = sum(sent.shape[1] for sent in rows)
        self.bytes_sent += 2 * (self._clients - 1) * width * WORD_BYTES

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        # Each client sends a row to the server and receives one.
        self.bytes_sent += sum(2 * len(x) * row_bytes(x) for x in rows.values())
        return tuple(x.mean(0, keepdim=True).repeat(len(x), 1) for x in rows.values())
