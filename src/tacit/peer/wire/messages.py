"""Messages between nodes: the tensors of one exchange in one safetensors frame.

A receiver sends the same kind of message itself, so it knows the header of each message it accepts:
sender, exchange, and the name, type and shape of every tensor. It builds that header and compares
bytes. It never parses what a peer sends and never allocates more than the size it knows. Only the
numbers come from outside: tacit.peer.node.plausible_values checks them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tacit.peer.federation.absence import roster_name

Tensors = Mapping[str, Tensor]
Layout = tuple[tuple[str, torch.dtype, torch.Size, int], ...]  # with the bytes of each

DTYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.uint8: "U8",
}
# Reasons to reject a message that lie in what the sender made, not in how it arrived. A second
# request is likely to bring the same.
FINAL_REASONS = {
    "not finite", "too large", "codec", "size", "dtype", "shape", "tensors", "envelope", "sender",
    "iteration", "equivocation", "unsigned",
}  # fmt: skip
LENGTH_BYTES = 8  # a safetensors file starts with the length of its header
MAX_DIAGNOSED_BYTES = 1 << 16  # of a wrong header, to say what is wrong


@dataclass(frozen=True, order=True)
class ExchangeId:
    """Identifies one exchange of messages in a run; `index` counts the exchanges of one tick."""

    generation: int
    tick: int
    index: int

    def __str__(self) -> str:
        return f"{roster_name(self.generation)}, iteration {self.tick}, exchange {self.index}"


@dataclass(frozen=True)
class Envelope:
    federation: str
    sender: str
    receiver: str  # empty: all neighbours
    exchange: ExchangeId

    def to_dict(self) -> dict[str, Any]:
        """As dataclasses.asdict, which takes ten times as long."""
        return {**vars(self), "exchange": dict(vars(self.exchange))}


class Rejected(Exception):
    """A message or answer is not what it must be; `reason` is a label for the metrics."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, eq=False)
class WireMessage:
    envelope: Envelope
    frame: bytes | memoryview  # in memory, or mapped from a file
    sha256: bytes  # of the frame


def pack(envelope: Envelope, tensors: Tensors) -> WireMessage:
    parts: list[bytes | memoryview] = [_header(envelope, tensors)]
    parts += [raw_bytes(tensors[tag]) for tag in _order(tensors)]
    frame = b"".join(parts)
    return WireMessage(envelope, frame, hashlib.sha256(frame).digest())


class ExpectedMessage:
    """The only acceptable message: this envelope, and tensors of the types and shapes of `like`."""

    def __init__(self, envelope: Envelope, like: Tensors) -> None:
        self.envelope = envelope
        self._like = like
        self._header = _header(envelope, like)
        self.size = len(self._header) + sum(rows.nbytes for rows in like.values())  # bytes

    def unpack(self, frame: bytearray) -> dict[str, Tensor]:
        """Return the tensors, which share the memory of the frame; raise Rejected otherwise."""
        if not frame.startswith(self._header):
            found = bytes(frame[: LENGTH_BYTES + MAX_DIAGNOSED_BYTES])
            raise _header_difference(found, self._header)
        if len(frame) != self.size:
            raise Rejected("size", f"a message of {len(frame)} bytes, not {self.size}")
        tensors: dict[str, Tensor] = {}
        offset = len(self._header)
        for tag in _order(self._like):
            like = self._like[tag]
            flat = torch.frombuffer(frame, dtype=like.dtype, count=like.numel(), offset=offset)
            tensors[tag] = flat.view(like.shape)
            offset += like.nbytes
        return {tag: tensors[tag] for tag in self._like}


def raw_bytes(rows: Tensor) -> memoryview:
    """The bytes of a tensor in row-major order."""
    return rows.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def _order(tensors: Tensors) -> list[str]:
    """Tags with the widest numbers first, so that every tensor is aligned."""
    return sorted(tensors, key=lambda tag: (-tensors[tag].element_size(), tag))


def _header(envelope: Envelope, tensors: Tensors) -> bytes:
    """The frame up to the first number."""
    layout = tuple((tag, rows.dtype, rows.shape, rows.nbytes) for tag, rows in tensors.items())
    addressees = (envelope.federation, envelope.sender, envelope.receiver)
    before, after = _header_around_exchange(*addressees, layout)
    exchange = json.dumps(json.dumps(vars(envelope.exchange), sort_keys=True))
    text = (before + exchange[1:-1] + after).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


@lru_cache(maxsize=256)
def _header_around_exchange(
    federation: str, sender: str, receiver: str, layout: Layout
) -> tuple[str, str]:
    """The parts of a header before and after the exchange, which alone changes all the time."""
    envelope = {"exchange": 0, "federation": federation, "receiver": receiver, "sender": sender}
    table: dict[str, object] = {"__metadata__": {"tacit": json.dumps(envelope)}}
    offset = 0
    # Tags with the widest numbers first, so that every tensor is aligned.
    for tag, dtype, shape, size in sorted(layout, key=lambda one: (-one[1].itemsize, one[0])):
        place = [offset, offset + size]
        table[tag] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": place}
        offset += size
    before, after = json.dumps(table, separators=(",", ":")).split("0", 1)
    return before, after


def _header_difference(found: bytes, expected: bytes) -> Rejected:
    """Describe, as far as it can be parsed, how a header differs from the expected one."""
    try:
        length = int.from_bytes(found[:LENGTH_BYTES], "little")
        # Deep nesting raises RecursionError.
        table = json.loads(found[LENGTH_BYTES : LENGTH_BYTES + length])
        envelope = json.loads(table.pop("__metadata__")["tacit"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Rejected("malformed", "a message without a valid header")
    ours = json.loads(expected[LENGTH_BYTES:])
    own_envelope = json.loads(ours.pop("__metadata__")["tacit"])
    if not isinstance(envelope, dict):
        return Rejected("envelope", "a message without an envelope")
    for key, own in own_envelope.items():
        if key not in envelope or envelope[key] != own:
            reason = {"exchange": "iteration", "sender": "sender"}.get(key, "envelope")
            theirs = str(envelope.get(key))[:200]
            return Rejected(reason, f"a message with {key} {theirs}, not {own}")
    if envelope.keys() != own_envelope.keys():
        return Rejected("envelope", "a message with an envelope of other keys")
    if sorted(map(str, table)) != sorted(ours):
        tags = str(sorted(map(str, table)))[:200]
        return Rejected("tensors", f"a message with tensors {tags}, not {sorted(ours)}")
    for tag, own in ours.items():
        for key in ("dtype", "shape"):
            value = table[tag].get(key) if isinstance(table[tag], dict) else None
            if value != own[key]:
                return Rejected(key, f"{tag} has {key} {str(value)[:100]}, not {own[key]}")
    return Rejected("malformed", "a message with a header that is formatted differently")
