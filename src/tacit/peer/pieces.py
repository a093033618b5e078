"""Letters cut into messages of the stream, and put together again within known bounds.

The bytes of a letter are most of what travels. The message around them is written and read by hand, exactly as
protobuf does it, because its classes would copy them four times more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from tacit.peer import wire_pb2 as wire
from tacit.peer.frames import Address, Letter, Rejected

DATA = b"\x12"  # field 2 of Piece, length-delimited


def cut(letter: Letter, chunk: int) -> Iterator[bytes]:
    """A letter as messages: its head, then its bytes."""
    head = wire.Head(address=to_wire(letter.envelope.address), size=len(letter.frame), sha256=letter.sha256)
    yield wire.Piece(head=head).SerializeToString()
    view = memoryview(letter.frame)
    for at in range(0, len(view), chunk):
        yield data_piece(view[at : at + chunk])


def data_piece(data: memoryview) -> bytes:
    """A Piece with some bytes of a letter."""
    return b"".join((DATA, _varint(len(data)), data))


def read_piece(raw: bytes) -> wire.Head | wire.Notice | memoryview:
    """What a message of the stream holds."""
    if raw[:1] == DATA:
        length, at = 0, 1
        for shift in range(0, 35, 7):
            if at >= len(raw):
                break
            byte = raw[at]
            length |= (byte & 127) << shift
            at += 1
            if byte < 128:
                if length == len(raw) - at:
                    return memoryview(raw)[at:]
                break
    try:
        piece = wire.Piece.FromString(raw)
    except DecodeError:
        raise Rejected("malformed", "a message that is no piece of a letter") from None
    kind = piece.WhichOneof("kind")
    if kind == "data":
        return memoryview(piece.data)
    if kind == "head":
        return piece.head
    if kind == "notice":
        return piece.notice
    raise Rejected("malformed", "an empty message")


class Assembly:
    """The bytes of one letter as they come in: never more than the size that is known before."""

    def __init__(self, head: wire.Head, address: Address, size: int) -> None:
        if from_wire(head.address) != address:
            raise Rejected("iteration", f"a letter of {from_wire(head.address)}, not of {address}")
        if head.size != size:
            raise Rejected("size", f"a letter of {head.size} bytes, not {size}")
        self.frame = bytearray(size)
        self._sha256 = head.sha256
        self._view = memoryview(self.frame)
        self._hash = hashlib.sha256()
        self._at = 0

    def add(self, data: memoryview) -> bool:
        """Put further bytes where they belong; whether the letter is complete."""
        end = self._at + len(data)
        if end > len(self._view):
            raise Rejected("size", f"more bytes than the {len(self._view)} of the letter")
        if not len(data):
            raise Rejected("malformed", "a piece of a letter without bytes")
        self._view[self._at : end] = data
        self._hash.update(data)
        self._at = end
        if end < len(self._view):
            return False
        if self._hash.digest() != self._sha256:
            raise Rejected("checksum", "a letter whose bytes do not match its checksum")
        return True


def to_wire(address: Address) -> wire.Address:
    """An address as it travels."""
    return wire.Address(epoch=address.epoch, tick=address.tick, exchange=address.exchange)


def from_wire(address: wire.Address) -> Address:
    """An address that came in."""
    return Address(address.epoch, address.tick, address.exchange)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
