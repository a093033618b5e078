"""An eavesdropper's sliding mean: zero-mean masks shrink with the window, what stays put does not."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.core.arguments import is_count
from tacit.core.errors import Misuse


def sliding_mean(rows: Tensor, window: int) -> Tensor:
    """(1/w) Σ_{s = t}^{t+w−1} rows[s] for every t: rows [T, P] ↦ [T − w + 1, P], in O(T·P).

    The running sums are kept in double precision, so that a long transcript does not blur its end.

    >>> sliding_mean(torch.tensor([[1.0], [3.0], [5.0]]), 2)
    tensor([[2.],
            [4.]])
    """
    if rows.ndim != 2 or not rows.is_floating_point():
        raise Misuse(
            f"The rows have shape {tuple(rows.shape)} and type {rows.dtype}.",
            "Give one vector per message: floating-point numbers [messages, parameters].",
        )
    if not is_count(window) or window > len(rows):
        raise Misuse(
            f"window is {window!r} for {len(rows)} rows.", f"Give a number from 1 to {len(rows)}."
        )
    if not bool(rows.isfinite().all()):
        raise Misuse(
            "The rows have numbers that are not finite.",
            "Leave out the messages of clients that diverged.",
        )
    sums = torch.zeros(len(rows) + 1, rows.shape[1], dtype=torch.float64, device=rows.device)
    torch.cumsum(rows, 0, dtype=torch.float64, out=sums[1:])
    return ((sums[window:] - sums[:-window]) / window).to(rows.dtype)
