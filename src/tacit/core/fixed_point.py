"""Rows as integers modulo 2³², for sums that reveal nothing but the total.

    qᵢ = round(s · xᵢ) + Zᵢ mod 2³²
    Σᵢ (xᵢ + Zᵢ/s) = (Σᵢ qᵢ mod 2³², read as a signed number) / s, up to rounding

The scale s is public and Zᵢ is integer noise. A client's mask is uniform modulo 2³², so qᵢ plus the
mask tells nothing, and masks that cancel do so without rounding, whatever their size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from tacit.core.checks import check_count, check_positive
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.core.native import add_encoded, supports
from tacit.core.native.gpu import gpu_usable
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.workers import WorkerPool

MODULUS = 2**32
# Tags that begin with this belong to sums and to the drawing of samples, not to algorithms.
RESERVED = "Σ"
# Beyond this, a total is too close to the end of the range; noise has the rest of it.
LARGEST_TOTAL = 2**30
# Numbers converted at a time, to float64 or int64.
TILE = 1 << 22
# Bytes of one number on the wire.
WORD_BYTES = 4


@dataclass(frozen=True)
class FixedPoint:
    """How rows become integers, and their total numbers again.

    Args:
        scale: The integers per unit, s.
        noise: What each client adds to its integers.
        limit: The largest integer that a client contributes, before noise. If all of them together
            stay below 3·2³⁰, a total beyond 2³⁰ is never taken for another one 2³² away.
    """

    scale: float
    noise: DiscreteGaussian | None = None
    limit: int = LARGEST_TOTAL

    def __post_init__(self) -> None:
        check_positive("The scale of integers", self.scale, example=1e6)
        check_count("The limit of integers", self.limit)

    @property
    def modulus(self) -> float:
        """Numbers repeat after this: 2³²/s."""
        return MODULUS / self.scale

    @property
    def noise_deviation(self) -> float:
        """Standard deviation of one client's noise, in the units of its rows."""
        return 0.0 if self.noise is None else self.noise.scale / self.scale

    def encode(self, rows: Tensor) -> Tensor:
        """round(s · x) as int32, limited to ±`limit`; what is not a number counts as the limit.

        Raises:
            Misuse: If a number is beyond the limit and there is no noise. With noise the error
                would tell something about the data, and on a GPU it would have to wait.
        """
        out = torch.empty(rows.shape, dtype=torch.int32, device=rows.device)
        for part in _tiles(rows):
            scaled = (rows[part].double() * self.scale).round_()
            if self.noise is None and not rows.is_cuda:
                least, most = (float(end) for end in torch.aminmax(scaled))
                if max(most, -least) > self.limit:
                    raise self._out_of_range("A number to be summed", self.limit)
            torch.nan_to_num_(scaled, self.limit).clamp_(-self.limit, self.limit)
            out[part] = scaled
        return out

    def encoded_sum(self, rows: Tensor, pool: WorkerPool) -> Tensor:
        """The sum of encoded rows, int64 [1, P], in one pass where there are kernels for it.

        Raises:
            Misuse: As `encode`.
        """
        if supports(rows):
            # Sums of integers below 2⁵³ are exact.
            out, largest = rows.new_zeros(rows.shape[1], dtype=torch.float64), []

            def add(columns: slice) -> None:
                largest.append(rows.new_zeros(1, dtype=torch.float64))
                add_encoded(rows, self.scale, self.limit, out, largest[-1], columns)

            pool.run(add, pool.split(rows.shape[1]))
            if self.noise is None and any(bool(size.round() > self.limit) for size in largest):
                raise self._out_of_range("A number to be summed", self.limit)
            return out.to(torch.int64)[None]
        if gpu_usable(rows.device) and rows.dtype == torch.float32 and rows.stride(1) == 1:
            from tacit.core.native import gpu_integers

            return gpu_integers.encoded_sum(rows, self.scale, self.limit)[None]
        return summed(self.encode(rows))

    def decode(self, total: Tensor, dtype: torch.dtype) -> Tensor:
        """The numbers of a total of int32.

        Raises:
            Misuse: If a number is close to the end of the range. On a GPU it becomes NaN instead,
                because looking at it would wait for the GPU.
        """
        # Not the magnitude: that of -2³¹ is no int32.
        outside = (total > LARGEST_TOTAL) | (total < -LARGEST_TOTAL)
        if not total.is_cuda and bool(outside.any()):
            raise self._out_of_range("A total", LARGEST_TOTAL)
        values = total.to(torch.float64) / self.scale
        return torch.where(outside, torch.nan, values).to(dtype)

    def _out_of_range(self, what: str, largest: int) -> Misuse:
        return Misuse(
            f"{what} has passed {largest / self.scale:.3g}: it is close to the end of the range of "
            "its integers.",
            "Lower the learning rate or the clipping bound, or sum smaller batches.",
        )


@dataclass(frozen=True, eq=False)
class IntegerRows:
    """Rows for `net.total`. Masks are drawn when needed: they cancel in the total.

    Attributes:
        shape: Hosted clients and numbers of each, n and P.
        compute: Computes the integers of each hosted client, with noise and without masks.
        graph: The edges of the hosted clients.
        masks: Draws the mask of each out-edge [e, P]; both directions of an edge have the same.
        noise: Computes the noise [n, P] that `integers` include; None if there is none.
        decode: Maps a total [P] to numbers.
        modulus: The numbers repeat after this: 2³²/s.
        add_up: Computes the sum of all rows, int64 [1, P], faster than row by row.
    """

    shape: tuple[int, int]
    compute: Callable[[], Tensor]
    graph: Neighbourhood
    masks: Callable[[], Tensor]
    noise: Callable[[], Tensor] | None
    decode: Callable[[Tensor], Tensor]
    modulus: float
    add_up: Callable[[], Tensor] | None = None

    @cached_property
    def integers(self) -> Tensor:
        """One row per hosted client, with noise and without masks: int32 [n, P]."""
        return self.compute()

    def total(self) -> Tensor:
        """The sum of the rows, int64 [1, P]."""
        if self.add_up is None or "integers" in vars(self):
            return summed(self.integers)
        return self.add_up()

    def with_integers(self, integers: Tensor) -> IntegerRows:
        """The same with other integers."""
        return replace(self, compute=lambda: integers, add_up=None)

    def masked(self) -> Tensor:
        """The integers with masks: of an edge's ends, the smaller number adds its mask."""
        masks = self.masks()
        signs = self.graph.signs.to(masks.dtype)
        return wrapped(self.integers + self.graph.total_out(signs * masks))


class Mask:
    """The distribution of a mask in audits, which compute with numbers: no number is ruled out."""

    variance = math.inf

    def quantile(self, u: Tensor) -> Tensor:
        """A number of any size: the quantile of a Cauchy distribution."""
        return torch.tan(math.pi * (u - 0.5))


MASK = Mask()


def summed(integers: Tensor) -> Tensor:
    """The sum of rows int32 [n, P], as int64 [1, P]."""
    total = torch.zeros(1, integers.shape[1], dtype=torch.int64, device=integers.device)
    for part in _tiles(integers):
        total += integers[part].sum(0)
    return total


def _tiles(rows: Tensor) -> list[slice]:
    """A few rows at a time."""
    step = max(1, TILE // max(1, rows.shape[1]))
    return [slice(low, low + step) for low in range(0, len(rows), step)]


def wrapped(integers: Tensor) -> Tensor:
    """Integers modulo 2³², as int32; the numbers of audits as they are."""
    return integers if integers.is_floating_point() else integers.to(torch.int32)
