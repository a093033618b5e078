"""Masked sums in an audit: numbers or symbols in place of integers, without rounding or modulus."""

from __future__ import annotations

from torch import Tensor

from tacit.core.fixed_point import MASK, MODULUS, RESERVED, FixedPoint, IntegerRows
from tacit.core.hosted_clients import HostedClients
from tacit.core.noise import Gaussian


class UnroundedClients(HostedClients):
    """Hosted clients that sum their rows as they are."""

    def encoded_with(self, code: FixedPoint, rows: Tensor) -> None:
        """Take note of how these rows would be encoded."""

    def fixed_point(self, tag: str, rows: Tensor, code: FixedPoint) -> IntegerRows:
        graph, tick, draw = self.graph, self._tick, self.randomness.rows
        self.encoded_with(code, rows)
        if code.noise is not None:
            law = Gaussian(code.noise_deviation)
            rows = rows + draw(f"{RESERVED} {tag}/noise", law, tick, graph.ids, None).tensor()
        masks = draw(f"{RESERVED} {tag}/mask", MASK, tick, *graph.edge_ends)
        shape = (len(rows), rows.shape[1])
        return IntegerRows(
            shape, lambda: rows, graph, masks.tensor, None, lambda total: total, MODULUS
        )
