"""Streams of messages over real TLS: requests and answers, and ends that do not keep to them."""

import contextlib
import hashlib
import queue
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings, strategies as st
from tls_pairs import TIMEOUT, tls_pair

from tacit.peer.wire import message_stream as module, wire_pb2 as wire
from tacit.peer.wire.message_stream import (
    MAX_FRAME_BYTES,
    MessageStream,
    from_wire,
    to_wire,
)
from tacit.peer.wire.messages import Envelope, ExchangeId, Rejected, pack

EXCHANGE = ExchangeId(2, 5, 1)
MESSAGE = pack(Envelope("f", "b", "", EXCHANGE), {"x": torch.arange(1000.0)})
REQUEST = wire.FetchRequest(exchange=to_wire(EXCHANGE), manifest_sha256=b"m" * 32, saved_tick=-1)
SIZE = len(MESSAGE.frame)
NOTICE = wire.StreamAnswer(notice=wire.ProgressNotice(generation=2, tick=7, waiting_for=["b"]))


class Pair:
    """The streams of a reader and a sender, and the sender's connection for what it must not do."""

    def __init__(self):
        ours, self.raw = tls_pair()
        self.reader, self.sender = MessageStream(ours), MessageStream(self.raw)

    def close(self):
        self.reader.close()
        self.sender.close()

    def receive_message(self, exchange=EXCHANGE, size=SIZE):
        """Read a header and the message after it."""
        answer, frame = self.reader.receive(wire.StreamAnswer), bytearray(size)
        assert answer.WhichOneof("kind") == "header"
        self.reader.receive_message(answer.header, exchange, memoryview(frame))
        return bytes(frame)


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_pair():
    """For properties: what is sent is read before the next example."""
    made = Pair()
    yield made
    made.close()


def framed(body):
    return len(body).to_bytes(4, "little") + body


def header_of(message=MESSAGE, **fields):
    known = {"exchange": to_wire(EXCHANGE), "size": len(message.frame), "sha256": message.sha256}
    return wire.StreamAnswer(header=wire.MessageHeader(**(known | fields)))


# --- what both ends send --------------------------------------------------------------------------


def test_requests_and_answers_arrive_in_order(pair):
    second = wire.FetchRequest(exchange=to_wire(ExchangeId(2, 6, 0)), saved_tick=-(2**63))
    pair.reader.send(REQUEST)
    pair.reader.send(second)
    assert pair.sender.receive(wire.FetchRequest) == REQUEST
    assert pair.sender.receive(wire.FetchRequest) == second
    pair.sender.send(NOTICE)
    pair.sender.send_message(MESSAGE)
    pair.sender.send(NOTICE)
    assert pair.reader.receive(wire.StreamAnswer) == NOTICE
    assert pair.receive_message() == MESSAGE.frame
    assert pair.reader.receive(wire.StreamAnswer) == NOTICE


def test_a_message_may_arrive_byte_by_byte(pair):
    content = framed(header_of().SerializeToString()) + MESSAGE.frame

    def trickle():
        for byte in content:
            pair.raw.sendall(bytes([byte]))

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(trickle)
        assert pair.receive_message() == MESSAGE.frame
        sent.result(TIMEOUT)


def test_exchange_ids_survive_the_wire():
    largest = ExchangeId(2**64 - 1, 2**64 - 1, 2**32 - 1)
    for exchange in (EXCHANGE, largest):
        assert from_wire(to_wire(exchange)) == exchange
        assert from_wire(wire.ExchangeId.FromString(to_wire(exchange).SerializeToString())) == (
            exchange
        )


# --- malformed ------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=200))
def test_any_bytes_are_parsed_as_protobuf_parses_them_or_rejected(shared_pair, body):
    shared_pair.raw.sendall(framed(body))
    try:
        expected = wire.StreamAnswer.FromString(body)
    except module.DecodeError:
        with pytest.raises(Rejected, match=f"{len(body)} bytes that are no StreamAnswer"):
            shared_pair.reader.receive(wire.StreamAnswer)
    else:
        assert shared_pair.reader.receive(wire.StreamAnswer) == expected


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_mutated_header_is_another_or_rejected(shared_pair, data):
    body = bytearray(header_of().SerializeToString())
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255).filter(lambda value: value != body[at]))
    shared_pair.raw.sendall(framed(bytes(body)))
    with contextlib.suppress(Rejected):
        assert shared_pair.reader.receive(wire.StreamAnswer) != header_of()


def test_the_largest_frame_is_received(pair):
    text = "x" * (MAX_FRAME_BYTES - 8)
    answer = wire.StreamAnswer(refusal=wire.Refusal(text=text))
    assert MAX_FRAME_BYTES - 8 < answer.ByteSize() <= MAX_FRAME_BYTES
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(pair.sender.send, answer)
        assert pair.reader.receive(wire.StreamAnswer).refusal.text == text
        sent.result(TIMEOUT)


# --- truncated ------------------------------------------------------------------------------------


def test_a_stream_that_ends_between_two_frames_has_ended(pair):
    pair.sender.send(NOTICE)
    pair.sender.close()
    assert pair.reader.receive(wire.StreamAnswer) == NOTICE
    assert pair.reader.receive(wire.StreamAnswer) is None
    assert pair.reader.receive(wire.StreamAnswer) is None


def test_bytes_that_are_not_encrypted_are_an_error(pair):
    """Bytes that an attacker on the network adds."""
    socket.socket.sendall(pair.raw, b"\x17\x03\x03\x00\x10" + bytes(16))
    with pytest.raises(ssl.SSLError):
        pair.reader.receive(wire.StreamAnswer)


# --- senders that stall or trickle ----------------------------------------------------------------


class Clock:
    """Time that passes by a step whenever it is asked for."""

    def __init__(self, step):
        self._now, self._step = 0.0, step

    def monotonic(self):
        self._now += self._step
        return self._now


class TricklingConnection:
    """A connection on which one byte arrives at a time, for ever."""

    def __init__(self, content=b""):
        self.received, self._content = 0, content

    def recv_into(self, view, size=None):
        view[:1] = self._content[self.received : self.received + 1] or b"\x01"
        self.received += 1
        return 1


@pytest.mark.parametrize("minutes", [0, 1, 10])
def test_a_message_must_arrive_at_the_slowest_rate(monkeypatch, minutes):
    """A minute for the first byte, then MIN_BYTES_PER_SECOND."""
    size = int(60 * minutes * module.MIN_BYTES_PER_SECOND) + 10_000
    connection = TricklingConnection()
    monkeypatch.setattr(module, "time", Clock(step=30.0))
    header = header_of(size=size).header
    with pytest.raises(TimeoutError, match="too long"):
        MessageStream(connection).receive_message(header, EXCHANGE, memoryview(bytearray(size)))
    # One byte in 30 seconds: the deadline is at a minute, plus the minutes for the bytes.
    assert connection.received == 2 * (minutes + 1) + 1


# --- ends -----------------------------------------------------------------------------------------


def in_thread(function):
    """Call a function in a thread; returns a queue with its result or error."""
    found = queue.Queue()

    def run():
        try:
            found.put(function())
        except Exception as problem:
            found.put(problem)

    threading.Thread(target=run, daemon=True).start()
    return found


def test_another_thread_wakes_a_reader(pair):
    pair.sender.send(NOTICE)
    reading = threading.Event()

    def read():
        pair.reader.wait(None)
        assert pair.reader.receive(wire.StreamAnswer) == NOTICE
        reading.set()
        return pair.reader.receive(wire.StreamAnswer)

    found = in_thread(read)
    assert reading.wait(TIMEOUT)
    pair.reader.abort()
    assert found.get(timeout=TIMEOUT) is None
    assert pair.sender.receive(wire.FetchRequest) is None
    with pytest.raises((BrokenPipeError, ssl.SSLError)):
        pair.reader.send(REQUEST)


def test_another_thread_wakes_a_sender_whose_reader_does_not_read(pair):
    large = pack(Envelope("f", "b", "", EXCHANGE), {"x": torch.zeros(10_000_000)})
    found = in_thread(lambda: pair.sender.send_message(large))
    # The header has arrived, so the sender fills the buffers, which are smaller than the message.
    assert pair.reader.receive(wire.StreamAnswer).header.size == len(large.frame)
    pair.sender.abort()
    assert isinstance(found.get(timeout=TIMEOUT), OSError)


# --- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_threads", [True, False])
def test_a_large_message_is_hashed_with_and_without_a_thread(monkeypatch, has_threads):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    if not has_threads:
        monkeypatch.setattr(module.ThreadPoolExecutor, "submit", refuse)
    content = memoryview(bytes(range(256)) * 1000)
    with module.HashBeside(module.THREAD_BYTES) as digest:
        for start in range(0, len(content), 1000):
            digest.update(content[start : start + 1000])
        assert digest.digest() == hashlib.sha256(content).digest()
