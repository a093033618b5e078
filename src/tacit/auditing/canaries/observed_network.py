"""What can be seen of the messages of disjoint copies of a graph, as numbers along directions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.fixed_point import IntegerRows, wrapped
from tacit.core.here import Network
from tacit.core.rows import Sent, received


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
