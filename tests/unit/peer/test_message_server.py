"""The streams of a node over real TLS: what each caller gets, and what ends a stream."""

import shutil
import ssl
import threading

import pytest
import torch
from served_node import ServedNode, make_home
from tls_pairs import TIMEOUT, tcp_pair

from tacit.peer.federation.certificates import certificate_info, server_name
from tacit.peer.federation.membership import revoke
from tacit.peer.federation.signing import create_authority, issue_credentials
from tacit.peer.node import message_server as module
from tacit.peer.node.message_server import MessageServer
from tacit.peer.node.node_state import ActiveRoster
from tacit.peer.node.outbox import Outbox
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
    return make_home(tmp_path_factory.mktemp("streams") / "f")


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


@pytest.mark.parametrize("caller", ["c", "operator", "x.b"])
def test_only_neighbours_get_messages(node, caller):
    node.put(1)
    code, why = node.refusal(caller)
    assert code == "PERMISSION_DENIED"
    assert why == f"{caller} gets no messages from a in generation 1"
    assert node.rejected("not a neighbour") == 1
    (line,) = node.logged()
    assert line["sender"] == caller


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


def test_a_certificate_of_another_federation_is_refused_and_not_admitted(node):
    own = issue_credentials(node.home.authority(), "b", "banks-01234567")
    stream = node.open(own=own)
    code, why = stream.answer()
    assert code == "PERMISSION_DENIED"
    assert why.startswith("the caller's certificate is not of federation clinics")
    assert stream.admitted == []
    assert node.rejected("another federation") == 1


def test_a_stranger_gets_no_answer(node):
    """TLS refuses it, before a byte of this protocol."""
    federation = node.state.manifest.federation
    stranger = issue_credentials(create_authority(federation), "b", federation)
    stream = node.open(own=stranger)
    with pytest.raises(ssl.SSLError, match=r"(?i)unknown ca"):
        stream.answer()
    stream.wait_for_end()
    assert stream.admitted == []
    assert node.logged() == []


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"])
def test_what_is_no_tls_ends_quietly(node, sent):
    ours, theirs = tcp_pair()
    ours.sendall(sent)
    ours.close()
    node.server.serve(theirs, lambda name: pytest.fail("admitted"))
    assert theirs.fileno() == -1
    assert node.logged() == []


# --- revoked certificates -------------------------------------------------------------------------


@pytest.fixture
def operator(home, tmp_path):
    """The operator's folder, in a copy that tests change."""
    return type(home)(shutil.copytree(home.path, tmp_path / "operator"))


@pytest.fixture
def follower(home, tmp_path, serve):
    """A node that stores the log in a folder of its own."""
    return serve(type(home)(shutil.copytree(home.path, tmp_path / "follower")))


def follow(node, operator):
    """Let a node learn the operator's log."""
    assert node.state.changes.update(operator.signed_update()[2])


def test_a_revoked_caller_gets_nothing(follower, operator):
    revoke(operator.path, "b", keep=True)
    follow(follower, operator)
    message = follower.put(1)
    expected = "the operator revoked this certificate of b: entry 6 of its log"
    assert follower.refusal("b") == ("PERMISSION_DENIED", expected)
    assert follower.opened[-1].admitted == []
    assert follower.rejected("revoked") == 1
    assert follower.open("d").fetch(1) == [message.frame]


def test_a_new_certificate_of_a_revoked_member_is_served(follower, operator):
    revoke(operator.path, "b", keep=True)
    new = issue_credentials(operator.authority(), "b", follower.state.manifest.federation)
    operator.record(("certificate", {"name": "b", "certificate": new.certificate.decode()}))
    follow(follower, operator)
    message = follower.put(1)
    assert follower.open(own=new).fetch(1) == [message.frame]
    assert follower.refusal("b")[0] == "PERMISSION_DENIED"


def test_a_revocation_while_a_stream_is_admitted_is_not_missed(follower, operator):
    """The gate closes admitted connections when it hears of a revocation: not those to come."""
    revoke(operator.path, "b", keep=True)
    code, why = follower.refusal("b", on_admit=lambda: follow(follower, operator))
    assert code == "PERMISSION_DENIED"
    assert "revoked" in why
    assert follower.opened[-1].admitted == ["b"]


def test_the_server_shows_its_newest_certificate(node, monkeypatch):
    new = issue_credentials(node.home.authority(), "a", node.state.manifest.federation)
    monkeypatch.setattr(node.state.credentials, "current", lambda: new)
    shown = tls.peer_certificate(node.open().stream._connection)
    assert certificate_info(shown) == certificate_info(new.certificate)


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


@pytest.mark.parametrize("raw", [b"\x0a\xff", b"\xff" * 30, b"\x08", b"\x0f"])
def test_what_cannot_be_parsed_is_refused_and_counted(node, raw):
    stream = node.open()
    stream.stream._connection.sendall(len(raw).to_bytes(4, "little") + raw)
    assert stream.answer() == ("INVALID_ARGUMENT", f"{len(raw)} bytes that are no FetchRequest")
    assert stream.answer() == ENDED
    assert node.rejected("malformed") == 1


def test_a_request_that_claims_to_be_long_is_refused(node):
    stream = node.open()
    stream.stream._connection.sendall((1 << 15).to_bytes(4, "little"))
    assert stream.answer()[0] == "INVALID_ARGUMENT"
    assert node.rejected("malformed") == 1


def test_a_neighbour_that_hangs_up_is_not_counted(node):
    node.put(1)
    stream = node.open()
    stream.fetch(1)
    stream.close()
    silent = node.open()
    silent.close()
    assert node.metrics.total("tacit_rejected_total") == 0
    assert node.logged() == []


def test_a_neighbour_that_hangs_up_while_it_waits_leaves_no_thread(node):
    stream = node.open()
    stream.request(9)
    assert stream.answer().tick == 0
    stream.close()  # waits for the thread, which finds out at the next notice


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


def test_a_message_that_is_not_read_counts_as_not_sent(node):
    envelope = Envelope(node.state.manifest.federation, "a", "", ExchangeId(1, 1, 0))
    node.outbox.put(pack(envelope, {"x": torch.zeros(10_000_000)}))
    stream = node.open()
    stream.request(1)
    assert stream.stream.receive(wire.StreamAnswer).header.size
    stream.close()
    assert node.outbox.readers["b"].delivered == -1
    assert node.metrics.value("tacit_messages_sent_total", neighbour="b") == 0


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


def test_a_request_under_another_manifest_is_refused(node):
    node.put(1)
    stream = node.open()
    expected = ("FAILED_PRECONDITION", "another manifest for generation 1")
    assert stream.fetch(1, manifest=b"x" * 32) == [expected]
    assert stream.answer() == ENDED
    assert node.rejected("configuration") == 1
    assert node.outbox.readers["b"].delivered == -1


@pytest.mark.parametrize("tick", [101, 2**64 - 1])
def test_a_message_after_the_end_is_refused(node, tick):
    stream = node.open()
    assert stream.fetch(tick) == [("OUT_OF_RANGE", f"iteration {tick} of 100")]
    assert node.rejected("future") == 1


def test_a_refusal_arrives_although_the_neighbour_has_requested_more(node):
    node.put(1)
    stream = node.open()
    for tick in (101, 1, 2, 3):
        stream.request(tick)
    assert stream.answer() == ("OUT_OF_RANGE", "iteration 101 of 100")
    assert stream.answer() == ENDED


# --- streams that end -----------------------------------------------------------------------------


def test_a_new_stream_of_a_neighbour_ends_its_previous_one(node, monkeypatch):
    monkeypatch.setattr(module, "NOTICE_SECONDS", 3600)
    message = node.put(1)
    first = node.open()
    assert first.fetch(1) == [message.frame]
    first.request(9)  # the node waits for it
    other = node.open("d")
    assert other.fetch(1) == [message.frame]
    second = node.open()
    assert second.fetch(1) == [message.frame]
    assert first.answer() == ENDED
    first.wait_for_end()
    assert second.fetch(1) == other.fetch(1) == [message.frame]


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


def test_a_node_that_stops_waits_for_no_message(node, monkeypatch):
    """Its gate then ends the stream."""
    monkeypatch.setattr(module, "NOTICE_SECONDS", 3600)
    stopped = threading.Event()
    stream = node.open()
    monkeypatch.setattr(node.outbox, "mark_saved", lambda *_: stopped.set())
    stream.request(9)
    assert stopped.wait(TIMEOUT)
    node.state.stop.set()
    node.outbox.close()
    stream.close()


def test_a_neighbour_that_leaves_the_roster_gets_nothing_more(node):
    """The stream was opened by a neighbour; then the outbox has other readers."""
    message, stream = node.put(1), node.open()
    assert stream.fetch(1) == [message.frame]
    active = node.state.active
    node.state.active = ActiveRoster(active.manifest, Outbox(["d"]), active.finished_peers)
    node.put(1)
    stream.request(1)
    stream.wait_for_end()
    assert node.metrics.value("tacit_messages_sent_total", neighbour="b") == 1


# --- what neighbours have saved -------------------------------------------------------------------


def test_a_false_claim_to_have_saved_costs_no_other_neighbour_a_message(node):
    messages = [node.put(tick).frame for tick in (1, 2, 3)]
    stream = node.open()
    stream.fetch(3)
    stream.fetch(3, saved=2**62)
    assert node.open("d").fetch(1, 2, 3) == messages
    # It is kept for d, so b can have it again too.
    assert stream.fetch(2) == messages[1:2]


def test_only_delivered_messages_count_as_saved(node):
    node.put(1, receiver="b")
    node.put(2, receiver="b")
    node.open().fetch(1, 2, saved=2**62)
    assert [message.envelope.exchange.tick for message in node.outbox.messages()] == [2]


def test_a_saved_message_is_gone(node):
    node.put(1, receiver="b")
    stream = node.open()
    stream.fetch(1)
    assert stream.fetch(1, saved=1) == [("OUT_OF_RANGE", "b has already saved iteration 1")]
    assert node.rejected("past") == 1


def test_a_message_to_one_neighbour_is_not_sent_to_another(node):
    node.put(1, receiver="b")
    notice = node.open("d").fetch(1)[0]
    assert isinstance(notice, wire.ProgressNotice)


def test_the_smallest_saved_tick_does_no_harm(node):
    message = node.put(1)
    assert node.open().fetch(1, saved=-(2**63)) == [message.frame]
    assert node.outbox.readers["b"].saved == -1
