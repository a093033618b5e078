"""The streams of a node over real TLS: what each caller gets, and what ends a stream."""

import shutil
import threading

import pytest
import torch
from served_node import ServedNode
from tls_pairs import TIMEOUT, tcp_pair

from support.clinics import clinics
from tacit.peer.federation.certificates import server_name
from tacit.peer.federation.signing import issue_credentials
from tacit.peer.node import message_server as module
from tacit.peer.node.message_server import MessageServer
from tacit.peer.wire import tls, wire_pb2 as wire
from tacit.peer.wire.message_stream import MessageStream, to_wire
from tacit.peer.wire.messages import Envelope, ExchangeId, pack

# How a stream has ended.
ENDED = "ended"


class Stream:
    """A neighbour's end of a stream."""

    def __init__(self, node, connection, thread, admitted):
        self._node, self.stream, self._thread = node, MessageStream(connection), thread
        self.admitted = admitted  # names of the callers that were admitted

    def request(self, tick, saved=-1, generation=1, manifest=None):
        digest = self._node.state.manifest.hash if manifest is None else manifest
        exchange = to_wire(ExchangeId(generation, tick, 0))
        self.stream.send(
            wire.FetchRequest(exchange=exchange, manifest_sha256=digest, saved_tick=saved)
        )

    def answer(self):
        """The next answer: a notice, a refusal (code, text), the bytes of a message, or ENDED."""
        answer = self.stream.receive(wire.StreamAnswer)
        if answer is None:
            return ENDED
        kind = answer.WhichOneof("kind")
        if kind == "notice":
            return answer.notice
        if kind == "refusal":
            return answer.refusal.code, answer.refusal.text
        frame, header = bytearray(answer.header.size), answer.header
        exchange = ExchangeId(header.exchange.generation, header.exchange.tick, 0)
        self.stream.receive_message(header, exchange, memoryview(frame))
        return bytes(frame)

    def fetch(self, *ticks, **options):
        """The answers to requests, all sent before the first is read."""
        for tick in ticks:
            self.request(tick, **options)
        return [self.answer() for _ in ticks]

    def wait_for_end(self):
        """Wait until the node no longer serves the stream."""
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()

    def close(self):
        self.stream.close()
        self.wait_for_end()


class ServingNode(ServedNode):
    """A node, and ways to open streams to it."""

    def __init__(self, home):
        super().__init__(home)
        self.home, self.server, self.opened = home, MessageServer(self.state), []

    def credentials(self, caller):
        if caller in "bcd":
            return self.home.node(caller).credentials()
        if caller == "operator":
            return self.home.operator_credentials()
        federation = self.state.manifest.federation
        return issue_credentials(self.home.authority(), caller, federation)

    def open(self, caller="b", own=None, on_admit=lambda: None):
        """A stream of a caller; `on_admit` is called when the gate would admit it."""
        ours, theirs = tcp_pair()
        admitted = []

        def admit(name):
            admitted.append(name)
            on_admit()

        thread = threading.Thread(target=self.server.serve, args=(theirs, admit), daemon=True)
        thread.start()
        context = tls.client_context(own or self.credentials(caller), self.folder.ca())
        name = server_name("a", self.state.manifest.federation)
        connection = context.wrap_socket(ours, server_hostname=name)
        self.opened.append(Stream(self, connection, thread, admitted))
        return self.opened[-1]

    def refusal(self, caller="b", **options):
        """The only answer to a caller before it sends a request."""
        stream = self.open(caller, **options)
        refusal = stream.answer()
        assert stream.answer() == ENDED
        stream.close()
        return refusal


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return clinics(tmp_path_factory.mktemp("streams") / "f", "abcd")


@pytest.fixture
def serve(monkeypatch):
    """Make nodes; their streams end with the test."""
    monkeypatch.setattr(module, "NOTICE_SECONDS", 0.01)
    made = []

    def start(home):
        made.append(ServingNode(home))
        return made[-1]

    yield start
    for node in made:
        node.state.stop.set()
        node.outbox.close()
        for stream in node.opened:
            stream.close()


@pytest.fixture
def node(home, serve):
    return serve(home)


# --- callers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caller", "group"), [("b", "b"), ("c", "c"), ("operator", "operator"), ("x.b", "others")]
)
def test_the_gate_learns_who_calls(node, caller, group):
    """All that are not members share their limits."""
    node.put(1)
    stream = node.open(caller)
    stream.request(1)
    stream.answer()
    assert stream.admitted == [group]


# --- revoked certificates -------------------------------------------------------------------------


@pytest.fixture
def operator(home, tmp_path):
    """The operator's folder, in a copy that tests change."""
    return type(home)(shutil.copytree(home.path, tmp_path / "operator"))


# --- errors ---------------------------------------------------------------------------------------


def test_an_internal_error_is_logged_but_not_shown_to_the_caller(node, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("something internal")

    monkeypatch.setattr(node.state, "progress_notice", broken)
    stream = node.open()
    expected = ("INTERNAL", "internal error of this node: see its log")
    assert stream.fetch(9) == [expected]
    assert stream.answer() == ENDED
    (line,) = node.logged()
    assert (line["event"], line["level"], line["caller"]) == ("internal error", "error", "b")
    assert "something internal" in line["why"]


# --- messages -------------------------------------------------------------------------------------


def test_messages_are_sent_in_the_order_of_the_requests(node):
    messages = {tick: node.put(tick) for tick in (1, 2)}
    stream = node.open()
    found = stream.fetch(2, 1, 2)
    assert found == [messages[tick].frame for tick in (2, 1, 2)]
    stream.close()
    assert node.outbox.readers["b"].delivered == 2
    assert node.metrics.value("tacit_messages_sent_total", neighbour="b") == 3
    sent = sum(map(len, found))
    assert node.metrics.value("tacit_sent_bytes_total", neighbour="b") == sent


def test_a_message_counts_as_delivered_only_after_its_last_byte(node):
    """Of one that is larger than all buffers, only the header is read."""
    exchange = ExchangeId(1, 1, 0)
    envelope = Envelope(node.state.manifest.federation, "a", "", exchange)
    large = pack(envelope, {"x": torch.zeros(10_000_000)})
    node.outbox.put(large)
    stream = node.open()
    stream.request(1)
    header = stream.stream.receive(wire.StreamAnswer).header
    assert node.outbox.readers["b"].delivered == -1
    stream.stream.receive_message(header, exchange, memoryview(bytearray(len(large.frame))))
    stream.close()
    assert node.outbox.readers["b"].delivered == 1


def test_a_neighbour_may_read_a_message_long_after_its_request(node, monkeypatch):
    """It requests the next one before it computes, which may take an hour."""
    limits = []

    class ObservedStream(MessageStream):
        def send_message(self, message):
            limits.append(self._connection.gettimeout())
            super().send_message(message)

        def send(self, part):
            if part.HasField("refusal"):
                limits.append(self._connection.gettimeout())
            super().send(part)

    monkeypatch.setattr(module, "MessageStream", ObservedStream)
    message = node.put(1)
    stream = node.open()
    assert stream.fetch(1, 101) == [message.frame, ("OUT_OF_RANGE", "iteration 101 of 100")]
    assert limits == [None, module.SILENCE_SECONDS]


def test_notices_come_until_the_message_exists(node):
    node.state.report(step=4, waiting_for=("b (at iteration 4, says it waits for c)",))
    stream = node.open()
    stream.request(5)
    for _ in range(3):
        notice = stream.answer()
        assert (notice.generation, notice.tick, list(notice.waiting_for)) == (1, 4, ["b"])
    message, answer = node.put(5), stream.answer()
    while isinstance(answer, wire.ProgressNotice):
        answer = stream.answer()
    assert answer == message.frame


def test_a_request_of_another_generation_is_answered_by_a_notice(node):
    message, stream = node.put(1), node.open()
    (notice,) = stream.fetch(1, generation=2)
    assert notice.generation == 1
    assert stream.fetch(1) == [message.frame]


def test_a_refusal_arrives_although_the_neighbour_has_requested_more(node):
    node.put(1)
    stream = node.open()
    for tick in (101, 1, 2, 3):
        stream.request(tick)
    assert stream.answer() == ("OUT_OF_RANGE", "iteration 101 of 100")
    assert stream.answer() == ENDED


# --- streams that end -----------------------------------------------------------------------------


def test_the_end_of_an_old_stream_leaves_the_new_one(node):
    message = node.put(1)
    first = node.open()
    assert first.fetch(1) == [message.frame]
    second = node.open()
    assert second.fetch(1) == [message.frame]
    first.close()
    assert second.fetch(1) == [message.frame]
    second.close()
    assert node.server._streams == {}


def test_a_refused_caller_does_not_end_the_stream_of_a_neighbour(node):
    message, stream = node.put(1), node.open()
    assert stream.fetch(1) == [message.frame]
    own = issue_credentials(node.home.authority(), "b", "banks-01234567")
    node.refusal(own=own)
    assert stream.fetch(1) == [message.frame]


# --- what neighbours have saved -------------------------------------------------------------------


def test_a_false_claim_to_have_saved_costs_no_other_neighbour_a_message(node):
    messages = [node.put(tick).frame for tick in (1, 2, 3)]
    stream = node.open()
    stream.fetch(3)
    stream.fetch(3, saved=2**62)
    assert node.open("d").fetch(1, 2, 3) == messages
    # It is kept for d, so b can have it again too.
    assert stream.fetch(2) == messages[1:2]
