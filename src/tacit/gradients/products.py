"""Gradients of single samples by some weights, kept in the form that is cheapest to clip and sum.

The gradient of a sample by the weights of a linear layer is the outer product of two vectors, and
its norm is the product of their norms. Where the layer is used at several positions (tokens, or
windows of an image), it is a sum of outer products. The matrices are formed only while they are
summed over samples, or where forming them takes less work. A gradient that is no such product is
one with the vector (1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.native import layers as loops
from tacit.privacy.clipping import clipping_factors

# Right factors with more than this count as infinite: with them, what a subnormal left factor loses
# when it is scaled would be more than other rounding.
LARGEST_SQUARE = 2.0**128
# Gradients by a matrix of up to so many numbers stay in the caches while they are summed.
# There, up to so many products for each number take less time than to form it.
CACHED, LITTLE_WORK = 1 << 16, 40
# What rounding in float64 may add to a sum of gradients, as a share of their bound for each of
# them: a quarter of one rounding to single precision, see `tacit.core.rounded_sums`.
LARGEST_ROUNDING = 2.0**-26


class Products(Protocol):
    """The gradients of B samples by some weights."""

    @property
    def width(self) -> int:
        """Number of weights."""

    def squared_norms(self) -> Tensor:
        """The squared norm of each sample's gradient, or a little more, float64 [B]."""

    def rows(self) -> Tensor:
        """The gradients themselves, [B, width]."""

    def without(self, samples: Tensor) -> Products:
        """The same with zero gradients for the samples of a mask [B]."""

    def write_sums(self, factors: Tensor, bounds: Tensor, out: Tensor) -> None:
        """out[i] = Σ factors[b] · gradient[b] over bounds[i] ≤ b < bounds[i + 1].

        Args:
            factors: One number for each sample, [B].
            bounds: Not decreasing, int64 [n + 1], on the host.
            out: Where to write [n, width].
        """


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

    def write_sums(self, factors: Tensor, bounds: Tensor, out: Tensor) -> None:
        """out[i] = Σ factors[b] · left[b] ⊗ right[b] over bounds[i] ≤ b < bounds[i + 1]."""
        left = factors[:, None] if self.left is None else factors[:, None] * self.left
        sum_outer_products(left, self.right, bounds, out)


@dataclass(frozen=True, eq=False)
class PositionProducts:
    """The gradients of B samples: the sum of left[t] ⊗ right[t] over T positions, never formed.

    The norm is that of a difference of numbers that may be much larger: ‖Σ_t g_t ⊗ a_t‖² is the sum
    of (g_t · g_s)(a_t · a_s) over all pairs of positions, with both signs. So it is computed in
    float64, and what rounding may take from it there is added. It is also at least so long that
    what rounding in float64 does to the sum of clipped gradients is at most 2⁻²⁶ of the bound for
    each of them.

    Attributes:
        left: [B, T, O].
        right: [B, T, I].
    """

    left: Tensor
    right: Tensor

    @property
    def width(self) -> int:
        """Number of weights."""
        return self.left.shape[2] * self.right.shape[2]

    def squared_norms(self) -> Tensor:
        """The squared norm of each sample's gradient, or a little more, float64 [B]."""
        left, right = self.left.double(), self.right.double()
        by_pairs = torch.bmm(left, left.mT).mul_(torch.bmm(right, right.mT))
        diagonal = by_pairs.diagonal(dim1=1, dim2=2)
        # ‖g_t‖‖a_t‖ summed over positions bounds every partial sum of the gradient.
        largest = diagonal.sqrt().sum(1)
        samples, positions, outputs = self.left.shape
        terms = outputs + self.right.shape[2] + positions * positions
        computed = by_pairs.sum((1, 2)) + terms * 2.0**-52 * largest.square()
        # Only where next to everything cancels.
        least = samples * positions * 2.0**-53 / LARGEST_ROUNDING * largest
        return torch.maximum(computed, least.square())

    def rows(self) -> Tensor:
        """The gradients themselves, [B, O·I]."""
        return _summed(self.left, self.right).flatten(1)

    def without(self, samples: Tensor) -> PositionProducts:
        """The same with zero gradients for the samples of a mask [B]."""
        left, right = (x.masked_fill(samples[:, None, None], 0) for x in (self.left, self.right))
        return PositionProducts(left, right)

    def write_sums(self, factors: Tensor, bounds: Tensor, out: Tensor) -> None:
        """The sums of samples bounds[i] to bounds[i + 1] times their factors, into out[i]."""
        left = self.left.double() * factors.double()[:, None, None]
        right = self.right.double()
        ends = bounds.tolist()
        for client, (low, high) in enumerate(pairwise(ends)):
            total = left[low:high].flatten(0, 1).mT @ right[low:high].flatten(0, 1)
            out[client] = total.flatten()


@dataclass(frozen=True, eq=False)
class Lookups:
    """The gradients of B samples by a table [V, D] of which each looked up T rows.

    Attributes:
        index: Which rows, int64 [B, T].
        left: The gradient by each of them, [B, T, D]: zero but at the first place of a row.
        size: Number of rows V.
    """

    index: Tensor
    left: Tensor
    size: int

    @classmethod
    def of(cls, index: Tensor, gradient: Tensor, size: int) -> Lookups:
        """From the gradient by what was looked up [B, T, D], where rows may be repeated."""
        same = index[:, :, None] == index[:, None]
        combined = torch.bmm(same.to(gradient.dtype), gradient)
        earlier = same.tril(-1).any(2)
        return cls(index, combined.masked_fill_(earlier[:, :, None], 0), size)

    @property
    def width(self) -> int:
        """Number of weights."""
        return self.size * self.left.shape[2]

    def squared_norms(self) -> Tensor:
        """The squared norm of each sample's gradient, float64 [B]."""
        return _squares(self.left.flatten(1))

    def rows(self) -> Tensor:
        """The gradients themselves, [B, V·D]."""
        table = self.left.new_zeros(len(self.left), self.size, self.left.shape[2])
        # No row is added to twice but with zero, so the order does not matter.
        return table.scatter_add_(
            1, self.index[:, :, None].expand_as(self.left), self.left
        ).flatten(1)

    def without(self, samples: Tensor) -> Lookups:
        """The same with zero gradients for the samples of a mask [B]."""
        return Lookups(self.index, self.left.masked_fill(samples[:, None, None], 0), self.size)

    def write_sums(self, factors: Tensor, bounds: Tensor, out: Tensor) -> None:
        """The sums of samples bounds[i] to bounds[i + 1] times their factors, into out[i]."""
        left = self.left.double() * factors.double()[:, None, None]
        ends = bounds.tolist()
        for client, (low, high) in enumerate(pairwise(ends)):
            total = left.new_zeros(self.size, left.shape[2])
            total.index_add_(0, self.index[low:high].flatten(), left[low:high].flatten(0, 1))
            out[client] = total.flatten()


def position_products(left: Tensor, right: Tensor) -> Products:
    """The gradients Σ_t left[t] ⊗ right[t] for [B, T, O] and [B, T, I], in the cheapest form.

    A function of shapes, type and device alone.
    """
    if left.shape[1] == 1:
        return OuterProducts(right[:, 0], left[:, 0])
    if stay_apart(left, left.shape[1], left.shape[2], right.shape[2]):
        return PositionProducts(left, right)
    return OuterProducts(_summed(left, right).flatten(1))


def stay_apart(like: Tensor, positions: int, outputs: int, width: int) -> bool:
    """Whether Σ_t left[t] ⊗ right[t] is not to be formed: it is larger, and takes more work.

    Args:
        like: A tensor of the same type and device.
        positions: How many are summed.
        outputs: Numbers of a left factor.
        width: Numbers of a right factor.
    """
    if like.device.type != "cpu" or like.dtype != torch.float32:
        return False
    formed = outputs * width
    if max(positions * positions, positions * (outputs + width)) >= formed:
        return False
    # Products of pairs and of sums, in float64, for each number of a formed gradient.
    work = positions + positions * positions * (outputs + width) / formed
    return formed > CACHED or work < LITTLE_WORK


def _summed(left: Tensor, right: Tensor) -> Tensor:
    """Σ_t left[t] ⊗ right[t] of each sample, [B, O, I]."""
    if left.mT.is_contiguous() and right.mT.is_contiguous():
        # As convolutions have them. The other way round takes MKL up to eight times as long.
        return torch.bmm(right.mT, left).mT
    return torch.bmm(left.mT, right)


def write_clipped_sums(
    products: Sequence[Products], bound: float, sums: Sequence[tuple[Tensor, Tensor]]
) -> None:
    """Clip the gradient of each sample to the norm `bound`, and sum those of each client.

    Args:
        products: The gradients of B samples by all weights, block by block.
        bound: The largest norm. A gradient that is not finite counts as zero.
        sums: Bounds and an output: samples bounds[i] to bounds[i + 1] are summed into row i of the
            output [n, P].
    """
    norms = reduce(torch.add, [block.squared_norms() for block in products]).sqrt_()
    factors = clipping_factors(norms, bound, sums[0][1].dtype)
    if not bool((finite := norms.isfinite()).all()):
        # Zero times infinity is not zero.
        products = [block.without(~finite) for block in products]
    for bounds, out in sums:
        columns = torch.split(out, [block.width for block in products], 1)
        for block, part in zip(products, columns, strict=True):
            block.write_sums(factors, bounds, part)


def formed(products: Products) -> OuterProducts:
    """The same gradients as outer products of two vectors, or with one of them (1)."""
    return products if isinstance(products, OuterProducts) else OuterProducts(products.rows())


def sum_outer_products(left: Tensor, right: Tensor, bounds: Tensor, out: Tensor) -> None:
    """out[i] = Σ left[b] ⊗ right[b] over bounds[i] ≤ b < bounds[i + 1].

    Args:
        left: [B, O].
        right: [B, I].
        bounds: Not decreasing, int64 [n + 1], on the host.
        out: Where to write [n, O·I].
    """
    if loops.supports(out):
        left, right = (x if x.stride(1) == 1 else x.contiguous() for x in (left, right))
        loops.outer_sums(left, right, bounds, out)
        return
    counts = bounds.diff()
    for count in sorted(set(counts.tolist())):
        (clients,) = torch.where(counts == count)
        samples = (bounds[clients][:, None] + torch.arange(count)).to(left.device)
        total = left[samples].double().mT @ right[samples].double()
        out[clients.to(out.device)] = total.flatten(1).to(out.dtype)


def _squares(vectors: Tensor) -> Tensor:
    """The squared norm of each vector [B, I], float64 [B]."""
    # In float64: the square of a large float32 would overflow. A few vectors at a time, because
    # torch makes a copy of them in float64.
    rows = max(1, CACHED // max(1, vectors.shape[1])) if vectors.is_cpu else len(vectors)
    few = torch.split(vectors, max(1, rows))
    norms = [torch.linalg.vector_norm(x, dim=1, dtype=torch.float64) for x in few]
    return torch.cat(norms).square_()
