"""Sums of clipped gradients that never read from the device, so that they can be captured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from types import ModuleType

import torch
from torch import Tensor

from tacit.gradients.products import OuterProducts
from tacit.privacy.clipping import clipping_factors

# Numbers of an intermediate result, roughly.
TILE = 1 << 26


def write_masked_sums(
    products: Sequence[OuterProducts], bound: float, bounds: Tensor, out: Tensor
) -> None:
    """As `write_clipped_sums`, without reading from the device, on which the bounds [n + 1] are.

    By kernels where they can be used, else by tensor operations: which of them depends on types and
    the device alone.
    """
    if kernels := _kernels(products):
        kernels.write_clipped_sums(products, bound, bounds, out)
    else:
        multiply_masked(products, bound, bounds, out)


def multiply_masked(
    products: Sequence[OuterProducts], bound: float, bounds: Tensor, out: Tensor
) -> None:
    """As `write_masked_sums`, by tensor operations.

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
        selected = torch.where((samples >= first) & (samples < last), factors, 0)
        column = 0
        for block in products:
            part = out[low : low + step, column : column + block.width]
            column += block.width
            if block.left is None:
                part.copy_(selected.double() @ block.right.double())
            else:
                weighted = (selected[:, None] * block.left.T).double()
                part.copy_((weighted @ block.right.double()).flatten(1))


def _kernels(products: Sequence[OuterProducts]) -> ModuleType | None:
    """Our kernels for gradients of this type on this device; None: use tensor operations."""
    factors = [x for block in products for x in (block.left, block.right) if x is not None]
    if not factors[0].is_cuda or any(x.dtype != torch.float32 for x in factors):
        return None
    return _kernels_on(factors[0].device)


@cache
def _kernels_on(device: torch.device) -> ModuleType | None:
    """Our kernels if they work on the device: needs Triton, with products in float64."""
    try:
        from tacit.gradients import gpu_sums

        one, bounds = torch.ones(1, 1, device=device), torch.tensor([0, 1], device=device)
        sums = torch.zeros_like(one)
        gpu_sums.write_clipped_sums([OuterProducts(one, one)], 2.0, bounds, sums)
        works = float(sums) == 1.0
    except Exception:
        # Triton's errors have no common base class. Tensor operations work in any case.
        return None
    return gpu_sums if works else None
