"""Letters cut into messages of the stream, and put together again within known bounds.

The bytes of a letter are most of what travels. The messages around them are written and read by hand, exactly as
protobuf does it, because its classes would copy them four times more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.frames import Address, Rejected, WireMessage

HEAD, DATA, NOTICE = 0x0A, 0x12, 0x1A  # fields 1, 2 and 3 of Piece, length-delimited


@dataclass(frozen=True)
class Chunk:
    """What a message of the stream holds."""

    head: wire.Head | None
    data: memoryview | None
    notice: wire.Notice | None


def cut(letter: WireMessage, chunk: int) -> Iterator[bytes]:
    """A letter as messages: its head with its first bytes, then the others."""
    head = wire.Head(
        address=to_wire(letter.envelope.address), size=len(letter.frame), sha256=letter.sha256
    )
    view = memoryview(letter.frame)
    yield _field(HEAD, memoryview(head.SerializeToString())) + _field(DATA, view[:chunk])
    for at in range(chunk, len(view), chunk):
        yield _field(DATA, view[at : at + chunk])


def notice_piece(notice: wire.Notice) -> bytes:
    """A message that says how far the sender is."""
    return _field(NOTICE, memoryview(notice.SerializeToString()))


def read_piece(raw: bytes) -> Chunk:
    """Take a message apart; the bytes of the letter are not copied."""
    fields: dict[int, memoryview] = {}
    view, at = memoryview(raw), 0
    while at < len(raw):
        tag = raw[at]
        length, at = _length(raw, at + 1)
        if tag not in (HEAD, DATA, NOTICE) or tag in fields or at + length > len(raw):
            raise Rejected("malformed", "a message that is no piece of a letter")
        fields[tag] = view[at : at + length]
        at += length
    if not fields:
        raise Rejected("malformed", "an empty message")
    try:
        head = wire.Head.FromString(bytes(fields[HEAD])) if HEAD in fields else None
        notice = wire.Notice.FromString(bytes(fields[NOTICE])) if NOTICE in fields else None
    except DecodeError:
        raise Rejected("malformed", "a message that is no piece of a letter") from None
    return Chunk(head, fields.get(DATA), notice)


class Assembly:
    """The bytes of one letter as they come in: never more than the size that is known before."""

    def __init__(self, head: wire.Head, address: Address, size: int) -> None:
        if from_wire(head.address) != address:
            raise Rejected("iteration", f"a letter of {from_wire(head.address)}, not of {address}")
        if head.size != size:
            raise Rejected("size", f"a letter of {head.size} bytes, not {size}")
        self.frame = bytearray()
        self._size, self._sha256 = size, head.sha256
        self._hash = hashlib.sha256()

    def add(self, data: memoryview) -> bool:
        """Put further bytes where they belong; whether the letter is complete."""
        if len(self.frame) + len(data) > self._size:
            raise Rejected("size", f"more bytes than the {self._size} of the letter")
        if not len(data):
            raise Rejected("malformed", "a piece of a letter without bytes")
        self.frame += data
        self._hash.update(data)
        if len(self.frame) < self._size:
            return False
        if self._hash.digest() != self._sha256:
            raise Rejected("checksum", "a letter whose bytes do not match its checksum")
        return True


def to_wire(address: Address) -> wire.Address:
    """An address as it travels."""
    return wire.Address(generation=address.generation, tick=address.tick, exchange=address.exchange)


def from_wire(address: wire.Address) -> Address:
    """An address that came in."""
    return Address(address.generation, address.tick, address.exchange)


def _field(tag: int, content: memoryview) -> bytes:
    """A length-delimited field: its tag, its length in sevens of bits, its bytes."""
    begin, length = bytearray((tag,)), len(content)
    while length > 127:
        begin.append(length & 127 | 128)
        length >>= 7
    begin.append(length)
    return b"".join((begin, content))


def _length(raw: bytes, at: int) -> tuple[int, int]:
    """The length that is written at a place, and the place behind it."""
    length = 0
    for shift in range(0, 35, 7):
        if at >= len(raw):
            break
        byte = raw[at]
        length |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return length, at
    raise Rejected("malformed", "a message that is cut off")
