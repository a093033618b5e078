"""Sums of clipped gradients of single samples.

The gradient of a sample by the weights of a linear layer is the outer product of two vectors, and
its norm is the product of their norms. So gradients are kept as outer products, and the matrices
are formed only while they are summed. A gradient that is no such product is one with the vector
(1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from tacit.core.native import per_sample
from tacit.privacy.clipping import clipping_factors

# Numbers of an intermediate result, roughly.
TILE = 1 << 26
# Right factors with more than this count as infinite: with them, what a subnormal left factor loses
# when it is scaled would be more than other rounding.
LARGEST_SQUARE = 2.0**128


@dataclass(frozen=True, eq=False)
class OuterProducts:
    """The gradients of B samples by some weights: left ⊗ right of each sample, row by row.

    Attributes:
        right: The right factors, [B, I].
        left: The left factors, [B, O]; None: ones, with O = 1.
        squares: Numbers [B, k] whose sum is the sum of squares of each right factor, float64, if
            they are known.
    """

    right: Tensor
    left: Tensor | None = None
    squares: Tensor | None = None

    @property
    def width(self) -> int:
        """Number of weights."""
        return self.right.shape[1] * (1 if self.left is None else self.left.shape[1])

    def squared_norms(self) -> Tensor:
        """The squared norm of each sample's gradient, float64 [B]."""
        squares = _squares(self.right) if self.squares is None else self.squares.sum(1)
        if self.left is None:
            return squares
        return squares.masked_fill(squares > LARGEST_SQUARE, torch.inf) * _squares(self.left)

    def rows(self) -> Tensor:
        """The gradients themselves, [B, O·I]."""
        if self.left is None:
            return self.right
        return (self.left[:, :, None] * self.right[:, None]).flatten(1)

    def without(self, samples: Tensor) -> OuterProducts:
        """The same with zero gradients for the samples of a mask [B]."""
        right = self.right.masked_fill(samples[:, None], 0)
        left = None if self.left is None else self.left.masked_fill(samples[:, None], 0)
        return OuterProducts(right, left)


def write_clipped_sums(
    products: Sequence[OuterProducts], bound: float, sums: Sequence[tuple[Tensor, Tensor]]
) -> None:
    """Clip the gradient of each sample to the norm `bound`, and sum those of each client.

    Args:
        products: The gradients of B samples by all weights, block by block.
        bound: The largest norm. A gradient that is not finite counts as zero.
        sums: Bounds and an output: samples bounds[i] to bounds[i + 1] are summed into row i of the
            output [n, P].
    """
    norms = reduce(torch.add, [block.squared_norms() for block in products]).sqrt_()
    dtype = products[0].right.dtype
    factors = clipping_factors(norms, bound, dtype)
    if not bool((finite := norms.isfinite()).all()):
        # Zero times infinity is not zero.
        products = [block.without(~finite) for block in products]
    for bounds, out in sums:
        columns = torch.split(out, [block.width for block in products], 1)
        for block, part in zip(products, columns, strict=True):
            left = factors[:, None] if block.left is None else factors[:, None] * block.left
            sum_outer_products(left, block.right, bounds, part)


def write_masked_sums(
    products: Sequence[OuterProducts], bound: float, bounds: Tensor, out: Tensor
) -> None:
    """As `write_clipped_sums`, without reading from the device, on which the bounds [n + 1] are.

    Multiplies all samples with the factors of all clients, which are zero for those of others.
    """
    norms = reduce(torch.add, [block.squared_norms() for block in products]).sqrt_()
    factors = clipping_factors(norms, bound, products[0].right.dtype)
    products = [block.without(~norms.isfinite()) for block in products]
    samples = torch.arange(len(norms), device=norms.device)
    widest = max(1 if block.left is None else block.left.shape[1] for block in products)
    step = max(1, TILE // (len(norms) * widest))
    for low in range(0, len(out), step):
        first, last = bounds[:-1, None][low : low + step], bounds[1:, None][low : low + step]
        own = torch.where((samples >= first) & (samples < last), factors, 0)
        column = 0
        for block in products:
            part = out[low : low + step, column : column + block.width]
            column += block.width
            if block.left is None:
                part.copy_(own.double() @ block.right.double())
            else:
                weighted = (own[:, None] * block.left.T).double()
                part.copy_((weighted @ block.right.double()).flatten(1))


def sum_outer_products(left: Tensor, right: Tensor, bounds: Tensor, out: Tensor) -> None:
    """out[i] = Σ left[b] ⊗ right[b] over bounds[i] ≤ b < bounds[i + 1].

    Args:
        left: [B, O].
        right: [B, I].
        bounds: Not decreasing, int64 [n + 1], on the host.
        out: Where to write [n, O·I].
    """
    if per_sample.supports(out):
        per_sample.outer_sums(left.contiguous(), right.contiguous(), bounds, out)
        return
    counts = bounds.diff()
    for count in sorted(set(counts.tolist())):
        (clients,) = torch.where(counts == count)
        samples = (bounds[clients][:, None] + torch.arange(count)).to(left.device)
        total = left[samples].double().mT @ right[samples].double()
        out[clients.to(out.device)] = total.flatten(1).to(out.dtype)


def _squares(vectors: Tensor) -> Tensor:
    # In float64: the square of a large float32 would overflow.
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64)
    return norms.square_()
