import threading
import time

import pytest
import torch

from tacit.peer.node.outbox import Outbox
from tacit.peer.wire.frames import Address, Envelope, Rejected, pack


def letter(tick, receiver="", exchange=0, numbers=4):
    return pack(
        Envelope("f", "me", receiver, Address(1, tick, exchange)),
        {"x": torch.full((numbers,), float(tick))},
    )


def take(outbox, tick, reader, exchange=0, patience=0.0):
    return outbox.take(Address(1, tick, exchange), reader, lambda: True, patience)


def test_a_letter_to_all_is_for_all_and_one_to_one_for_that_one():
    outbox = Outbox.to(1, ["a", "b"])
    everybody, private = letter(1), letter(1, "a", exchange=1)
    outbox.post(everybody)
    outbox.post(private)
    assert take(outbox, 1, "a") is everybody
    assert take(outbox, 1, "b") is everybody
    assert take(outbox, 1, "a", exchange=1) is private
    assert take(outbox, 1, "b", exchange=1) is None


def test_waiting_ends_when_the_letter_is_written():
    outbox = Outbox.to(1, ["a"])
    threading.Timer(0.1, lambda: outbox.post(letter(3))).start()
    assert take(outbox, 3, "a", patience=10) is not None


def test_waiting_ends_when_the_reader_goes_or_the_outbox_closes():
    outbox = Outbox.to(1, ["a"])
    alive = threading.Event()
    alive.set()

    def leave():
        alive.clear()
        outbox.wake()

    threading.Timer(0.1, leave).start()
    began = time.monotonic()
    assert outbox.take(Address(1, 1, 0), "a", alive.is_set, 30) is None
    threading.Timer(0.1, outbox.close).start()
    assert take(outbox, 1, "a", patience=30) is None
    assert time.monotonic() - began < 20


def test_a_letter_stays_until_everybody_has_saved_what_follows():
    outbox = Outbox.to(1, ["a", "b"])
    for tick in range(1, 6):
        outbox.post(letter(tick))
    for reader in "ab":
        outbox.delivered(reader, 5)
    outbox.saved("a", 3)
    assert take(outbox, 1, "b") is not None
    outbox.saved("b", 2)
    assert [kept.envelope.address.tick for kept in outbox.held()] == [3, 4, 5]
    assert take(outbox, 3, "b") is not None
    with pytest.raises(Rejected, match="saved iteration 3") as caught:
        take(outbox, 2, "a")
    assert caught.value.reason == "past"


def test_nobody_can_have_saved_what_it_was_not_given():
    outbox = Outbox.to(1, ["a"])
    outbox.post(letter(1))
    outbox.post(letter(2))
    outbox.saved("a", 1_000_000)
    assert len(outbox.held()) == 2
    outbox.delivered("a", 1)
    outbox.saved("a", 1_000_000)
    assert [kept.envelope.address.tick for kept in outbox.held()] == [2]


def test_a_letter_to_one_goes_when_that_one_has_saved():
    outbox = Outbox.to(1, ["a", "b"])
    outbox.post(letter(1, "a"))
    outbox.post(letter(1, "b"))
    outbox.delivered("a", 1)
    outbox.saved("a", 1)
    assert [kept.envelope.receiver for kept in outbox.held()] == ["b"]


def test_without_room_those_are_named_for_whom_too_much_is_kept():
    outbox = Outbox.to(1, ["a", "b"])
    for tick in range(1, 5):
        outbox.post(letter(tick, numbers=1000))
        for reader in "ab":
            outbox.delivered(reader, tick)
    assert outbox.wait_for_room(10**6, 0) == []
    assert outbox.wait_for_room(1000, 0) == ["a", "b"]
    for reader in "ab":
        outbox.saved(reader, 3)
    assert outbox.wait_for_room(1000, 0) == []
    assert outbox.bytes == sum(len(kept.frame) for kept in outbox.held())


def test_what_is_kept_for_others_does_not_count():
    """Readers save when enough has come over one edge: if the sum over edges counted, all would wait for ever."""
    outbox = Outbox.to(1, ["a", "b", "c"])
    for tick in range(1, 5):
        for reader in "abc":
            outbox.post(letter(tick, reader, numbers=1000 if reader == "a" else 100))
    assert outbox.wait_for_room(10_000, 0) == ["a"]
    assert outbox.wait_for_room(20_000, 0) == []
    outbox.delivered("a", 4)
    outbox.saved("a", 3)
    assert outbox.wait_for_room(10_000, 0) == []


def test_a_few_letters_are_kept_however_large():
    outbox = Outbox.to(1, ["a"])
    outbox.post(letter(1, numbers=1000))
    outbox.post(letter(2, numbers=1000))
    assert outbox.wait_for_room(10, 0) == []
