"""Integer noise of Philox where there are kernels for it: in compiled loops, or on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.core.discrete_gaussian import DiscreteGaussian, base_table
from tacit.core.native import add_integers, supports_integers
from tacit.core.native.gpu import gpu_usable
from tacit.core.workers import WorkerPool

# The key of the first words, and that of further words, which are drawn only where those tie.
Keys = tuple[int, int]


def integer_rows(onto: Tensor, source: Tensor) -> Tensor:
    """Rows to add the integer noise of `source` to: [k, width], or [1, width] for the sum."""
    fits = len(onto) == len(source) if onto.ndim == 2 else onto.ndim == 1
    if not fits or onto.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"integer noise of {len(source)} clients onto {onto.dtype} {tuple(onto.shape)}"
        )
    return onto if onto.ndim == 2 else onto[None]


def add_by_kernels(
    law: DiscreteGaussian,
    keys: Keys,
    tick: Tensor | int,
    source: Tensor,
    onto: Tensor,
    pool: WorkerPool,
) -> bool:
    """Add the noise of `source` to `onto`, as `Randomness.add_integers` does.

    Returns:
        Whether that was done; if not, tensor operations have to do it.
    """
    rows, source = integer_rows(onto, source), source.contiguous()
    table = base_table(rows.device)
    if isinstance(tick, int) and supports_integers(rows):
        count = len(source)
        begin = torch.tensor([0, count]) if onto.ndim == 1 else torch.arange(count + 1)
        noise = ((table.guide, table.words, law.factor), keys, tick, begin, source)
        pool.run(lambda piece: add_integers(*noise, rows, *piece), _pieces(rows.shape, pool))
        return True
    if gpu_usable(rows.device) and rows.stride(1) == 1:
        from tacit.core.native import gpu_integers

        # A fill, not a copy from the host: that would wait for the GPU.
        ticks = tick if isinstance(tick, Tensor) else torch.full_like(source[:1], tick)
        gpu_integers.add_integers(
            (table.guide, table.words, law.factor), keys, ticks, source, rows, onto.ndim == 1
        )
        return True
    return False


def _pieces(shape: torch.Size, pool: WorkerPool) -> list[tuple[slice, slice]]:
    """Rows and columns for each worker; every piece begins with a multiple of four columns."""
    count, width = shape
    if count >= pool.size:
        return [(rows, slice(0, width)) for rows in pool.split(count)]
    fours = pool.split(-(-width // 4))
    return [
        (slice(0, count), slice(4 * piece.start, min(width, 4 * piece.stop))) for piece in fours
    ]
