import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.peer import wire_pb2 as wire
from tacit.peer.frames import Address, Envelope, Rejected, pack
from tacit.peer.pieces import Assembly, cut, data_piece, from_wire, read_piece, to_wire

ADDRESS = Address(2, 5, 1)
LETTER = pack(Envelope("f", "a", "", ADDRESS), {"x": torch.arange(1000.0)})


def assembled(messages, size=len(LETTER.frame)):
    assembly, complete = None, False
    for raw in messages:
        piece = read_piece(raw)
        if assembly is None:
            assembly = Assembly(piece, ADDRESS, size)
        else:
            complete = assembly.add(piece)
    return assembly, complete


@pytest.mark.parametrize("chunk", [1, 7, 128, 1000, 1 << 20])
def test_what_is_cut_can_be_put_together(chunk):
    assembly, complete = assembled(cut(LETTER, chunk))
    assert complete
    assert assembly.frame == LETTER.frame


@given(st.binary(min_size=1, max_size=70_000))
def test_pieces_written_by_hand_are_those_of_protobuf(data):
    raw = data_piece(memoryview(data))
    assert raw == wire.Piece(data=data).SerializeToString()
    assert bytes(read_piece(raw)) == data


def test_a_piece_that_protobuf_writes_otherwise_is_read_too():
    raw = b"\x12\x83\x00abc"  # the length 3 in two bytes: allowed, though nobody writes it so
    assert bytes(read_piece(raw)) == b"abc"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_piece_or_rejected(raw):
    try:
        piece = read_piece(raw)
    except Rejected:
        return
    assert isinstance(piece, wire.Head | wire.Notice | memoryview)


def test_what_does_not_belong_to_the_letter_is_rejected():
    head, *data = cut(LETTER, 512)
    with pytest.raises(Rejected, match="iteration 5"):
        Assembly(read_piece(head), Address(2, 6, 1), len(LETTER.frame))
    with pytest.raises(Rejected, match="bytes, not 10"):
        Assembly(read_piece(head), ADDRESS, 10)
    assembly, complete = assembled([head, *data[:-1]])
    assert not complete
    with pytest.raises(Rejected, match="more bytes"):
        assembly.add(memoryview(bytes(1000)))
    with pytest.raises(Rejected, match="without bytes"):
        assembly.add(memoryview(b""))


def test_a_flipped_bit_does_not_match_the_checksum():
    head, *data = cut(LETTER, 1 << 20)
    spoilt = bytearray(data[0])
    spoilt[-1] ^= 1
    with pytest.raises(Rejected, match="checksum"):
        assembled([head, bytes(spoilt)])


def test_addresses_travel():
    assert from_wire(to_wire(ADDRESS)) == ADDRESS
