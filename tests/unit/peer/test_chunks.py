import contextlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.chunks import Assembly, cut, from_wire, notice_piece, read_piece, to_wire
from tacit.peer.wire.frames import Address, Envelope, Rejected, pack

ADDRESS = Address(2, 5, 1)
LETTER = pack(Envelope("f", "a", "", ADDRESS), {"x": torch.arange(1000.0)})


def assembled(messages):
    assembly, complete = None, False
    for raw in messages:
        piece = read_piece(raw)
        if piece.head is not None:
            assembly = Assembly(piece.head, ADDRESS, len(LETTER.frame))
        complete = assembly.add(piece.data)
    return assembly, complete


@pytest.mark.parametrize("chunk", [1, 7, 128, 1000, 1 << 20])
def test_what_is_cut_can_be_put_together(chunk):
    assembly, complete = assembled(cut(LETTER, chunk))
    assert complete
    assert assembly.frame == LETTER.frame


@pytest.mark.parametrize("chunk", [1, 100, 200, 20_000, 1 << 20])
def test_pieces_written_by_hand_are_those_of_protobuf(chunk):
    for raw in cut(LETTER, chunk):
        assert raw == wire.Piece.FromString(raw).SerializeToString()
    notice = wire.Notice(generation=2, tick=7, waiting_for=["b"])
    assert notice_piece(notice) == wire.Piece(notice=notice).SerializeToString()
    assert read_piece(notice_piece(notice)).notice == notice


@given(st.binary(max_size=200))
def test_any_bytes_are_a_piece_as_protobuf_sees_it_or_rejected(raw):
    try:
        piece = read_piece(raw)
    except Rejected:
        return
    expected = wire.Piece.FromString(raw)
    assert bytes(piece.data or b"") == expected.data
    assert (piece.head is not None) == expected.HasField("head")
    assert (piece.notice is not None) == expected.HasField("notice")


@given(st.data())
def test_a_mutated_piece_is_a_piece_or_rejected(data):
    raw = bytearray(next(cut(LETTER, 64)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Rejected):
        read_piece(bytes(raw))


def test_what_does_not_belong_to_the_letter_is_rejected():
    messages = list(cut(LETTER, 512))
    head = read_piece(messages[0]).head
    with pytest.raises(Rejected, match="iteration 5"):
        Assembly(head, Address(2, 6, 1), len(LETTER.frame))
    with pytest.raises(Rejected, match="bytes, not 10"):
        Assembly(head, ADDRESS, 10)
    assembly, complete = assembled(messages[:-1])
    assert not complete
    with pytest.raises(Rejected, match="more bytes"):
        assembly.add(memoryview(bytes(1000)))
    with pytest.raises(Rejected, match="without bytes"):
        assembly.add(memoryview(b""))


def test_a_flipped_bit_does_not_match_the_checksum():
    (message,) = cut(LETTER, 1 << 20)
    spoilt = bytearray(message)
    spoilt[-1] ^= 1
    with pytest.raises(Rejected, match="checksum"):
        assembled([bytes(spoilt)])


def test_addresses_travel():
    assert from_wire(to_wire(ADDRESS)) == ADDRESS
