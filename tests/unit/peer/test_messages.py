import hashlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from safetensors.torch import load

from tacit.peer.wire.messages import Envelope, ExchangeId, ExpectedMessage, Rejected, pack

ENVELOPE = Envelope("clinics-1234", "a", "", ExchangeId(1, 7, 0))
TENSORS = {
    "update": torch.arange(5, dtype=torch.uint8),
    "theta": torch.linspace(-1, 1, 7),
    "gamma": torch.linspace(0, 1, 3, dtype=torch.float64),
}


def changed(frame, at, value):
    out = bytearray(frame)
    out[at] = value
    return out


def test_a_message_is_unpacked_as_it_was_packed():
    message = pack(ENVELOPE, TENSORS)
    found = ExpectedMessage(ENVELOPE, TENSORS).unpack(bytearray(message.frame))
    assert list(found) == list(TENSORS)
    assert all(torch.equal(found[tag], TENSORS[tag]) for tag in TENSORS)
    assert message.sha256 == hashlib.sha256(message.frame).digest()
    assert len(message.frame) == ExpectedMessage(ENVELOPE, TENSORS).size


def test_a_message_is_a_safetensors_file():
    found = load(pack(ENVELOPE, TENSORS).frame)
    assert all(torch.equal(found[tag], TENSORS[tag]) for tag in TENSORS)


def test_rows_that_are_not_contiguous_are_packed_in_order():
    rows = torch.arange(12.0).reshape(3, 4).T[1]  # a view with gaps
    found = ExpectedMessage(ENVELOPE, {"x": rows}).unpack(
        bytearray(pack(ENVELOPE, {"x": rows}).frame)
    )
    assert torch.equal(found["x"], rows)


@pytest.mark.parametrize(
    ("other", "like", "reason"),
    [
        (replace(ENVELOPE, exchange=ExchangeId(1, 6, 0)), TENSORS, "iteration"),
        (replace(ENVELOPE, exchange=ExchangeId(1, 8, 0)), TENSORS, "iteration"),
        (replace(ENVELOPE, exchange=ExchangeId(2, 7, 0)), TENSORS, "iteration"),
        (replace(ENVELOPE, sender="b"), TENSORS, "sender"),
        (replace(ENVELOPE, receiver="c"), TENSORS, "envelope"),
        (replace(ENVELOPE, federation="banks-1234"), TENSORS, "envelope"),
        (ENVELOPE, TENSORS | {"theta": torch.zeros(8)}, "shape"),
        (ENVELOPE, TENSORS | {"theta": torch.zeros(7, dtype=torch.float64)}, "dtype"),
        (ENVELOPE, {"theta": TENSORS["theta"]}, "tensors"),
    ],
)
def test_another_message_is_rejected_with_the_reason(other, like, reason):
    frame = bytearray(pack(other, like).frame)
    with pytest.raises(Rejected) as caught:
        ExpectedMessage(ENVELOPE, TENSORS).unpack(frame)
    assert caught.value.reason == reason


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_numbers_arrive_bit_by_bit(value):
    """Which of them a node accepts is not decided here: see plausible_values."""
    rows = torch.tensor([1.0, value])
    frame = bytearray(pack(ENVELOPE, {"x": rows}).frame)
    found = ExpectedMessage(ENVELOPE, {"x": rows}).unpack(frame)
    assert torch.equal(found["x"].view(torch.int32), rows.view(torch.int32))


@given(st.data())
def test_a_changed_header_or_length_never_passes_and_never_breaks(data):
    frame = pack(ENVELOPE, TENSORS).frame
    header = ExpectedMessage(ENVELOPE, TENSORS).size - sum(
        x.numel() * x.element_size() for x in TENSORS.values()
    )
    kind = data.draw(st.sampled_from(["flip", "cut", "grow", "garbage"]))
    if kind == "flip":
        at = data.draw(st.integers(0, header - 1))
        mutated = changed(
            frame, at, data.draw(st.integers(0, 255).filter(lambda value: value != frame[at]))
        )
    elif kind == "cut":
        mutated = bytearray(frame[: data.draw(st.integers(0, len(frame) - 1))])
    elif kind == "grow":
        mutated = bytearray(frame + data.draw(st.binary(min_size=1, max_size=50)))
    else:
        mutated = bytearray(data.draw(st.binary(max_size=300)))
    with pytest.raises(Rejected):
        ExpectedMessage(ENVELOPE, TENSORS).unpack(mutated)


def test_a_header_nested_too_deeply_is_rejected():
    deep = b'{"a":' * 10_000
    with pytest.raises(Rejected, match="without a valid header"):
        ExpectedMessage(ENVELOPE, TENSORS).unpack(bytearray(len(deep).to_bytes(8, "little") + deep))
