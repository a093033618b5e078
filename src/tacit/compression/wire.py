"""The bytes every message begins with, and how numbers become bytes.

    byte 0      the codec's id
    byte 1      its parameter, e.g. the bits per number; 0 where there is none
    byte 2      the kind of number: 1 float32, 2 float64
    byte 3      version of the format
    bytes 4–7   numbers in the row

Everything on the wire is little endian. Numbers are taken from memory as they lie there, so the machine must be
little endian too, as all machines that PyTorch supports are but one.
"""

from __future__ import annotations

import struct
import sys

import torch
from torch import Tensor

from tacit.compression.codec import DTYPES, check_dtype
from tacit.core.errors import Misuse

if sys.byteorder != "little":
    raise ImportError(
        "tacit.compression reads numbers as they lie in memory and needs a little-endian machine."
    )

VERSION = 1
HEADER = 8  # bytes
IDS = {"identity": 1, "rand-k": 2, "qsgd": 3, "sign": 4}
SAME = "Both ends must use the same codec with the same settings."


def message(
    codec: str, width: int, dtype: torch.dtype, *parts: Tensor, parameter: int = 0
) -> Tensor:
    """One message per row: the header, then the bytes of each of `parts` [n, …], numbers of any kind."""
    begin = torch.frombuffer(bytearray(_header(codec, parameter, dtype, width)), dtype=torch.uint8)
    head = begin.to(parts[0].device).expand(len(parts[0]), HEADER)
    return torch.cat([head, *(_raw(part) for part in parts)], dim=1)


def payload(
    wire: Tensor, codec: str, width: int, dtype: torch.dtype, size: int, parameter: int = 0
) -> Tensor:
    """What follows the header: [n, size − 8]. Refuses messages that begin otherwise or have another size."""
    if wire.dim() != 2 or wire.dtype != torch.uint8:
        raise Misuse(
            f"The messages to decode are {wire.dtype} of shape {list(wire.shape)}.",
            "Give a matrix of torch.uint8, one message per row.",
        )
    check_dtype(dtype)
    if wire.shape[1] < HEADER:
        raise Misuse(f"The messages have {wire.shape[1]} bytes, less than a header.", SAME)
    expected = _header(codec, parameter, dtype, width)
    same = wire[:, :HEADER] == torch.tensor(list(expected), dtype=torch.uint8, device=wire.device)
    wrong = (~same).any(dim=1).nonzero()
    if len(wrong):
        row = int(wrong[0])
        found = bytes(wire[row, :HEADER].tolist())
        raise Misuse(f"Message {row} {_difference(found, expected)}.", SAME)
    if wire.shape[1] != size:
        raise Misuse(f"The messages have {wire.shape[1]} bytes, where {codec} has {size}.", SAME)
    return wire[:, HEADER:]


def numbers(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes [n, w·itemsize] read as numbers [n, w], in memory of their own."""
    return raw.clone(memory_format=torch.contiguous_format).view(dtype)


def _raw(part: Tensor) -> Tensor:
    """Numbers [n, w] as bytes [n, w·itemsize], however they lie in memory."""
    return part.flatten().view(torch.uint8).view(len(part), part.shape[1] * part.element_size())


def _header(codec: str, parameter: int, dtype: torch.dtype, width: int) -> bytes:
    return struct.pack("<BBBBI", IDS[codec], parameter, DTYPES[dtype], VERSION, width)


def _difference(found: bytes, expected: bytes) -> str:
    """What is said in one header and not in the other, in the order in which it matters."""
    codec, parameter, dtype, version, width = struct.unpack("<BBBBI", found)
    own_codec, own_parameter, own_dtype, _, own_width = struct.unpack("<BBBBI", expected)
    codecs = {code: name for name, code in IDS.items()}
    dtypes = {code: str(kind) for kind, code in DTYPES.items()}
    if version != VERSION:
        return f"has format {version}, where this program reads format {VERSION}"
    if codec != own_codec:
        return f"is of codec {codecs.get(codec, codec)}, not {codecs[own_codec]}"
    if parameter != own_parameter:
        return f"has the parameter {parameter}, not {own_parameter}"
    if dtype != own_dtype:
        return f"carries {dtypes.get(dtype, f'numbers of kind {dtype}')}, not {dtypes[own_dtype]}"
    return f"carries {width} numbers, not {own_width}"
