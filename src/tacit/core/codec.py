"""The codec protocol: an unbiased map from rows of numbers to bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.checks import check_methods

# draw(purpose, count) returns int64 [n, count]: independent uniform 32-bit words, one row per
# message. It is a pure function: the same purpose and count give the same words. On a CPU, codecs
# with an attribute `narrow_words` that is true get them as uint32, with which torch cannot compute.
Draw = Callable[[str, int], Tensor]


class Codec(Protocol):
    """A random map C of rows u with P numbers, E[C(u)] = u and E‖C(u) − u‖² ≤ β‖u‖².

    The result for a row depends on that row and its random words alone: a peer that encodes its one
    row and a simulator that encodes all of them produce the same bytes.
    """

    @property
    def lossless(self) -> bool:
        """Whether every row arrives unchanged; then what is sent is linear in it."""
        ...

    def size(self, width: int, dtype: torch.dtype) -> int:
        """Bytes of any encoded row of `width` numbers, header included."""
        ...

    def variance_bound(self, width: int) -> float:
        """β for rows of `width` numbers."""
        ...

    def check_width(self, width: int) -> None:
        """Raise Misuse if the codec cannot encode rows of `width` numbers."""
        ...

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        """`decode(encode(rows, draw), …)` bit for bit, without making the bytes: [n, P]."""
        ...

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        """The bytes on the wire, one message per row: uint8 [n, size]."""
        ...

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """The rows [n, P] that these bytes encode; raise Misuse for bytes of another codec."""
        ...


def check_codec(codec: Codec, name: str = "codec") -> None:
    """Require a codec, not its name or class."""
    remedy = "Give a codec, e.g. Identity() or QSGD(bits=4)."
    check_methods(name, codec, "received", remedy=remedy)
