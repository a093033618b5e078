"""Rows that are more than a tensor: noise drawn when needed, and rows that travel encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class NoiseRows:
    """`count` rows of `width` numbers that are drawn when needed, always the same ones.

    In arithmetic and functions of PyTorch they are a tensor [count, width], which is drawn there.

    `draw(index)` draws the rows at `index` [k]. Where the generator can sum rows without holding
    any, `add(onto, begin, sign)` adds rows begin[i] … begin[i+1] to row i of `onto`, one after the
    other, or subtracts them.
    """

    count: int
    width: int
    dtype: torch.dtype
    device: torch.device
    draw: Callable[[Tensor], Tensor]
    add: Callable[[Tensor, Tensor, int], None] | None = None

    def __len__(self) -> int:
        return self.count

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.count, self.width))

    def __getitem__(self, index: Tensor) -> Tensor:
        """The rows at `index` [k] as a tensor [k, width]."""
        return self.draw(index)

    def tensor(self) -> Tensor:
        """All rows at once: [count, width]."""
        return self.draw(torch.arange(self.count, device=self.device))

    def __add__(self, other: Any) -> Any:
        return self.tensor() + other

    def __radd__(self, other: Any) -> Any:
        return other + self.tensor()

    def __sub__(self, other: Any) -> Any:
        return self.tensor() - other

    def __rsub__(self, other: Any) -> Any:
        return other - self.tensor()

    def __mul__(self, other: Any) -> Any:
        return self.tensor() * other

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self.tensor() / other

    def __neg__(self) -> Tensor:
        return -self.tensor()

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = {name: _drawn(value) for name, value in (kwargs or {}).items()}
        return function(*map(_drawn, args), **named)


def _drawn(value: Any) -> Any:
    """The tensor of rows of noise, also within lists and tuples; anything else as it is."""
    if type(value) in (list, tuple):
        return type(value)(map(_drawn, value))
    return value.tensor() if isinstance(value, NoiseRows) else value


@dataclass(frozen=True)
class CodedRows:
    """Rows that travel encoded: what receivers decode [n, P], and how it becomes bytes."""

    rows: Tensor
    # Bytes of one row on the wire, header included.
    size: Callable[[], int]
    # Those bytes, uint8 [n, size], for networks that really send them.
    encode: Callable[[], Tensor]
    # The inverse; rejects bytes that are no such message.
    decode: Callable[[Tensor], Tensor]


def is_shared(rows: Tensor) -> bool:
    """Whether all rows [n, P] are one row in memory, as those of a total are."""
    return rows.ndim == 2 and len(rows) > 1 and rows.stride(0) == 0


def shared(row: Tensor, count: int) -> Tensor:
    """One row [1, P] as `count` rows, without copies."""
    return row.expand(count, -1)


EdgeRows = Tensor | NoiseRows
Sent = Tensor | CodedRows


def received(sent: Sent) -> Tensor:
    """What arrives when `sent` is sent."""
    return sent.rows if isinstance(sent, CodedRows) else sent


def row_bytes(sent: Sent) -> int:
    """Bytes of one row on the wire."""
    if isinstance(sent, CodedRows):
        return sent.size()
    return sent.shape[1] * sent.dtype.itemsize
