"""The handlers of a node, called without a network: what each answers to whom."""

import errno
import functools
import io
import itertools
import json
import shutil
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tacit.config.sections import make_config
from tacit.peer.federation.operator import create, remove
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.outbox import Outbox
from tacit.peer.node.state import ActiveRoster, NodeState
from tacit.peer.wire import server
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.chunks import read_piece
from tacit.peer.wire.frames import Address, Envelope, pack
from tacit.peer.wire.server import CALLS, Service, threads_for
from tacit.peer.wire.transport import MANIFEST, SERVICE, SMALL, caller_of, grpc

CONFIG = make_config(
    {"algorithm": {"name": "lppa", "lr": 0.05}, "run": {"iterations_per_round": 5}}
)
METHODS = ("Hello", "Letters", "Farewell", "Tell", "Roster", "Announce")


@functools.cache
def certificate(*names):
    """A certificate (PEM) for these names; that gRPC has checked it is taken for granted here."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    whoever = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "whoever")])
    builder = x509.CertificateBuilder(
        whoever, whoever, key.public_key(), 1, now, now + timedelta(days=1)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False
        )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Aborted(Exception):
    """What `abort` raises."""

    def __init__(self, code, why):
        super().__init__(why)
        self.code = code


class Context:
    """A call, as gRPC shows it to a handler; without gRPC."""

    def __init__(self, *names):
        self._certificate, self._code = certificate(*names), None
        self._active, self._callbacks = True, []

    def auth_context(self):
        return {"x509_pem_cert": [self._certificate]}

    def abort(self, code, why):
        self._code = code
        raise Aborted(code, why)

    def code(self):
        return self._code

    def is_active(self):
        return self._active

    def add_callback(self, callback):
        self._callbacks.append(callback)

    def cancel(self):
        self._active = False
        for callback in self._callbacks:
            callback()


class Node:
    """The desk and the service of a node, and ways to call it."""

    def __init__(self, home, name="a"):
        self.folder = home.node(name)
        manifest = self.folder.manifest()
        readers = [member.name for member in manifest.out_neighbours(name)]
        self.log, self.metrics = io.StringIO(), Metrics()
        standing = ActiveRoster(manifest, Outbox.to(manifest.generation, readers))
        event_log = EventLog(self.log, name)
        self.desk = NodeState(
            self.folder, name, standing, self.metrics, event_log, 6, "torch.float32"
        )
        self.desk.report(steps=100)
        self.service = Service(self.desk).handlers()

    def context(self, who):
        return Context(f"{who}.{self.desk.manifest.federation}.tacit")

    def call(self, method, raw=b"", who="b", context=None):
        """What a method answers; a list where it answers by a stream."""
        handler = self.service.service(SimpleNamespace(method=f"/{SERVICE}/{method}"))
        context = context or self.context(who)
        if method == "Letters":
            return handler.stream_stream(iter(raw if isinstance(raw, list) else [raw]), context)
        return handler.stream_unary(iter([raw]), context)

    def refusal(self, method, raw=b"", who="b"):
        with pytest.raises(Aborted) as caught:
            list(self.call(method, raw, who))
        return caught.value.code, str(caught.value)

    def rejected(self, reason):
        return self.metrics.value("tacit_rejected_total", reason=reason)

    def post(self, tick, receiver=""):
        envelope = Envelope(self.desk.manifest.federation, "a", receiver, Address(1, tick, 0))
        letter = pack(envelope, {"x": torch.full((4,), float(tick))})
        self.desk.standing.outbox.post(letter)
        return letter

    def want(self, tick, saved=-1, generation=1, manifest=None):
        address = wire.Address(generation=generation, tick=tick)
        told = self.desk.manifest.hash if manifest is None else manifest
        return wire.Want(address=address, manifest=told, saved=saved).SerializeToString()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """a, b, c, d on a ring: b and d are neighbours of a."""
    nodes = {name: f"127.0.0.1:{7400 + at}" for at, name in enumerate("abcd")}
    return create(tmp_path_factory.mktemp("served") / "f", "clinics", nodes, CONFIG)


@pytest.fixture
def node(home):
    return Node(home)


def frame(messages):
    """The bytes of the letter in some messages."""
    return b"".join(bytes(read_piece(raw).data or b"") for raw in messages)


def notices(messages):
    return [piece.notice for piece in map(read_piece, messages) if piece.notice is not None]


# --- who calls ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "caller"),
    [
        (["b.clinics-01234567.tacit"], "b"),
        (["b.banks-01234567.tacit", "c.clinics-01234567.tacit"], "c"),
        (["b.banks-01234567.tacit"], None),
        (["bclinics-01234567.tacit"], None),
        (["b.clinics-01234567.tacit.example.org"], None),
        (["b.CLINICS-01234567.tacit"], None),
        (["x.b.clinics-01234567.tacit"], "x.b"),  # nobody is called so
        (["b.clinics-01234567.tacit", "c.clinics-01234567.tacit"], None),  # one of them, but which?
        ([], None),
    ],
)
def test_a_caller_is_who_the_certificate_names_in_this_federation(names, caller):
    assert caller_of(Context(*names), "clinics-01234567") == caller


@pytest.mark.parametrize("method", METHODS)
def test_a_certificate_of_another_federation_opens_nothing(node, method):
    with pytest.raises(Aborted, match="not of federation clinics") as caught:
        list(node.call(method, context=Context("b.banks-01234567.tacit")))
    assert caught.value.code == grpc.StatusCode.PERMISSION_DENIED
    assert node.rejected("another federation") == 1


@pytest.mark.parametrize("who", ["c", "operator", "x.b", ""])
def test_who_is_no_neighbour_gets_no_letters(node, who):
    node.post(1)
    assert node.refusal("Letters", node.want(1), who)[0] == grpc.StatusCode.PERMISSION_DENIED
    assert node.rejected("not a neighbour") == 1
    assert json.loads(node.log.getvalue())["sender"] == who


@pytest.mark.parametrize(
    ("who", "allowed"), [("b", True), ("c", True), ("operator", True), ("z", False)]
)
def test_status_is_for_members_and_the_operator(node, who, allowed):
    if allowed:
        assert wire.Status.FromString(node.call("Tell", who=who)).steps == 100
    else:
        assert node.refusal("Tell", who=who) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "z is not a member",
        )


# --- our own mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "part"), [("Tell", "status"), ("Hello", "greeting"), ("Letters", "notice")]
)
def test_a_mistake_of_ours_is_logged_and_not_told(node, monkeypatch, method, part):
    def broken(*what):
        raise ZeroDivisionError("something of our own")

    monkeypatch.setattr(node.desk, part, broken)
    raw = {"Letters": node.want(1, generation=2)}.get(method, b"")
    code, why = node.refusal(method, raw)
    assert (code, why) == (grpc.StatusCode.INTERNAL, "a mistake in this node; its log says more")
    logged = json.loads(node.log.getvalue())
    assert (logged["event"], logged["level"], logged["caller"]) == (
        "mistake in an answer",
        "error",
        "b",
    )
    assert "something of our own" in logged["why"]


# --- too many calls --------------------------------------------------------------------------------------------


def silent(node, who):
    """A call of somebody who does not ask the question; it ends when the event is set."""
    begun, end = threading.Event(), threading.Event()

    def questions():
        begun.set()
        assert end.wait(60)
        yield b""

    handler = node.service.service(SimpleNamespace(method=f"/{SERVICE}/Roster"))
    thread = threading.Thread(
        target=handler.stream_unary, args=(questions(), node.context(who)), daemon=True
    )
    thread.start()
    assert begun.wait(60)

    def finish():
        end.set()
        thread.join(60)

    return finish


@pytest.mark.parametrize(
    ("who", "others"), [("b", ["c", "operator", "z"]), ("z", ["b", "c", "operator"])]
)
def test_calls_that_say_nothing_do_not_take_the_place_of_others(node, who, others):
    finish = [silent(node, who) for _ in range(CALLS)]
    code, why = node.refusal("Hello", node.desk.greeting().SerializeToString(), who)
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert why == f"4 calls of {'others' if who == 'z' else who} are under way"
    assert node.rejected("too many calls") == 1
    for other in others:
        assert node.call("Roster", who=other)
    finish[0]()
    assert node.call("Roster", who=who)  # there is room again
    for one in finish:
        one()


def test_those_who_are_not_members_have_their_calls_together(node):
    for who in ("y", "x"):
        silent(node, who), silent(node, who)
    assert node.refusal("Roster", who="w")[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert node.call("Roster", who="b")


def test_there_are_threads_for_all_who_may_call():
    for members in (2, 5, 20):
        streams, everybody = members, members + 2  # the operator, and those who are not members
        assert threads_for(members) > streams + CALLS * everybody


# --- what cannot be read --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("raw", [b"\x0a\xff", b"\xff" * 30, b"\x08", b"\x0f"])
def test_what_cannot_be_parsed_is_refused_and_counted(node, method, raw):
    code, why = node.refusal(method, raw)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert why.startswith(f"{len(raw)} bytes that are no ")
    assert node.rejected("malformed") == 1


@pytest.mark.parametrize("method", [method for method in METHODS if method != "Letters"])
def test_a_call_without_a_question_is_refused(node, method):
    handler = node.service.service(SimpleNamespace(method=f"/{SERVICE}/{method}"))
    with pytest.raises(Aborted, match="without a question"):
        handler.stream_unary(iter([]), node.context("b"))
    assert node.rejected("malformed") == 1


def test_a_caller_who_goes_before_it_asks_is_not_counted(node):
    context = node.context("b")
    context.cancel()
    handler = node.service.service(SimpleNamespace(method=f"/{SERVICE}/Tell"))
    assert handler.stream_unary(iter([]), context) == b""
    assert node.metrics.total("tacit_rejected_total") == 0


@pytest.mark.parametrize("method", METHODS)
def test_only_a_manifest_may_be_long(node, method):
    unknown = b"\x7a" + b"\x80\x80\x02" + bytes(1 << 15)  # a field that everybody skips
    assert SMALL < len(unknown) < MANIFEST
    code, _ = node.refusal(method, unknown)
    expected = "FAILED_PRECONDITION" if method == "Announce" else "INVALID_ARGUMENT"
    assert code.name == expected


# --- letters --------------------------------------------------------------------------------------------------


def test_letters_are_given_in_the_order_of_the_wants(node):
    letters = {tick: node.post(tick) for tick in (1, 2)}
    messages = list(node.call("Letters", [node.want(2), node.want(1), node.want(2)]))
    assert frame(messages) == letters[2].frame + letters[1].frame + letters[2].frame
    assert node.desk.standing.outbox.readers["b"].delivered == 2
    assert node.metrics.value("tacit_letters_sent_total", neighbour="b") == 3
    sent = 2 * len(letters[2].frame) + len(letters[1].frame)
    assert node.metrics.value("tacit_sent_bytes_total", neighbour="b") == sent


def test_a_letter_counts_as_given_only_after_its_last_byte(node):
    node.post(1)
    answers = node.call("Letters", [node.want(1)])
    next(answers)
    assert node.desk.standing.outbox.readers["b"].delivered == -1
    assert list(answers) == []
    assert node.desk.standing.outbox.readers["b"].delivered == 1


def test_notices_come_while_the_letter_is_not_written(node, monkeypatch):
    monkeypatch.setattr(server, "PATIENCE", 0.01)
    node.desk.report(step=4, waiting_for=("b (at iteration 4)",), blamed=("c",))
    answers = node.call("Letters", [node.want(5)])
    told = notices(itertools.islice(answers, 3))
    assert [(one.generation, one.tick, list(one.waiting_for)) for one in told] == [
        (1, 4, ["c"])
    ] * 3
    letter = node.post(5)
    assert frame(answers) == letter.frame


def test_a_letter_of_another_generation_is_answered_by_where_we_are_and_the_stream_goes_on(node):
    letter = node.post(1)
    messages = list(node.call("Letters", [node.want(1, generation=2), node.want(1)]))
    assert [one.generation for one in notices(messages[:1])] == [1]
    assert frame(messages[1:]) == letter.frame


def test_a_want_under_another_manifest_is_refused(node):
    node.post(1)
    code, why = node.refusal("Letters", node.want(1, manifest=b"x" * 32))
    assert (code, why) == (grpc.StatusCode.FAILED_PRECONDITION, "another manifest for generation 1")
    assert node.rejected("configuration") == 1
    assert node.desk.standing.outbox.readers["b"].delivered == -1


@pytest.mark.parametrize("tick", [101, 2**64 - 1])
def test_a_letter_that_will_never_be_is_refused(node, tick):
    assert node.refusal("Letters", node.want(tick)) == (
        grpc.StatusCode.OUT_OF_RANGE,
        f"iteration {tick} of 100",
    )
    assert node.rejected("future") == 1


def test_the_newest_stream_of_a_neighbour_ends_the_one_before(node, monkeypatch):
    monkeypatch.setattr(
        server, "PATIENCE", 3600
    )  # nothing but the end of the stream ends the waiting
    node.post(1)
    first, second, other = node.context("b"), node.context("b"), node.context("d")
    begun, ended = threading.Event(), threading.Event()

    def read():
        for _ in node.call("Letters", [node.want(1), node.want(9)], context=first):
            begun.set()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    assert begun.wait(60)
    list(node.call("Letters", [node.want(1)], context=other))
    assert first.is_active()
    list(node.call("Letters", [node.want(1)], context=second))
    assert not first.is_active()
    assert ended.wait(60)
    assert second.is_active()
    assert other.is_active()


def test_a_node_that_stops_leaves_those_who_wait(node):
    answers = node.call("Letters", [node.want(9)])
    node.desk.stop.set()
    assert list(answers) == []


# --- what neighbours have saved -------------------------------------------------------------------------------


def test_what_a_neighbour_says_that_it_saved_costs_nobody_else_a_letter(node):
    letters = [node.post(tick) for tick in (1, 2, 3)]
    list(node.call("Letters", [node.want(3)], who="b"))
    list(node.call("Letters", [node.want(3, saved=2**62)], who="b"))  # a lie
    assert frame(
        node.call("Letters", [node.want(tick) for tick in (1, 2, 3)], who="d")
    ) == b"".join(letter.frame for letter in letters)
    assert frame(node.call("Letters", [node.want(2)], who="b")) == letters[1].frame  # kept for d


def test_nobody_has_saved_what_it_was_not_given(node):
    node.post(1, receiver="b")
    node.post(2, receiver="b")
    list(node.call("Letters", [node.want(1, saved=2**62)]))
    list(node.call("Letters", [node.want(2, saved=2**62)]))
    assert [letter.envelope.address.tick for letter in node.desk.standing.outbox.held()] == [2]


def test_a_letter_that_was_saved_is_gone(node, monkeypatch):
    monkeypatch.setattr(server, "PATIENCE", 0.01)
    node.post(1, receiver="b")
    list(node.call("Letters", [node.want(1)]))
    code, why = node.refusal("Letters", [node.want(1, saved=1)])
    assert (code, why) == (grpc.StatusCode.OUT_OF_RANGE, "b has said that it saved iteration 1")
    assert node.rejected("past") == 1


def test_a_negative_save_beyond_all_does_no_harm(node):
    letter = node.post(1)
    assert frame(node.call("Letters", [node.want(1, saved=-(2**63))])) == letter.frame
    assert node.desk.standing.outbox.readers["b"].saved == -1


# --- farewells, rosters, greetings ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "generation", "tick", "allowed"),
    [
        ("b", 1, 100, True),
        ("b", 1, 99, False),
        ("b", 1, 2**64 - 1, False),
        ("b", 2, 100, False),
        ("b", 0, 0, False),
        ("c", 1, 100, False),
        ("operator", 1, 100, False),
    ],
)
def test_a_farewell_is_of_a_neighbour_at_the_end(node, who, generation, tick, allowed):
    said = []
    node.desk.farewell = said.append
    raw = wire.Ended(generation=generation, tick=tick).SerializeToString()
    if allowed:
        assert node.call("Farewell", raw, who) == b""
        assert said == [who]
    else:
        assert node.refusal("Farewell", raw, who)[0] == grpc.StatusCode.FAILED_PRECONDITION
        assert said == []
        assert node.rejected("farewell") == 1


def test_a_farewell_that_cannot_be_noted_must_be_said_again(node):
    def full(name):
        raise OSError(errno.ENOSPC, "No space left on device")

    node.desk.farewell = full
    code, why = node.refusal("Farewell", wire.Ended(generation=1, tick=100).SerializeToString())
    assert code == grpc.StatusCode.UNAVAILABLE
    assert "No space left" in why


def test_a_farewell_before_anybody_can_note_it_must_be_said_again(node):
    code, _ = node.refusal("Farewell", wire.Ended(generation=1, tick=100).SerializeToString())
    assert code == grpc.StatusCode.UNAVAILABLE


def test_greetings_are_exchanged(node):
    ours = node.desk.greeting()
    assert wire.Greeting.FromString(node.call("Hello", ours.SerializeToString())) == ours
    ours.sections["algorithm"], ours.manifest = "0" * 16, b"x" * 32
    code, why = node.refusal("Hello", ours.SerializeToString())
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert why == "another manifest for generation 1, which differs in algorithm"
    assert node.rejected("configuration") == 1


def test_a_newer_roster_is_taken_once_and_passed_on(home, node, tmp_path):
    later = type(home)(tmp_path / "later")
    shutil.copytree(home.path, later.path)
    remove(later.path, "c")
    text, signature = later.signed()
    raw = wire.SignedManifest(manifest=text, signature=signature).SerializeToString()
    interrupted = []
    node.desk.on_interrupt(lambda: interrupted.append(True))
    for _ in range(2):
        assert node.call("Announce", raw, "c") == b""
    assert interrupted == [True]
    assert wire.SignedManifest.FromString(node.call("Roster", who="z")).manifest == text
    forged = wire.SignedManifest(manifest=text + b"\n", signature=signature).SerializeToString()
    assert "not signed by our operator" in node.refusal("Announce", forged, "operator")[1]
    assert node.rejected("manifest") == 1
    assert (node.desk.newer.text, node.desk.newer.signature) == (text, signature)


def test_a_roster_that_the_node_goes_over_to_meanwhile_is_no_news(
    home, node, tmp_path, monkeypatch
):
    """Two bring the same news at once: the second one is still being looked over when the node has entered it."""
    later = type(home)(tmp_path / "later")
    shutil.copytree(home.path, later.path)
    remove(later.path, "c")
    text, signature = later.signed()
    manifest, interrupted = later.manifest(), []

    def slowly(self, text, signature):
        node.desk.enter(ActiveRoster(manifest, Outbox.to(manifest.generation, ["b"])))
        return manifest

    node.desk.on_interrupt(lambda: interrupted.append(True))
    monkeypatch.setattr(type(node.desk.folder), "accept", slowly)
    assert node.desk.consider(text, signature) is False
    assert node.desk.newer is None
    assert interrupted == []
    assert not node.desk.interrupted


def test_a_reason_to_leave_that_came_before_the_wait_is_not_missed(home, node, tmp_path):
    later = type(home)(tmp_path / "later")
    shutil.copytree(home.path, later.path)
    remove(later.path, "c")
    assert node.desk.consider(*later.signed()) is True
    left = []
    node.desk.on_interrupt(lambda: left.append("for the roster"))
    assert left == ["for the roster"]
    manifest = later.manifest()
    node.desk.enter(ActiveRoster(manifest, Outbox.to(manifest.generation, ["b"])))
    node.desk.on_interrupt(lambda: left.append("to end"))
    assert left == ["for the roster"]
    node.desk.end()
    assert left == ["for the roster", "to end"]


def test_who_left_the_roster_meanwhile_gets_nothing_more(home, node):
    """The stream was opened as a neighbour; then the outbox is one for others."""
    node.post(1)
    answers = node.call("Letters", [node.want(1), node.want(1)])
    assert next(answers)
    node.desk.standing = ActiveRoster(node.desk.manifest, Outbox.to(1, ["d"]))
    node.post(1)
    assert list(answers) == []
    assert node.metrics.value("tacit_letters_sent_total", neighbour="b") == 1
