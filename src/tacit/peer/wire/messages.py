"""Letters: the tensors of one exchange in one safetensors frame, and nothing that the receiver does not expect.

The receiver of a letter knows what it must be: who wrote it, for which iteration, with which tensors of which type
and shape, because it sends the same kind itself. So it writes the header that it expects and compares bytes: what a
peer sends is never parsed, and takes no memory beyond the size known before. Only the numbers come from outside;
they must be finite.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

KINDS = {torch.float64: "F64", torch.int64: "I64", torch.float32: "F32", torch.uint8: "U8"}
LENGTH = 8  # bytes of the header's length, with which a safetensors file begins
DIAGNOSED = 1 << 16  # bytes of a wrong header that are looked into, to say what is wrong with it


@dataclass(frozen=True, order=True)
class Address:
    """Where in a run a letter belongs: every exchange of a federation has its own."""

    generation: int
    tick: int
    exchange: int

    def __str__(self) -> str:
        return f"generation {self.generation}, iteration {self.tick}, exchange {self.exchange}"


@dataclass(frozen=True)
class Envelope:
    """What stands on a letter."""

    federation: str
    sender: str
    receiver: str  # empty for a letter to all neighbours
    address: Address

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        at = self.address
        return {
            "federation": self.federation,
            "sender": self.sender,
            "receiver": self.receiver,
            "address": {"generation": at.generation, "tick": at.tick, "exchange": at.exchange},
        }


class Rejected(Exception):
    """A message that is not what it must be: `reason` is for counting, the text for reading."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, eq=False)
class WireMessage:
    """A packed letter and its checksum."""

    envelope: Envelope
    frame: bytes
    sha256: bytes


def pack(envelope: Envelope, tensors: Mapping[str, Tensor]) -> WireMessage:
    """The letter with these tensors."""
    parts: list[bytes | memoryview] = [_header(envelope, tensors)]
    parts += [raw_bytes(tensors[tag]) for tag in _order(tensors)]
    frame = b"".join(parts)
    return WireMessage(envelope, frame, hashlib.sha256(frame).digest())


class Expected:
    """The only letter that fits: with this envelope, and tensors of these types and shapes."""

    def __init__(self, envelope: Envelope, like: Mapping[str, Tensor]) -> None:
        self._like = like
        self._header = _header(envelope, like)
        numbers = sum(rows.numel() * rows.element_size() for rows in like.values())
        self.size = len(self._header) + numbers  # bytes

    def unpack(self, frame: bytearray) -> dict[str, Tensor]:
        """Its tensors, which lie in the memory of the frame."""
        if not frame.startswith(self._header):
            raise _difference(bytes(frame[: LENGTH + DIAGNOSED]), self._header)
        if len(frame) != self.size:
            raise Rejected("size", f"a letter of {len(frame)} bytes, not {self.size}")
        found: dict[str, Tensor] = {}
        at = len(self._header)
        for tag in _order(self._like):
            model = self._like[tag]
            flat = torch.frombuffer(frame, dtype=model.dtype, count=model.numel(), offset=at)
            found[tag] = flat.view(model.shape)
            at += model.numel() * model.element_size()
        for tag, rows in found.items():
            if not is_finite(rows):
                raise Rejected("not finite", f"{tag} holds NaN or infinity")
        return {tag: found[tag] for tag in self._like}


def is_finite(rows: Tensor) -> bool:
    """Whether no number is NaN or infinite: one of them would spread to everybody."""
    # A sum is finite unless a term is not or it overflows: one pass without a mask, and a second look in doubt.
    return (
        not rows.is_floating_point()
        or math.isfinite(float(rows.sum()))
        or bool(rows.isfinite().all())
    )


def _order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Widest numbers first, so that all lie at multiples of their size."""
    return sorted(tensors, key=lambda tag: (-tensors[tag].element_size(), tag))


def _header(envelope: Envelope, tensors: Mapping[str, Tensor]) -> bytes:
    """The beginning of the frame, up to the first number."""
    facts = json.dumps(envelope.as_dict(), sort_keys=True)
    table: dict[str, object] = {"__metadata__": {"tacit": facts}}
    at = 0
    for tag in _order(tensors):
        rows = tensors[tag]
        end = at + rows.numel() * rows.element_size()
        table[tag] = {
            "dtype": KINDS[rows.dtype],
            "shape": list(rows.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH, "little") + text


def raw_bytes(rows: Tensor) -> memoryview:
    """The bytes of a tensor as they lie in memory."""
    flat = rows.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return flat.numpy().data


def _difference(found: bytes, expected: bytes) -> Rejected:
    """What is wrong with a header; for a person, so as much is read of it as can be."""
    try:
        # Nesting deep enough to exhaust the stack raises RecursionError.
        table = json.loads(found[LENGTH : LENGTH + int.from_bytes(found[:LENGTH], "little")])
        facts = json.loads(table.pop("__metadata__")["tacit"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Rejected("malformed", "a letter whose beginning is not the header of a letter")
    ours = json.loads(expected[LENGTH:])
    own_facts = json.loads(ours.pop("__metadata__")["tacit"])
    if facts != own_facts:
        keys = sorted(facts) if isinstance(facts, dict) else []
        wrong = next(
            (key for key in own_facts if key not in keys or facts[key] != own_facts[key]),
            "envelope",
        )
        told = str(facts.get(wrong))[:200] if isinstance(facts, dict) else "nothing"
        reason = {"address": "iteration", "sender": "sender"}.get(wrong, "envelope")
        return Rejected(reason, f"a letter with {wrong} {told}, not {own_facts.get(wrong)}")
    if sorted(map(str, table)) != sorted(ours):
        return Rejected(
            "tensors",
            f"a letter with tensors {str(sorted(map(str, table)))[:200]}, not {sorted(ours)}",
        )
    for tag, own in ours.items():
        for key in ("dtype", "shape"):
            said = table[tag].get(key) if isinstance(table[tag], dict) else None
            if said != own[key]:
                return Rejected(key, f"{tag} has {key} {str(said)[:100]}, not {own[key]}")
    return Rejected("malformed", "a letter with a header that is written otherwise than ours")
