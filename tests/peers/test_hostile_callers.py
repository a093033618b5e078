"""Who may ask a node for what: strangers end in the handshake, the others are told why not, and counted."""

import dataclasses
import gc
import socket
import ssl
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
import torch
from federations import federation, plan, twin
from hostile import (
    PATIENCE,
    Impostor,
    Receiving,
    Seat,
    always,
    expired,
    grpc,
    knock,
    plain,
    put,
    receive,
    rewritten,
    tls,
)

from tacit.config.loading import with_keys
from tacit.peer.federation.federation_client import FederationClient
from tacit.peer.federation.certificate_authority import create_authority, issue_credentials
from tacit.peer.federation.certificates import server_name
from tacit.peer.federation.keys import sign
from tacit.peer.federation.operator import create, remove
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.messages import ExchangeId, Envelope, ExpectedMessage, pack
from tacit.peer.node.neighbour_client import Stopped
from tacit.peer.wire.transport import SERVICE, open_channel

METHODS = (
    "Hello",
    "FetchMessages",
    "NotifyFinished",
    "GetStatus",
    "GetManifest",
    "AnnounceManifest",
)
ADDRESS = ExchangeId(1, 7, 0)
ROWS = {"theta": torch.arange(6.0)}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Five nodes on a ring: n1 and n4 are neighbours of n0, n2 and n3 are not."""
    return federation(tmp_path_factory.mktemp("callers") / "f", plan({"name": "lppa", "lr": 0.05}))


@pytest.fixture(scope="module")
def neighbours_of(home, tmp_path_factory):
    """Another federation of the same authority, with nodes of the same names."""
    folder = tmp_path_factory.mktemp("callers") / "other"
    nodes = {member.name: member.address for member in home.members}
    return create(folder, "clinics", nodes, home.manifest().config, authority=home.authority())


@pytest.fixture
def seat(home):
    return Seat(home.node("n0"))


@pytest.fixture
def port(seat):
    with seat.served() as port:
        yield port


def letter_of(home, sender):
    return pack(Envelope(home.manifest().federation, sender, "", ADDRESS), ROWS)


def want(manifest, address=ADDRESS, saved=-1):
    at = wire.ExchangeId(
        generation=address.generation, tick=address.tick, exchange=address.exchange
    )
    return wire.FetchRequest(address=at, manifest=manifest.hash, saved=saved).SerializeToString()


@contextmanager
def calling(port, home, own, to="n0"):
    one = channel(f"127.0.0.1:{port}", to, home.manifest().federation, own, home.ca())
    try:
        yield one
    finally:
        one.close()


def outcome(one, method, raw=b"", **options):
    """The answer of a node, or its refusal."""
    try:
        if method == "FetchMessages":
            answers = one.stream_stream(f"/{SERVICE}/{method}")(
                iter([raw]), timeout=PATIENCE, **options
            )
            return b"".join(answers)
        return one.unary_unary(f"/{SERVICE}/{method}")(raw, timeout=PATIENCE, **options)
    except grpc.RpcError as problem:
        return SimpleNamespace(code=problem.code(), why=problem.details())


# --- before a word is said ------------------------------------------------------------------------------------


def strangers(home):
    federation = home.manifest().federation
    return {
        "another authority": issue_credentials(create_authority(federation), "n1", federation),
        "expired": expired(home.authority(), "n1", federation),
        "no certificate": None,
    }


@pytest.mark.parametrize("who", ["another authority", "expired", "no certificate"])
def test_strangers_end_in_the_handshake(home, seat, port, who):
    own = strangers(home)[who]
    assert knock(port, tls(own)) == b""
    name = ("grpc.ssl_target_name_override", server_name("n0", home.manifest().federation))
    pair = (None, None) if own is None else (own.key, own.certificate)
    with grpc.secure_channel(
        f"127.0.0.1:{port}", grpc.ssl_channel_credentials(home.ca(), *pair), [name]
    ) as one:
        assert {outcome(one, method).code for method in METHODS} == {grpc.StatusCode.UNAVAILABLE}
    assert seat.rejected() == 0  # nobody came as far as the state
    assert knock(port, tls(home.node("n1").credentials()))  # and a neighbour still does


def test_tls_1_2_is_refused(home, port):
    old = tls(home.node("n1").credentials())
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert knock(port, old) == b""
    assert knock(port, tls(home.node("n1").credentials()))


@pytest.mark.parametrize(
    "garbage",
    [
        bytes(100),
        b"GET / HTTP/1.1\r\nHost: n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
        b"\x16\x03\x01\xff\xff" + bytes(range(256)) * 300,
        b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff",
    ],
    ids=["zeros", "HTTP", "HTTP/2 without TLS", "a record that is too long", "half a greeting"],
)
def test_garbage_instead_of_tls_is_hung_up_on(home, port, garbage):
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as raw:
        try:
            raw.sendall(garbage)
            raw.shutdown(socket.SHUT_WR)
            said = raw.recv(1000)
        except TimeoutError:
            raise
        except OSError:  # it did not wait for the end
            said = b""
    assert len(said) <= 7  # an alert at most
    assert knock(port, tls(home.node("n1").credentials()))


# --- who may ask for what -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_another_federation_of_the_same_authority_is_refused_everything(
    home, neighbours_of, seat, port, method
):
    for who in (neighbours_of.node("n1").credentials(), neighbours_of.operator_credentials()):
        with calling(port, home, who) as one:
            refusal = outcome(one, method)
        assert refusal.code == grpc.StatusCode.PERMISSION_DENIED
        assert f"not of federation {home.manifest().federation}" in refusal.why
    assert seat.rejected("another federation") == seat.rejected() == 2


@pytest.mark.parametrize("who", ["n2", "operator"])
def test_only_neighbours_get_letters(home, seat, port, who):
    seat.state.active.outbox.put(letter_of(home, "n0"))
    own = home.operator_credentials() if who == "operator" else home.node(who).credentials()
    with calling(port, home, own) as one:
        refusal = outcome(one, "FetchMessages", want(home.manifest()))
        told = wire.Status.FromString(outcome(one, "GetStatus"))
    assert refusal.code == grpc.StatusCode.PERMISSION_DENIED
    assert refusal.why == f"{who} gets no letters from n0 in generation 1"
    assert seat.rejected("not a neighbour") == seat.rejected() == 1
    assert seat.log.lines("rejected", sender=who, reason="not a neighbour", why=refusal.why)
    assert (told.name, told.rejected) == ("n0", 1)  # how it is going, they may know
    with calling(port, home, home.node("n1").credentials()) as one:
        assert ROWS["theta"].numpy().tobytes() in outcome(
            one, "FetchMessages", want(home.manifest())
        )


def test_who_was_removed_gets_nothing_but_the_roster(home, tmp_path):
    later = twin(home, tmp_path / "later")
    remove(later.path, "n1")
    seat = Seat(later.node("n0"))
    seat.state.active.outbox.put(letter_of(later, "n0"))
    with seat.served() as port, calling(port, later, later.node("n1").credentials()) as one:
        letters = outcome(one, "FetchMessages", want(later.manifest()))
        status, farewell = (
            outcome(one, "GetStatus"),
            outcome(one, "NotifyFinished", b"\x08\x02\x10\x64"),
        )
        roster = wire.SignedManifest.FromString(outcome(one, "GetManifest"))
    assert letters.code == status.code == grpc.StatusCode.PERMISSION_DENIED
    assert letters.why == "n1 gets no letters from n0 in generation 2"
    assert status.why == "n1 is not a member"
    assert farewell.code == grpc.StatusCode.FAILED_PRECONDITION
    assert [
        seat.rejected(reason) for reason in ("not a neighbour", "not a member", "farewell")
    ] == [1, 1, 1]
    assert roster.manifest == later.manifest().text


def test_nobody_can_say_farewell_for_others_or_too_early(home, seat, port):
    said = []
    seat.state.farewell = said.append
    end, early = (wire.Finished(generation=1, tick=tick).SerializeToString() for tick in (100, 99))
    with calling(port, home, home.node("n2").credentials()) as one:
        assert "farewell from n2" in outcome(one, "NotifyFinished", end).why
    with calling(port, home, home.node("n1").credentials()) as one:
        assert (
            "iteration 99 of generation 1, which is not the end"
            in outcome(one, "NotifyFinished", early).why
        )
        assert said == []
        outcome(one, "NotifyFinished", end)
    assert said == ["n1"]
    assert seat.rejected("farewell") == 2


# --- who does not go by the same manifest ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def quicker(home, tmp_path_factory):
    """The same federation as n1 knows it: with another learning rate, signed by the same operator."""
    copy = twin(home, tmp_path_factory.mktemp("callers") / "quicker")
    put(
        copy.node("n1"),
        *rewritten(home, config=with_keys(home.manifest().config, "algorithm", lr=0.06)),
    )
    return copy


@pytest.mark.parametrize(("server", "client"), [("n0", "n1"), ("n1", "n0")])
def test_two_manifests_of_one_generation_refuse_each_other_and_say_where_they_differ(
    quicker, server, client
):
    answering, asking = Seat(quicker.node(server)), Seat(quicker.node(client))
    expected = ExpectedMessage(letter_of(quicker, server).envelope, ROWS)
    with answering.served() as port, asking.line(server, port) as line:
        receiving = Receiving(line, ADDRESS, expected)
        refusal = asking.log.wait_for("rejected by neighbour", neighbour=server)
        assert "differs in algorithm" in line.heard
        line.cancel()
        assert isinstance(receiving.ended(), Stopped)
    why = "another manifest for generation 1, which differs in algorithm"
    assert (refusal["code"], refusal["why"]) == ("FAILED_PRECONDITION", why)
    assert answering.rejected("configuration") == answering.rejected() >= 1
    assert answering.log.wait_for("rejected", sender=client, reason="configuration")["why"] == why


MISMATCHES = {
    "protocol 2 there, 1 here": {"protocol": 2},
    "federation 'banks-01234567' there": {"federation": "banks-01234567"},
    "a model of 7 numbers (torch.float32) there, 6 (torch.float32) here": {"parameters": 7},
    "a model of 6 numbers (torch.float64) there": {"dtype": "torch.float64"},
    "another manifest for generation 1, which differs in form": {"manifest": b"x" * 32},
}


@pytest.mark.parametrize("words", MISMATCHES)
def test_a_caller_with_another_greeting_is_refused(home, seat, port, words):
    greeting = seat.state.node_info()
    for name, value in MISMATCHES[words].items():
        setattr(greeting, name, value)
    with calling(port, home, home.node("n1").credentials()) as one:
        refusal = outcome(one, "Hello", greeting.SerializeToString())
        assert isinstance(outcome(one, "Hello", seat.state.node_info().SerializeToString()), bytes)
    assert refusal.code == grpc.StatusCode.FAILED_PRECONDITION
    assert words in refusal.why
    assert seat.rejected("configuration") == seat.rejected() == 1


@pytest.mark.parametrize("words", MISMATCHES)
def test_a_neighbour_with_another_greeting_is_not_asked_for_letters(home, seat, words):
    wrong = seat.state.node_info()
    for name, value in MISMATCHES[words].items():
        setattr(wrong, name, value)
    greetings = iter([wrong.SerializeToString()])
    node, letter = home.node("n1"), letter_of(home, "n1")
    with (
        Impostor(
            node.credentials(), node.ca(), lambda raw: next(greetings, raw), always(letter)
        ) as other,
        seat.line("n1", other.port) as line,
    ):
        found = receive(line, ADDRESS, ExpectedMessage(letter.envelope, ROWS))
        assert torch.equal(found["theta"], ROWS["theta"])
        assert other.asked == ["hello", "hello", "letters"]  # after the second, which is right
    assert words in seat.log.wait_for("rejected", sender="n1", reason="configuration")["why"]
    assert seat.rejected("configuration") == seat.rejected() == 1


def test_a_want_under_another_manifest_is_refused(home, quicker, seat, port):
    seat.state.active.outbox.put(letter_of(home, "n0"))
    with calling(port, home, home.node("n1").credentials()) as one:
        refusal = outcome(one, "FetchMessages", want(quicker.node("n1").manifest()))
    assert refusal.code == grpc.StatusCode.FAILED_PRECONDITION
    assert seat.rejected("configuration") == seat.rejected() == 1


# --- servers that are not who they should be ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "event", "words", "heard"),
    [
        (
            "another authority",
            "certificate rejected",
            "CERTIFICATE_VERIFY_FAILED",
            "is not of our authority",
        ),
        ("expired", "certificate rejected", "certificate has expired", "has expired"),
        (
            "another node",
            "neighbour not reached",
            "Hostname Verification Check failed",
            "not reached",
        ),
        (
            "another federation",
            "neighbour not reached",
            "Hostname Verification Check failed",
            "not reached",
        ),
    ],
)
def test_a_server_that_is_not_the_neighbour_is_never_asked(
    home, neighbours_of, seat, who, event, words, heard
):
    others = strangers(home)
    others |= {
        "another node": home.node("n2").credentials(),
        "another federation": neighbours_of.node("n1").credentials(),
    }
    with Impostor(others[who], home.ca(), lambda raw: raw, always(letter_of(home, "n1"))) as other:
        logged, said = why_not_reached(home, seat, other.port, event)
        assert other.asked == []
    assert words in logged["why"]
    assert heard in said


def test_a_server_of_tls_1_2_is_not_talked_to(home, seat):
    old = tls(home.node("n1").credentials(), ssl.PROTOCOL_TLS_SERVER)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    outcomes = []

    def accept():
        while True:
            try:
                raw, _ = listening.accept()
            except OSError:
                return
            try:
                with old.wrap_socket(raw, server_side=True) as secure:
                    outcomes.append(secure.version())
            except OSError as problem:  # also of TLS
                outcomes.append(type(problem))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        logged, _ = why_not_reached(home, seat, listening.getsockname()[1], "neighbour not reached")
        listening.shutdown(socket.SHUT_RDWR)
    assert "handshake failed" in logged["why"]
    assert outcomes
    assert not any(isinstance(one, str) for one in outcomes)


def why_not_reached(home, seat, port, event):
    """What is logged, and shown, of a neighbour that is not accepted, while the line tries again and again."""
    attempts = threading.Semaphore(0)
    with seat.line("n1", port) as line:
        expected = ExpectedMessage(letter_of(home, "n1").envelope, ROWS)
        receiving = Receiving(line, ADDRESS, expected, plain, attempts.release)
        for _ in range(3):
            assert attempts.acquire(timeout=PATIENCE)
        line.cancel()
        assert isinstance(receiving.ended(), Stopped)
    assert seat.retries("n1") >= 2
    return seat.log.wait_for(event, neighbour="n1"), line.heard


# --- manifests that nobody signed -----------------------------------------------------------------------------


def false_manifests(home, other):
    """What is not the roster that follows, with its signature."""
    ours, key = home.manifest(), home.operator_key()
    follows = {"generation": 2, "previous": ours.hash.hex()}
    new, signature = rewritten(home, **follows)
    elsewhere, _ = rewritten(home, federation=other.manifest().federation, **follows)
    return {
        "unsigned": (new.text, b""),
        "signed by a node": (new.text, sign(home.node("n1").credentials().key, new.text)),
        "signed by the authority": (new.text, sign(home.authority().key, new.text)),
        "with the signature of another": (new.text, home.signed_manifest()[1]),
        "changed after it was signed": (new.text.replace(b"0.05", b"0.06"), signature),
        "of another federation": (elsewhere.text, sign(key, elsewhere.text)),
        "of the same generation": rewritten_pair(
            home, config=with_keys(ours.config, "algorithm", lr=0.06)
        ),
        "that follows another": rewritten_pair(home, generation=2, previous="0" * 64),
        "that is no manifest": (b"format = 1", sign(key, b"format = 1")),
    }


def rewritten_pair(home, **changes):
    manifest, signature = rewritten(home, **changes)
    return manifest.text, signature


@pytest.fixture(scope="module")
def false(home, neighbours_of):
    return false_manifests(home, neighbours_of)


FALSE = [
    "unsigned", "signed by a node", "signed by the authority", "with the signature of another",
    "changed after it was signed", "of another federation", "of the same generation", "that follows another",
    "that is no manifest",
]  # fmt: skip


@pytest.mark.parametrize("kind", FALSE)
def test_a_false_manifest_is_refused_whoever_announces_it(home, seat, port, false, kind):
    before = sorted(
        (path, path.read_bytes()) for path in seat.node.path.iterdir() if path.is_file()
    )
    text, signature = false[kind]
    raw = wire.SignedManifest(manifest=text, signature=signature).SerializeToString()
    for own in (home.node("n1").credentials(), home.operator_credentials()):
        with calling(port, home, own) as one:
            refusal = outcome(one, "AnnounceManifest", raw)
            roster = wire.SignedManifest.FromString(outcome(one, "GetManifest"))
        assert refusal.code == grpc.StatusCode.FAILED_PRECONDITION
        assert roster.manifest == home.manifest().text
    assert seat.rejected("manifest") == seat.rejected() == 2
    assert seat.log.lines("rejected", reason="manifest")
    assert seat.state.announced is None
    assert not seat.state.interrupted
    after = sorted((path, path.read_bytes()) for path in seat.node.path.iterdir() if path.is_file())
    assert after == before


def test_the_roster_that_follows_is_taken_from_anybody(home, seat, port):
    text, signature = rewritten_pair(home, generation=2, previous=home.manifest().hash.hex())
    raw = wire.SignedManifest(manifest=text, signature=signature).SerializeToString()
    with calling(port, home, home.node("n2").credentials()) as one:
        assert outcome(one, "AnnounceManifest", raw) == b""
    assert (seat.state.announced.text, seat.state.announced.signature) == (text, signature)
    assert seat.rejected() == 0


@contextmanager
def slow_way(port, seconds):
    """A port from which everything reaches another one, and comes back, late."""

    def carry(source, sink):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(seconds)
                sink.sendall(data)

    def accept():
        with suppress(OSError):
            here, _ = front.accept()
            there = socket.create_connection(("127.0.0.1", port))
            ends.extend([here, there])
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=carry, args=(source, sink), daemon=True).start()

    ends = []
    with socket.create_server(("127.0.0.1", 0)) as front:
        threading.Thread(target=accept, daemon=True).start()
        yield front.getsockname()[1]
    for end in ends:
        end.close()


def test_a_far_node_is_reached_at_the_first_attempt(home, port):
    """A quarter of a second a way is a busy machine or a satellite: a handshake of several ways takes its time."""
    with slow_way(port, 0.25) as far, calling(far, home, home.operator_credentials()) as one:
        status = wire.Status.FromString(outcome(one, "GetStatus"))
    assert status.name == "n0"


# --- too much, or nothing at all ------------------------------------------------------------------------------


def test_what_unpacks_to_more_than_a_message_may_have_is_refused(home, seat, port):
    with calling(port, home, home.node("n1").credentials()) as one:
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            refusal = outcome(one, "AnnounceManifest", bytes(64 << 20), compression=compression)
            assert refusal.code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "larger than max" in refusal.why
        large = outcome(one, "GetStatus", b"\x0a\x80\x80\x02" + bytes(1 << 15))
    assert large.code == grpc.StatusCode.INVALID_ARGUMENT
    assert seat.rejected("malformed") == seat.rejected() >= 1


def test_callers_that_ask_nothing_do_not_lock_the_others_out(home, neighbours_of, seat, port):
    """Calls are opened and no question follows: of a neighbour, and of a stranger who may not ask anything."""
    end = threading.Event()

    def nothing():
        end.wait(PATIENCE)
        yield from ()

    with (
        calling(port, home, home.node("n4").credentials()) as one,
        calling(port, home, neighbours_of.node("n4").credentials()) as other,
        calling(port, home, home.node("n1").credentials()) as neighbour,
    ):
        silent = [
            many.stream_stream(f"/{SERVICE}/{method}")(nothing(), timeout=PATIENCE)
            for many in (one, other)
            for method in ("GetStatus", "Hello", "GetManifest", "AnnounceManifest") * 4
        ]
        seat.log.wait_for("rejected", reason="too many calls", sender="n4")
        seat.log.wait_for("rejected", reason="another federation")
        for _ in range(3):
            assert wire.Status.FromString(outcome(neighbour, "GetStatus")).name == "n0"
        end.set()
        for call in silent:
            call.cancel()


def test_callers_that_hang_up_again_and_again_get_through_again(home, seat, port):
    """Calls that have ended must not wait for the garbage collector: a connection may have 16 of them open."""
    letter = letter_of(home, "n0")
    seat.state.active.outbox.put(letter)
    end = threading.Event()

    def asking():
        yield want(home.manifest())
        end.wait(PATIENCE)

    gc.disable()
    try:
        with calling(port, home, home.node("n1").credentials()) as one:
            for _ in range(50):
                call = one.stream_stream(f"/{SERVICE}/FetchMessages")(asking(), timeout=PATIENCE)
                with suppress(grpc.RpcError):  # too many at this moment
                    next(call)
                call.cancel()
            limit = time.monotonic() + PATIENCE / 2
            while not isinstance(
                found := outcome(one, "FetchMessages", want(home.manifest())), bytes
            ):
                assert time.monotonic() < limit, found.why
                time.sleep(0.05)
            assert letter.frame in found
    finally:
        gc.enable()
        end.set()


# --- who asks can be attacked too -----------------------------------------------------------------------------


def asked(home, tell):
    """What the operator learns of n1, if n1 answers so."""
    node, manifest = home.node("n1"), home.manifest()
    with Impostor(node.credentials(), node.ca(), None, None, announce=tell, tell=tell) as other:
        here = dataclasses.replace(manifest.member("n1"), address=f"127.0.0.1:{other.port}")
        enquiry = FederationClient(
            dataclasses.replace(manifest, members=(here,)), home.operator_credentials(), home.ca()
        )
        try:
            return enquiry.status(PATIENCE)[0], enquiry.announce(b"", b"", PATIENCE)["n1"]
        finally:
            enquiry.close()


def test_a_status_does_nothing_to_the_terminal_that_shows_it(home):
    wild = "\x1b]0;owned\x07\x1b[2J\r\n" + "x" * 10_000
    status = wire.Status(
        name=wild, phase=wild, problem=wild, version=wild, waiting_for=[wild] * 1_000, step=5
    )
    answer, _ = asked(home, lambda raw: status.SerializeToString())
    shown = answer.as_dict()
    texts = [shown[key] for key in ("name", "phase", "problem", "version")] + shown["waiting_for"]
    assert all(text.isprintable() and len(text) < 500 for text in texts)
    assert len(shown["waiting_for"]) < 500
    assert (shown["step"], shown["reached"]) == (5, True)


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x02\xff\xfe", bytes(50)])
def test_a_status_that_is_none_is_said_to_be_so(home, raw):
    answer, _ = asked(home, lambda _: raw)
    assert (answer.status, answer.problem) == (None, "its answer cannot be parsed")


def test_a_refusal_does_nothing_to_the_terminal_either(home):
    def refuse(raw):
        raise ValueError("\x1b[2J" + "x" * 5_000)  # becomes the words of the refusal

    answer, told = asked(home, refuse)
    for words in (answer.problem, told):
        assert "xxx" in words
        assert words.isprintable()
        assert len(words) < 500
