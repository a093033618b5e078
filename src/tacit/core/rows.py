"""Rows that are more than a tensor: computed when taken, or encoded when sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tacit.core.native import add, supports
from tacit.core.workers import WorkerPool

FEW = 1 << 14  # numbers up to which calling anybody costs more than adding them


@dataclass(frozen=True)
class LazyRows:
    """`count` rows of `width` numbers; `draw(index)` computes the rows asked for, always the same ones.

    Where there is a way to sum them without holding any, `add(onto, begin, sign)` adds the rows begin[i] … begin[i+1]
    to row i of `onto`, one after the other, or subtracts them.
    """

    count: int
    width: int
    dtype: torch.dtype
    device: torch.device
    draw: Callable[[Tensor], Tensor]
    add: Callable[[Tensor, Tensor, int], None] | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Tensor) -> Tensor:
        """The rows at `index` [k] as a tensor [k, width]."""
        return self.draw(index)

    def tensor(self) -> Tensor:
        """All rows at once: [count, width]."""
        return self.draw(torch.arange(self.count, device=self.device))


@dataclass(frozen=True)
class CodedRows:
    """Rows that travel encoded: what the receivers decode [n, P], and what is on the wire meanwhile."""

    rows: Tensor
    size: Callable[[], int]  # bytes of one row on the wire, header included
    encode: Callable[[], Tensor]  # those bytes, uint8 [n, size], for networks that really send them
    decode: Callable[[Tensor], Tensor]  # bytes of such a message → its rows; refuses other bytes


@dataclass(frozen=True)
class Spent:
    """Rows that their owner does not need after sending them: whoever sends them may write into them."""

    rows: Tensor


Rows = Tensor | LazyRows
Sent = Tensor | CodedRows | Spent


def received(sent: Sent) -> Tensor:
    """What arrives where `sent` was sent."""
    return sent if isinstance(sent, Tensor) else sent.rows


def row_bytes(sent: Sent) -> int:
    """Bytes on the wire of one row."""
    if isinstance(sent, CodedRows):
        return sent.size()
    rows = received(sent)
    return rows.shape[1] * rows.element_size()


def add_rows(onto: Tensor, *terms: tuple[float, Tensor], pool: WorkerPool) -> None:
    """Add Σ weight · rows in place, one term after the other; all workers of the crew have their share."""
    if onto.numel() < FEW or not all(map(supports, (onto, *(rows for _, rows in terms)))):
        for weight, rows in terms:
            onto.add_(rows, alpha=weight)
        return
    padded = [*terms, (0.0, None)] if len(terms) % 2 else terms
    for (a, x), (b, y) in zip(padded[::2], padded[1::2], strict=True):
        assert x is not None
        pool.run(partial(add, onto, a, x, b, y), pool.split(len(onto)))
