import threading
import time

import pytest
import torch

from tacit.peer.node.checkpoint_policy import LARGE_MODEL_STEPS
from tacit.peer.node.outbox import MIN_TICKS, Outbox
from tacit.peer.wire.messages import Envelope, ExchangeId, Rejected, pack

LAST = MIN_TICKS + 1  # with as many ticks, the size counts


def message(tick, receiver="", index=0, numbers=4):
    envelope = Envelope("f", "me", receiver, ExchangeId(1, tick, index))
    return pack(envelope, {"x": torch.full((numbers,), float(tick))})


def get(outbox, tick, reader, index=0, timeout=0.0):
    return outbox.get(ExchangeId(1, tick, index), reader, lambda: True, timeout)


def ticks(outbox):
    return [kept.envelope.exchange.tick for kept in outbox.messages()]


def test_a_message_without_receiver_is_for_all_readers():
    outbox = Outbox(["a", "b"])
    public, private = message(1), message(1, "a", index=1)
    outbox.put(public)
    outbox.put(private)
    assert get(outbox, 1, "a") is public
    assert get(outbox, 1, "b") is public
    assert get(outbox, 1, "a", index=1) is private
    assert get(outbox, 1, "b", index=1) is None


def test_waiting_ends_when_the_message_exists():
    outbox = Outbox(["a"])
    threading.Timer(0.1, lambda: outbox.put(message(3))).start()
    assert get(outbox, 3, "a", timeout=10) is not None


def test_waiting_ends_when_the_reader_hangs_up_or_the_outbox_closes():
    outbox = Outbox(["a"])
    active = threading.Event()
    active.set()

    def hang_up():
        active.clear()
        outbox.wake()

    threading.Timer(0.1, hang_up).start()
    begin = time.monotonic()
    assert outbox.get(ExchangeId(1, 1, 0), "a", active.is_set, 30) is None
    threading.Timer(0.1, outbox.close).start()
    assert get(outbox, 1, "a", timeout=30) is None
    assert time.monotonic() - begin < 20


def test_a_message_stays_until_all_readers_have_saved_a_later_iteration():
    outbox = Outbox(["a", "b"])
    for tick in range(1, 6):
        outbox.put(message(tick))
    for reader in "ab":
        outbox.mark_delivered(reader, 5)
    outbox.mark_saved("a", 3)
    assert get(outbox, 1, "b") is not None
    outbox.mark_saved("b", 2)
    assert ticks(outbox) == [3, 4, 5]
    assert get(outbox, 3, "b") is not None
    with pytest.raises(Rejected, match="saved iteration 3") as caught:
        get(outbox, 2, "a")
    assert caught.value.reason == "past"


def test_a_reader_cannot_have_saved_what_was_not_delivered():
    outbox = Outbox(["a"])
    outbox.put(message(1))
    outbox.put(message(2))
    outbox.mark_saved("a", 1_000_000)
    assert ticks(outbox) == [1, 2]
    outbox.mark_delivered("a", 1)
    outbox.mark_saved("a", 1_000_000)
    assert ticks(outbox) == [2]


def test_a_message_to_one_reader_is_dropped_when_that_one_has_saved():
    outbox = Outbox(["a", "b"])
    outbox.put(message(1, "a"))
    outbox.put(message(1, "b"))
    outbox.mark_delivered("a", 1)
    outbox.mark_saved("a", 1)
    assert [kept.envelope.receiver for kept in outbox.messages()] == ["b"]


def test_readers_with_too_many_bytes_are_named():
    outbox = Outbox(["a", "b"])
    for tick in range(1, LAST + 1):
        outbox.put(message(tick, numbers=1000))
        for reader in "ab":
            outbox.mark_delivered(reader, tick)
    assert outbox.wait_for_space(10**6, 0) == []
    assert outbox.wait_for_space(1000, 0) == ["a", "b"]
    for reader in "ab":
        outbox.mark_saved(reader, LAST - 1)
    assert outbox.wait_for_space(1000, 0) == []
    assert outbox.size == sum(len(kept.frame) for kept in outbox.messages())


def test_bytes_for_other_readers_do_not_count():
    """Readers save when enough has come over one edge: with the sum over edges, all would hang."""
    outbox = Outbox(["a", "b", "c"])
    for tick in range(1, LAST + 1):
        for reader in "abc":
            outbox.put(message(tick, reader, numbers=1000 if reader == "a" else 100))
    assert outbox.wait_for_space(4000 * LAST, 0) == ["a"]
    assert outbox.wait_for_space(5000 * LAST, 0) == []
    outbox.mark_delivered("a", LAST)
    outbox.mark_saved("a", 3)
    assert outbox.wait_for_space(4000 * LAST, 0) == []


def test_two_intervals_of_checkpoints_are_kept_whatever_their_size():
    """Otherwise a node would wait for neighbours that do not save yet, and they for the node."""
    outbox = Outbox(["a"])
    for tick in range(2 * LARGE_MODEL_STEPS + 2):
        outbox.put(message(tick, numbers=1000))
        assert outbox.wait_for_space(10, 0) == []
