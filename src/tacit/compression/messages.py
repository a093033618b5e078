"""The header of every message, numbers as bytes, and the codec that sends nothing else.

    byte 0      the codec's id
    byte 1      its parameter, e.g. the bits per number; 0 where there is none
    byte 2      the type of number: 1 float32, 2 float64
    byte 3      version of the format
    bytes 4–7   numbers in the row

Everything is little endian. Numbers are copied from memory as they are, so the machine must be
little endian too.
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from tacit.core.codec import Draw
from tacit.core.errors import Misuse

if sys.byteorder != "little":
    raise ImportError(
        "tacit.compression copies numbers as they are in memory and needs a little-endian machine."
    )

VERSION = 1
HEADER_BYTES = 8
CODEC_IDS = {"identity": 1, "rand-k": 2, "qsgd": 3, "sign": 4}
DTYPE_IDS = {torch.float32: 1, torch.float64: 2}
SAME = "Both ends must use the same codec with the same settings."


class MessageCodec(ABC):
    """A codec that writes its messages where it is told to, so that others can contain them."""

    @property
    def narrow_words(self) -> bool:
        """Whether it reads random words as uint32: see `Draw`."""
        return True

    @abstractmethod
    def size(self, width: int, dtype: torch.dtype) -> int: ...

    @abstractmethod
    def write(self, rows: Tensor, draw: Draw, wire: Tensor) -> None:
        """Write the messages of rows [n, P] to the bytes `wire` [n, size]."""

    def encode(self, rows: Tensor, draw: Draw) -> Tensor:
        check_rows(rows)
        n, width = rows.shape
        size = self.size(width, rows.dtype)
        wire = torch.empty(n, size, dtype=torch.uint8, device=rows.device)
        self.write(rows, draw, wire)
        return wire


@dataclass(frozen=True)
class Identity(MessageCodec):
    """C(u) = u; β = 0. On the wire: header, then the numbers, little endian.

    NaN and infinity arrive as they were sent.

    Example:
        >>> Identity().size(1000, torch.float32)
        4008
    """

    lossless: ClassVar[bool] = True

    def size(self, width: int, dtype: torch.dtype) -> int:
        return HEADER_BYTES + width * dtype.itemsize

    def variance_bound(self, width: int) -> float:
        return 0.0

    def check_width(self, width: int) -> None:
        check_width(width)

    def received(self, rows: Tensor, draw: Draw) -> Tensor:
        check_rows(rows)
        return rows.clone()

    def write(self, rows: Tensor, draw: Draw, wire: Tensor) -> None:
        rest = begin(wire, "identity", rows.shape[1], rows.dtype)
        if is_aligned(rest, rows.dtype):
            rest.view(rows.dtype).copy_(rows)
        else:
            rest.copy_(_raw(rows))

    def decode(self, wire: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        return as_numbers(payload(wire, "identity", width, dtype, self.size(width, dtype)), dtype)


def check_rows(rows: Tensor) -> None:
    """Require a matrix of numbers that a message can carry, one message per row."""
    if rows.dim() != 2:
        raise Misuse(
            f"The rows to encode have shape {list(rows.shape)}.",
            "Give a matrix, one message per row.",
        )
    _check_dtype(rows.dtype)
    check_width(rows.shape[1])


def check_width(width: int) -> None:
    """Require rows that are not empty and whose width fits the header."""
    if not 1 <= width < 1 << 32:
        raise Misuse(
            f"The rows have {width} numbers.", "A message carries between 1 and 2³² − 1 numbers."
        )


def begin(
    wire: Tensor, codec: str, width: int, dtype: torch.dtype, *numbers: Tensor, parameter: int = 0
) -> Tensor:
    """Write the header of messages uint8 [n, size] and numbers [n, k]; return the bytes after."""
    header = _header(codec, parameter, dtype, width)
    end = HEADER_BYTES + sum(number.shape[1] * number.element_size() for number in numbers)
    start = wire if wire.is_cpu else torch.empty(len(wire), end, dtype=torch.uint8)
    # NumPy is faster with so few bytes.
    raw, at = start.numpy(), HEADER_BYTES
    raw[:, :at] = np.frombuffer(header, np.uint8)
    for number in numbers:
        own = number.cpu().contiguous().numpy().view(np.uint8)
        raw[:, at : at + own.shape[1]] = own
        at += own.shape[1]
    if start is not wire:
        wire[:, :end] = start
    return wire[:, end:]


def payload(
    wire: Tensor, codec: str, width: int, dtype: torch.dtype, size: int, parameter: int = 0
) -> Tensor:
    """What follows the header of messages uint8 [n, size]: [n, size − 8].

    Raises Misuse if a message has another size, or another header than `make` writes.
    """
    if wire.dim() != 2 or wire.dtype != torch.uint8:
        raise Misuse(
            f"The messages to decode are {wire.dtype} of shape {list(wire.shape)}.",
            "Give a matrix of torch.uint8, one message per row.",
        )
    _check_dtype(dtype)
    if wire.shape[1] < HEADER_BYTES:
        raise Misuse(f"The messages have {wire.shape[1]} bytes, less than a header.", SAME)
    expected = _header(codec, parameter, dtype, width)
    headers = (wire if wire.is_cpu else wire[:, :HEADER_BYTES].cpu()).numpy()[:, :HEADER_BYTES]
    if headers.tobytes() != expected * len(headers):
        row, received = next(
            (row, received)
            for row, header in enumerate(headers)
            if (received := header.tobytes()) != expected
        )
        raise Misuse(f"Message {row} {_difference(received, expected)}.", SAME)
    if wire.shape[1] != size:
        raise Misuse(f"The messages have {wire.shape[1]} bytes, where {codec} has {size}.", SAME)
    return wire[:, HEADER_BYTES:]


def as_numbers(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes [n, w·itemsize] as numbers [n, w], in new memory."""
    return raw.clone(memory_format=torch.contiguous_format).view(dtype)


def is_aligned(raw: Tensor, dtype: torch.dtype) -> bool:
    """Whether bytes [n, w·itemsize] can be viewed as numbers."""
    offsets = (raw.data_ptr(), raw.storage_offset(), raw.stride(0))
    return raw.stride(1) == 1 and not any(offset % dtype.itemsize for offset in offsets)


def _check_dtype(dtype: torch.dtype) -> None:
    if dtype not in DTYPE_IDS:
        raise Misuse(
            f"The rows are of {dtype}.",
            "Codecs carry torch.float32 or torch.float64: convert them.",
        )


def _raw(part: Tensor) -> Tensor:
    """Numbers [n, w] as bytes [n, w·itemsize], whatever their strides."""
    return part.flatten().view(torch.uint8).view(len(part), part.shape[1] * part.element_size())


def _header(codec: str, parameter: int, dtype: torch.dtype, width: int) -> bytes:
    return struct.pack("<BBBBI", CODEC_IDS[codec], parameter, DTYPE_IDS[dtype], VERSION, width)


def _difference(received: bytes, expected: bytes) -> str:
    """The most important difference between two headers, in words."""
    codec, parameter, dtype, version, width = struct.unpack("<BBBBI", received)
    own_codec, own_parameter, own_dtype, _, own_width = struct.unpack("<BBBBI", expected)
    codecs = {code: name for name, code in CODEC_IDS.items()}
    dtypes = {code: str(kind) for kind, code in DTYPE_IDS.items()}
    if version != VERSION:
        return f"has format {version}, where this program reads format {VERSION}"
    if codec != own_codec:
        return f"is of codec {codecs.get(codec, codec)}, not {codecs[own_codec]}"
    if parameter != own_parameter:
        return f"has the parameter {parameter}, not {own_parameter}"
    if dtype != own_dtype:
        return f"carries {dtypes.get(dtype, f'numbers of kind {dtype}')}, not {dtypes[own_dtype]}"
    return f"carries {width} numbers, not {own_width}"
