"""What a codec is: an unbiased map from a row of numbers to bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.errors import Misuse

Draw = Callable[[str, int], Tensor]
"""draw(purpose, count): [n, count] int64, independent uniform 32-bit words, one row per message row.

A pure function: the same purpose and count give the same words.
"""

DTYPES = {
    torch.float32: 1,
    torch.float64: 2,
}  # the kinds of number that travel, and their codes on the wire


class Codec(Protocol):
    """A random map C of rows u with P numbers, E[C(u)] = u and E‖C(u) − u‖² ≤ β‖u‖².

    What is done to a row depends on that row and its random words alone: a peer that encodes its one row
    and a simulator that encodes all of them produce the same bytes.
    """

    @property
    def lossless(self) -> bool:
        """Whether every row arrives as it is: then what is sent is linear in it, and hides nothing."""
        ...

    def size(self, width: int, dtype: torch.dtype) -> int:
        """Bytes of one encoded row of `width` numbers, header included, whatever the numbers are."""
        ...

    def variance_bound(self, width: int) -> float:
        """β for rows of `width` numbers."""
        ...

    def check_width(self, width: int) -> None:
        """Refuse a width whose rows this codec cannot encode."""
        ...

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        """What the receiver decodes: `decode(encode(rows, draw), …)` bit for bit, without the bytes: [n, P]."""
        ...

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        """The bytes on the wire, one message per row: uint8 [n, size]."""
        ...

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """The rows [n, P] that these bytes stand for; needs nothing else, and refuses other bytes."""
        ...


def check_codec(codec: Codec, name: str = "codec") -> None:
    """Refuse what is not a codec, such as the name of one, or its class."""
    if isinstance(codec, type) or not callable(getattr(codec, "received", None)):
        raise Misuse(f"{name} is {codec!r}.", "Give a codec, e.g. Identity() or QSGD(bits=4).")


def check_rows(rows: Tensor) -> None:
    """Refuse what is not a matrix of floating-point numbers that can travel."""
    if rows.dim() != 2:
        raise Misuse(
            f"The rows to encode have shape {list(rows.shape)}.",
            "Give a matrix, one message per row.",
        )
    check_dtype(rows.dtype)


def check_dtype(dtype: torch.dtype) -> None:
    """Refuse a kind of number that has no code on the wire."""
    if dtype not in DTYPES:
        raise Misuse(
            f"The rows are of {dtype}.",
            "Codecs carry torch.float32 or torch.float64: convert them.",
        )


def check_wide_enough(width: int) -> None:
    """Refuse rows without numbers, and rows whose width does not fit the header."""
    if not 1 <= width < 1 << 32:
        raise Misuse(
            f"The rows have {width} numbers.", "A message carries between 1 and 2³² − 1 numbers."
        )
