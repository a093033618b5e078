"""Messages split into the chunks of a stream, and reassembled within known bounds.

Chunks are encoded and decoded by hand, byte for byte as protobuf does it. The generated classes
would copy the data four more times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.messages import ExchangeId, Rejected, WireMessage

HEADER, DATA, NOTICE = 0x0A, 0x12, 0x1A  # fields 1, 2 and 3 of MessageChunk, length-delimited


@dataclass(frozen=True)
class Chunk:
    """A decoded MessageChunk; `data` is a view of the received bytes."""

    header: wire.MessageHeader | None
    data: memoryview | None
    notice: wire.ProgressNotice | None


def split_message(message: WireMessage, chunk_bytes: int) -> Iterator[bytes]:
    """Encode a message as chunks; the first one has the header too."""
    exchange, view = to_wire(message.envelope.exchange), memoryview(message.frame)
    header = wire.MessageHeader(exchange=exchange, size=len(view), sha256=message.sha256)
    encoded = _encode_field(HEADER, memoryview(header.SerializeToString()))
    yield encoded + _encode_field(DATA, view[:chunk_bytes])
    for start in range(chunk_bytes, len(view), chunk_bytes):
        yield _encode_field(DATA, view[start : start + chunk_bytes])


def notice_chunk(notice: wire.ProgressNotice) -> bytes:
    return _encode_field(NOTICE, memoryview(notice.SerializeToString()))


def parse_chunk(raw: bytes) -> Chunk:
    """Decode a chunk without copying its data; raise Rejected if it is malformed."""
    fields: dict[int, memoryview] = {}
    view, position = memoryview(raw), 0
    while position < len(raw):
        tag = raw[position]
        length, position = _decode_length(raw, position + 1)
        end = position + length
        if tag not in (HEADER, DATA, NOTICE) or tag in fields or end > len(raw):
            raise Rejected("malformed", "bytes that are not a message chunk")
        fields[tag] = view[position:end]
        position = end
    if not fields:
        raise Rejected("malformed", "an empty chunk")
    header = notice = None
    try:
        if HEADER in fields:
            header = wire.MessageHeader.FromString(bytes(fields[HEADER]))
        if NOTICE in fields:
            notice = wire.ProgressNotice.FromString(bytes(fields[NOTICE]))
    except DecodeError:
        raise Rejected("malformed", "bytes that are not a message chunk") from None
    return Chunk(header, fields.get(DATA), notice)


class MessageAssembler:
    """Collects the data of one message of a known exchange and size, and checks it."""

    def __init__(self, header: wire.MessageHeader, exchange: ExchangeId, size: int) -> None:
        found = from_wire(header.exchange)
        if found != exchange:
            raise Rejected("iteration", f"a message of {found}, not of {exchange}")
        if header.size != size:
            raise Rejected("size", f"a message of {header.size} bytes, not {size}")
        self._size, self.sha256 = size, header.sha256
        self.frame, self._hash = bytearray(), hashlib.sha256()

    def add(self, data: memoryview) -> bool:
        """Append data; return whether the message is complete."""
        if len(self.frame) + len(data) > self._size:
            raise Rejected("size", f"more bytes than the {self._size} of the message")
        if not len(data):
            raise Rejected("malformed", "a chunk with empty data")
        self.frame += data
        self._hash.update(data)
        if len(self.frame) < self._size:
            return False
        if self._hash.digest() != self.sha256:
            raise Rejected("checksum", "a message that does not match its checksum")
        return True


def to_wire(exchange: ExchangeId) -> wire.ExchangeId:
    return wire.ExchangeId(generation=exchange.generation, tick=exchange.tick, index=exchange.index)


def from_wire(exchange: wire.ExchangeId) -> ExchangeId:
    return ExchangeId(exchange.generation, exchange.tick, exchange.index)


def _encode_field(tag: int, content: memoryview) -> bytes:
    """A length-delimited field: tag, length as a varint, content."""
    prefix, length = bytearray((tag,)), len(content)
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    prefix.append(length)
    return b"".join((prefix, content))


def _decode_length(raw: bytes, position: int) -> tuple[int, int]:
    """Decode the varint at a position; return it and the position after it."""
    length = 0
    for shift in range(0, 35, 7):
        if position >= len(raw):
            break
        byte = raw[position]
        length |= (byte & 127) << shift
        position += 1
        if byte < 128:
            return length, position
    raise Rejected("malformed", "a truncated chunk")
