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
from tls_pairs import FEDERATION, TIMEOUT, authority, credentials, tls_pair

from tacit.peer.federation.signing import create_authority
from tacit.peer.wire import message_stream as module, tls, wire_pb2 as wire
from tacit.peer.wire.message_stream import (
    MAX_FRAME_BYTES,
    MessageStream,
    from_wire,
    open_stream,
    to_wire,
)
from tacit.peer.wire.messages import Envelope, ExchangeId, Rejected, WireMessage, pack

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


@pytest.mark.parametrize("numbers", [0, 1, 100_000, 3_000_000])
def test_messages_of_every_size_arrive(pair, numbers):
    rows = torch.arange(float(numbers))
    message = pack(Envelope("f", "b", "", EXCHANGE), {"x": rows})
    if numbers == 100_000:  # as a checkpoint maps them
        message = WireMessage(message.envelope, memoryview(message.frame), message.sha256)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(pair.sender.send_message, message)
        assert pair.receive_message(size=len(message.frame)) == message.frame
        sent.result(TIMEOUT)


def test_a_message_may_arrive_byte_by_byte(pair):
    content = framed(header_of().SerializeToString()) + MESSAGE.frame

    def trickle():
        for byte in content:
            pair.raw.sendall(bytes([byte]))

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(trickle)
        assert pair.receive_message() == MESSAGE.frame
        sent.result(TIMEOUT)


def test_an_empty_answer_is_one(pair):
    pair.sender.send(wire.StreamAnswer())
    assert pair.reader.receive(wire.StreamAnswer).WhichOneof("kind") is None


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


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("kind", [wire.FetchRequest, wire.StreamAnswer])
def test_a_frame_that_claims_too_much_is_rejected_before_it_arrives(pair, size, kind):
    pair.raw.sendall(size.to_bytes(4, "little"))
    with pytest.raises(Rejected, match=f"claims {size:,} bytes") as caught:
        pair.reader.receive(kind)
    assert caught.value.reason == "malformed"


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


@pytest.mark.parametrize("kept", [1, 3, 4, 5, -1])
def test_a_stream_that_ends_within_a_frame_is_rejected(pair, kept):
    pair.raw.sendall(framed(NOTICE.SerializeToString())[:kept])
    pair.sender.close()
    with pytest.raises(Rejected) as caught:
        pair.reader.receive(wire.StreamAnswer)
    assert caught.value.reason == "truncated"


@pytest.mark.parametrize("kept", [0, 1, -1])
def test_a_stream_that_ends_within_a_message_is_rejected(pair, kept):
    pair.sender.send(header_of())
    pair.raw.sendall(MESSAGE.frame[:kept])
    pair.sender.close()
    with pytest.raises(Rejected) as caught:
        pair.receive_message()
    assert caught.value.reason == "truncated"


def test_bytes_that_are_not_encrypted_are_an_error(pair):
    """Bytes that an attacker on the network adds."""
    socket.socket.sendall(pair.raw, b"\x17\x03\x03\x00\x10" + bytes(16))
    with pytest.raises(ssl.SSLError):
        pair.reader.receive(wire.StreamAnswer)


# --- another message ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "exchange", [ExchangeId(1, 5, 1), ExchangeId(2, 4, 1), ExchangeId(2, 6, 1), ExchangeId(2, 5, 0)]
)
def test_a_message_of_another_exchange_is_rejected(pair, exchange):
    pair.sender.send_message(MESSAGE)
    with pytest.raises(Rejected, match="iteration 5") as caught:
        pair.receive_message(exchange=exchange)
    assert caught.value.reason == "iteration"


@pytest.mark.parametrize("size", [0, len(MESSAGE.frame) - 1, len(MESSAGE.frame) + 1, 2**64 - 1])
def test_a_message_of_another_size_is_rejected_before_it_arrives(pair, size):
    pair.sender.send(header_of(size=size))
    with pytest.raises(Rejected, match=f"{size} bytes, not {len(MESSAGE.frame)}") as caught:
        pair.receive_message()
    assert caught.value.reason == "size"


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("at", [0, 17, -1])
def test_a_flipped_bit_does_not_match_the_checksum(pair, at, in_thread, monkeypatch):
    monkeypatch.setattr(module, "THREAD_BYTES", 0 if in_thread else 1 << 30)
    monkeypatch.setattr(module, "HASHED_BYTES", 100)
    damaged = bytearray(MESSAGE.frame)
    damaged[at] ^= 1
    pair.sender.send(header_of())
    pair.raw.sendall(damaged)
    with pytest.raises(Rejected, match="checksum") as caught:
        pair.receive_message()
    assert caught.value.reason == "checksum"


@pytest.mark.parametrize("sha256", [b"", MESSAGE.sha256[:-1], bytes(32), b"x" * 5_000])
def test_a_checksum_that_is_none_is_rejected(pair, sha256):
    pair.sender.send(header_of(sha256=sha256))
    pair.raw.sendall(MESSAGE.frame)
    with pytest.raises(Rejected) as caught:
        pair.receive_message()
    assert caught.value.reason == "checksum"


# --- senders that stall or trickle ----------------------------------------------------------------


class Clock:
    """Time that passes by a step whenever it is asked for."""

    def __init__(self, step):
        self._now, self._step = 0.0, step

    def monotonic(self):
        self._now += self._step
        return self._now


def test_silence_ends_the_wait(pair):
    pair.reader.wait(0.01)
    with pytest.raises(TimeoutError):
        pair.reader.receive(wire.StreamAnswer)


def test_silence_within_a_message_ends_the_wait(pair):
    pair.sender.send(header_of())
    pair.raw.sendall(MESSAGE.frame[:-1])
    answer = pair.reader.receive(wire.StreamAnswer)
    pair.reader.wait(0.01)
    with pytest.raises(TimeoutError):
        pair.reader.receive_message(
            answer.header, EXCHANGE, memoryview(bytearray(len(MESSAGE.frame)))
        )


class TricklingConnection:
    """A connection on which one byte arrives at a time, for ever."""

    def __init__(self, content=b""):
        self.received, self._content = 0, content

    def recv_into(self, view, size=None):
        view[:1] = self._content[self.received : self.received + 1] or b"\x01"
        self.received += 1
        return 1


@pytest.mark.parametrize(("seconds", "received"), [(25.0, 4), (6.0, 12)], ids=["length", "body"])
def test_a_frame_that_trickles_in_takes_too_long(monkeypatch, seconds, received):
    """Every byte comes in time, but the frame must arrive within SILENCE_SECONDS."""
    connection = TricklingConnection((100).to_bytes(4, "little"))
    monkeypatch.setattr(module, "time", Clock(step=seconds))
    with pytest.raises(TimeoutError, match="too long"):
        MessageStream(connection).receive(wire.StreamAnswer)
    assert connection.received == received


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


def test_a_refusal_arrives_although_more_requests_were_sent(pair):
    """With unread requests the connection would be reset, and the refusal lost."""
    refusal = wire.StreamAnswer(refusal=wire.Refusal(code="OUT_OF_RANGE", text="no"))
    for _ in range(3):
        pair.reader.send(REQUEST)
    assert pair.sender.receive(wire.FetchRequest) == REQUEST
    pair.sender.send(refusal)
    ended = in_thread(pair.sender.end)
    pair.reader.send(REQUEST)
    assert pair.reader.receive(wire.StreamAnswer) == refusal
    assert pair.reader.receive(wire.StreamAnswer) is None
    pair.reader.close()
    assert ended.get(timeout=TIMEOUT) is None


class Unread:
    """A connection with requests that were not read."""

    def __init__(self, requests):
        self.calls, self._arrived = [], [b"x"] * requests

    def settimeout(self, seconds):
        assert seconds == module.END_SECONDS

    def recv(self, size):
        self.calls.append("recv")
        return self._arrived.pop() if self._arrived else b""

    def close(self):
        self.calls.append("close")


def test_a_stream_reads_what_was_requested_before_it_closes(monkeypatch):
    shut = []
    monkeypatch.setattr(module.socket.socket, "shutdown", lambda _, how: shut.append(how))
    connection = Unread(requests=3)
    MessageStream(connection).end()
    assert shut == [socket.SHUT_WR]
    assert connection.calls == ["recv"] * 4 + ["close"]


class Flood:
    """A connection whose other end never stops to send."""

    def __init__(self, raw):
        self.raw, self.closed, self.received = raw, False, 0

    def settimeout(self, seconds):
        assert seconds == module.END_SECONDS

    def recv(self, size):
        self.received += 1
        return b"x"

    def close(self):
        self.closed = True


def test_a_reader_cannot_keep_a_refused_stream_open(monkeypatch):
    monkeypatch.setattr(module, "time", Clock(step=0.3))
    monkeypatch.setattr(module.socket.socket, "shutdown", lambda connection, how: None)
    flood = Flood(None)
    MessageStream(flood).end()
    assert flood.closed
    assert flood.received <= 5


# --- opening --------------------------------------------------------------------------------------


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(TIMEOUT)
        yield made


def open_to(listening, name="b", roots=None):
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    own, roots = credentials("a"), roots or authority().certificate
    return open_stream(address, name, FEDERATION, own, roots)


def accept(listening):
    """Accept a connection as node b."""
    raw, _ = listening.accept()
    context = tls.server_context(credentials("b"), authority().certificate)
    with context.wrap_socket(raw, server_side=True) as connection:
        stream = MessageStream(connection)
        stream.send(NOTICE)
        return stream.receive(wire.FetchRequest)


def test_a_stream_is_opened_to_the_node_of_a_name(listening):
    served = in_thread(lambda: accept(listening))
    stream = open_to(listening)
    assert stream.receive(wire.StreamAnswer) == NOTICE
    stream.send(REQUEST)
    assert served.get(timeout=TIMEOUT) == REQUEST
    assert stream._connection.gettimeout() == module.SILENCE_SECONDS
    stream.close()


@pytest.mark.parametrize(
    ("name", "roots"),
    [("c", None), ("b", create_authority(FEDERATION).certificate)],
    ids=["another name", "another authority"],
)
def test_no_stream_is_opened_to_anybody_else(listening, name, roots):
    served = in_thread(lambda: accept(listening))
    with pytest.raises(ssl.SSLCertVerificationError):
        open_to(listening, name, roots)
    assert isinstance(served.get(timeout=TIMEOUT), OSError)


def test_a_server_that_does_not_answer_is_given_up(listening, monkeypatch):
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.01)
    with pytest.raises(TimeoutError):
        open_to(listening)


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
