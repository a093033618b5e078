"""Rows that are more than a tensor: computed when taken, or encoded when sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


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
