import contextlib

import pytest
import torch
from hypothesis import given, strategies as st

from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.chunks import (
    MessageAssembler,
    from_wire,
    notice_chunk,
    parse_chunk,
    split_message,
    to_wire,
)
from tacit.peer.wire.messages import Envelope, ExchangeId, Rejected, pack

EXCHANGE = ExchangeId(2, 5, 1)
MESSAGE = pack(Envelope("f", "a", "", EXCHANGE), {"x": torch.arange(1000.0)})


def assembled(chunks):
    assembler, complete = None, False
    for raw in chunks:
        chunk = parse_chunk(raw)
        if chunk.header is not None:
            assembler = MessageAssembler(chunk.header, EXCHANGE, len(MESSAGE.frame))
        complete = assembler.add(chunk.data)
    return assembler, complete


@pytest.mark.parametrize("size", [1, 7, 128, 1000, 1 << 20])
def test_a_split_message_can_be_reassembled(size):
    assembler, complete = assembled(split_message(MESSAGE, size))
    assert complete
    assert assembler.frame == MESSAGE.frame


@pytest.mark.parametrize("size", [1, 100, 200, 20_000, 1 << 20])
def test_chunks_are_encoded_as_protobuf_encodes_them(size):
    for raw in split_message(MESSAGE, size):
        assert raw == wire.MessageChunk.FromString(raw).SerializeToString()
    notice = wire.ProgressNotice(generation=2, tick=7, waiting_for=["b"])
    assert notice_chunk(notice) == wire.MessageChunk(notice=notice).SerializeToString()
    assert parse_chunk(notice_chunk(notice)).notice == notice


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_as_protobuf_parses_them_or_rejected(raw):
    try:
        chunk = parse_chunk(raw)
    except Rejected:
        return
    expected = wire.MessageChunk.FromString(raw)
    assert bytes(chunk.data or b"") == expected.data
    assert (chunk.header is not None) == expected.HasField("header")
    assert (chunk.notice is not None) == expected.HasField("notice")


@given(st.data())
def test_a_mutated_chunk_is_parsed_or_rejected(data):
    raw = bytearray(next(split_message(MESSAGE, 64)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Rejected):
        parse_chunk(bytes(raw))


def test_chunks_of_another_message_are_rejected():
    chunks = list(split_message(MESSAGE, 512))
    header = parse_chunk(chunks[0]).header
    with pytest.raises(Rejected, match="iteration 5"):
        MessageAssembler(header, ExchangeId(2, 6, 1), len(MESSAGE.frame))
    with pytest.raises(Rejected, match="bytes, not 10"):
        MessageAssembler(header, EXCHANGE, 10)
    assembler, complete = assembled(chunks[:-1])
    assert not complete
    with pytest.raises(Rejected, match="more bytes"):
        assembler.add(memoryview(bytes(1000)))
    with pytest.raises(Rejected, match="empty data"):
        assembler.add(memoryview(b""))


def test_a_flipped_bit_does_not_match_the_checksum():
    (raw,) = split_message(MESSAGE, 1 << 20)
    damaged = bytearray(raw)
    damaged[-1] ^= 1
    with pytest.raises(Rejected, match="checksum"):
        assembled([bytes(damaged)])


def test_exchange_ids_survive_the_wire():
    assert from_wire(to_wire(EXCHANGE)) == EXCHANGE
