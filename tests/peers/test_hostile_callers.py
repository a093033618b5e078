"""What a node refuses: outsiders fail in the TLS handshake, others learn why, and are counted."""

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
from federations import twin
from hostile import (
    TIMEOUT,
    IdleNode,
    Receiving,
    ScriptedServer,
    always,
    expired,
    fetched,
    first_bytes,
    grpc,
    install,
    log_naming,
    receive,
    rewritten,
    ring_of_five,
    same_names_elsewhere,
    signed_manifest,
    tls,
)

from tacit.config.loading import with_keys
from tacit.peer.federation.certificates import server_name
from tacit.peer.federation.federation_client import FederationClient
from tacit.peer.federation.operator import remove
from tacit.peer.federation.signing import create_authority, issue_credentials, sign
from tacit.peer.node.node_state import Stopped
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.message_stream import to_wire
from tacit.peer.wire.messages import Envelope, ExchangeId, ExpectedMessage, pack
from tacit.peer.wire.tls import MESSAGES
from tacit.peer.wire.transport import SERVICE, open_channel

METHODS = (
    "Hello", "NotifyFinished", "GetStatus", "GetScores", "GetManifest", "AnnounceManifest",
    "CompareDigests", "Agree",
)  # fmt: skip
EXCHANGE = ExchangeId(1, 7, 0)
ROWS = {"theta": torch.arange(6.0)}
StatusCode = grpc.StatusCode


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return ring_of_five(tmp_path_factory.mktemp("callers") / "f")


@pytest.fixture(scope="module")
def other_home(home, tmp_path_factory):
    return same_names_elsewhere(home, tmp_path_factory.mktemp("callers") / "other")


@pytest.fixture
def node(home):
    return IdleNode(home.node("n0"))


@pytest.fixture
def port(node):
    with node.served() as port:
        yield port


def message_of(home, sender):
    return pack(Envelope(home.manifest().federation, sender, "", EXCHANGE), ROWS)


def request_of(manifest):
    return wire.FetchRequest(
        exchange=to_wire(EXCHANGE), manifest_sha256=manifest.hash, saved_tick=-1
    ).SerializeToString()


@contextmanager
def calling(port, home, own):
    """A channel to n0 with some credentials."""
    channel = open_channel(f"127.0.0.1:{port}", "n0", home.manifest().federation, own, home.ca())
    try:
        yield channel
    finally:
        channel.close()


def credentials(home, name):
    return home.operator_credentials() if name == "operator" else home.node(name).credentials()


def outcome(channel, method, raw=b"", **options):
    """The answer of a node, or its refusal."""
    options["timeout"] = TIMEOUT
    try:
        return channel.unary_unary(f"/{SERVICE}/{method}")(raw, **options)
    except grpc.RpcError as problem:
        return SimpleNamespace(code=problem.code(), why=problem.details())


# --- TLS ------------------------------------------------------------------------------------------


def outsiders(home):
    federation = home.manifest().federation
    return {
        "another authority": issue_credentials(create_authority(federation), "n1", federation),
        "expired": expired(home.authority(), "n1", federation),
        "self-made": create_authority(federation),
        "no certificate": None,
    }


@pytest.mark.parametrize("kind", ["another authority", "expired", "self-made", "no certificate"])
def test_outsiders_fail_in_the_handshake(home, node, port, kind):
    own = outsiders(home)[kind]
    assert first_bytes(port, tls(own)) == b""
    line = node.log.wait_for("connection refused", reason="no valid certificate")
    assert (line["level"], line["address"]) == ("warning", "127.0.0.1")
    assert "check its log, its certificate" in line["remedy"]
    name = ("grpc.ssl_target_name_override", server_name("n0", home.manifest().federation))
    pair = (None, None) if own is None else (own.key, own.certificate)
    with grpc.secure_channel(
        f"127.0.0.1:{port}", grpc.ssl_channel_credentials(home.ca(), *pair), [name]
    ) as channel:
        assert {outcome(channel, method).code for method in METHODS} == {StatusCode.UNAVAILABLE}
    node.state.active.outbox.put(message_of(home, "n0"))
    assert fetched(port, own, request_of(home.manifest())) is None
    assert node.rejected() == 0  # no call or request reached the handlers
    assert first_bytes(port, tls(credentials(home, "n1")))
    assert fetched(port, credentials(home, "n1"), request_of(home.manifest()))


@pytest.mark.parametrize("protocol", ["h2", MESSAGES])
def test_tls_1_2_is_refused(home, port, protocol):
    old = tls(credentials(home, "n1"), protocol=protocol)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert first_bytes(port, old) == b""
    assert first_bytes(port, tls(credentials(home, "n1")))


@pytest.mark.parametrize(
    "garbage",
    [
        bytes(100),
        b"GET / HTTP/1.1\r\nHost: n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
        b"\x16\x03\x01\xff\xff" + bytes(range(256)) * 300,
        b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff",
    ],
    ids=["zeros", "HTTP", "HTTP/2 without TLS", "a record that is too long", "half a handshake"],
)
def test_a_connection_with_garbage_instead_of_tls_is_closed(home, port, garbage):
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as raw:
        try:
            raw.sendall(garbage)
            raw.shutdown(socket.SHUT_WR)
            answer = raw.recv(1000)
        except TimeoutError:
            raise
        except OSError:  # closed before the end
            answer = b""
    assert len(answer) <= 7  # a TLS alert at most
    assert first_bytes(port, tls(credentials(home, "n1")))


# --- permissions ----------------------------------------------------------------------------------


def test_another_federation_of_the_same_authority_is_refused_everything(
    home, other_home, node, port
):
    node.state.active.outbox.put(message_of(home, "n0"))
    why = f"not of federation {home.manifest().federation}"
    for name in ("n1", "operator"):
        with calling(port, home, credentials(other_home, name)) as channel:
            for method in METHODS:
                refusal = outcome(channel, method)
                assert refusal.code == StatusCode.PERMISSION_DENIED, method
                assert why in refusal.why, method
        refusal = fetched(port, credentials(other_home, name), request_of(home.manifest()))
        assert refusal.code == "PERMISSION_DENIED"
        assert why in refusal.text
    assert node.rejected("another federation") == node.rejected() == 2 * (len(METHODS) + 1)


@pytest.mark.parametrize("caller", ["n2", "operator"])
def test_only_neighbours_get_messages(home, node, port, caller):
    node.state.active.outbox.put(message_of(home, "n0"))
    request = request_of(home.manifest())
    refusal = fetched(port, credentials(home, caller), request)
    with calling(port, home, credentials(home, caller)) as channel:
        status = wire.Status.FromString(outcome(channel, "GetStatus"))
    assert refusal.code == "PERMISSION_DENIED"
    assert refusal.text == f"{caller} gets no messages from n0 in generation 1"
    assert node.rejected("not a neighbour") == node.rejected() == 1
    assert node.log.lines("rejected", sender=caller, reason="not a neighbour", why=refusal.text)
    assert (status.name, status.rejected) == ("n0", 1)
    assert ROWS["theta"].numpy().tobytes() in fetched(port, credentials(home, "n1"), request)


def test_a_removed_node_gets_only_the_manifest(home, tmp_path):
    later = twin(home, tmp_path / "later")
    remove(later.path, "n1")
    node = IdleNode(later.node("n0"))
    node.state.active.outbox.put(message_of(later, "n0"))
    with node.served() as port, calling(port, later, credentials(later, "n1")) as channel:
        messages = fetched(port, credentials(later, "n1"), request_of(later.manifest()))
        status = outcome(channel, "GetStatus")
        finished = outcome(channel, "NotifyFinished", b"\x08\x02\x10\x64")
        manifest = wire.SignedManifest.FromString(outcome(channel, "GetManifest"))
    assert messages.code == status.code.name == "PERMISSION_DENIED"
    assert messages.text == "n1 gets no messages from n0 in generation 2"
    assert status.why == "n1 is not a member"
    assert finished.code == StatusCode.FAILED_PRECONDITION
    reasons = ("not a neighbour", "not a member", "not finished")
    assert [node.rejected(reason) for reason in reasons] == [1, 1, 1]
    assert manifest.manifest == later.manifest().text


# --- different manifests --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def disagreeing(home, tmp_path_factory):
    """The same federation, but the manifest of n1 has another step size, signed by the operator."""
    copy = twin(home, tmp_path_factory.mktemp("callers") / "disagreeing")
    config = with_keys(home.manifest().config, "algorithm", lr=0.06)
    install(home, copy.node("n1"), *rewritten(home, config=config))
    return copy


@pytest.mark.parametrize(("server", "client"), [("n0", "n1"), ("n1", "n0")])
def test_nodes_with_different_manifests_refuse_each_other_and_say_where_they_differ(
    disagreeing, server, client
):
    answering, asking = IdleNode(disagreeing.node(server)), IdleNode(disagreeing.node(client))
    expected = ExpectedMessage(message_of(disagreeing, server).envelope, ROWS)
    with answering.served() as port, asking.client(server, port) as connection:
        receiving = Receiving(connection, expected)
        refusal = asking.log.wait_for("rejected by neighbour", neighbour=server)
        assert "differs in algorithm" in connection.report
        connection.cancel()
        assert isinstance(receiving.result(), Stopped)
    why = "another manifest for generation 1, which differs in algorithm"
    assert (refusal["code"], refusal["why"]) == ("FAILED_PRECONDITION", why)
    assert answering.rejected("configuration") == answering.rejected() >= 1
    assert answering.log.wait_for("rejected", sender=client, reason="configuration")["why"] == why


MISMATCHES = {
    "protocol 1 there, 4 here": {"protocol": 1},
    "federation 'banks-01234567' there": {"federation": "banks-01234567"},
    "a model of 7 numbers (torch.float32) there, 6 (torch.float32) here": {"parameters": 7},
    "a model of 6 numbers (torch.float64) there": {"dtype": "torch.float64"},
    "another manifest for generation 1, which differs in form": {"manifest_sha256": b"x" * 32},
}


def mismatching_info(node, text):
    info = node.state.node_info()
    for name, value in MISMATCHES[text].items():
        setattr(info, name, value)
    return info.SerializeToString()


@pytest.mark.parametrize("text", MISMATCHES)
def test_a_caller_that_does_not_match_is_refused(home, node, port, text):
    with calling(port, home, credentials(home, "n1")) as channel:
        refusal = outcome(channel, "Hello", mismatching_info(node, text))
        right = node.state.node_info().SerializeToString()
        assert isinstance(outcome(channel, "Hello", right), bytes)
    assert refusal.code == StatusCode.FAILED_PRECONDITION
    assert text in refusal.why
    assert node.rejected("configuration") == node.rejected() == 1


@pytest.mark.parametrize("text", MISMATCHES)
def test_no_messages_are_requested_from_a_neighbour_that_does_not_match(home, node, text):
    infos = iter([mismatching_info(node, text)])
    folder, message = home.node("n1"), message_of(home, "n1")
    with (
        ScriptedServer(
            folder.credentials(), folder.ca(), always(message), Hello=lambda raw: next(infos, raw)
        ) as server,
        node.client("n1", server.port) as client,
    ):
        found = receive(client, ExpectedMessage(message.envelope, ROWS))
        assert torch.equal(found["theta"], ROWS["theta"])
        assert server.calls == ["Hello", "Hello", "stream"]
    assert text in node.log.wait_for("rejected", sender="n1", reason="configuration")["why"]
    assert node.rejected("configuration") == node.rejected() == 1


def test_a_request_under_another_manifest_is_refused(home, disagreeing, node, port):
    node.state.active.outbox.put(message_of(home, "n0"))
    request = request_of(disagreeing.node("n1").manifest())
    refusal = fetched(port, credentials(home, "n1"), request)
    assert refusal.code == "FAILED_PRECONDITION"
    assert node.rejected("configuration") == node.rejected() == 1


# --- servers that impersonate a neighbour ---------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "event", "why", "report"),
    [
        (
            "another authority",
            "certificate rejected",
            "CERTIFICATE_VERIFY_FAILED",
            "is not of our authority",
        ),
        ("expired", "certificate rejected", "certificate has expired", "has expired"),
        ("another node", "neighbour not reached", "Hostname Verification Check", "not reached"),
        (
            "another federation",
            "neighbour not reached",
            "Hostname Verification Check",
            "not reached",
        ),
    ],
)
def test_a_server_that_is_not_the_neighbour_gets_no_call(
    home, other_home, node, kind, event, why, report
):
    own = outsiders(home) | {
        "another node": credentials(home, "n2"),
        "another federation": credentials(other_home, "n1"),
    }
    script = always(message_of(home, "n1"))
    with ScriptedServer(own[kind], home.ca(), script, Hello=lambda raw: raw) as server:
        line, last_report = failed_attempts(home, node, server.port, event)
        assert server.calls == []
    assert why in line["why"]
    assert report in last_report


def test_a_server_of_tls_1_2_gets_no_call(home, node):
    old = tls(credentials(home, "n1"), ssl.PROTOCOL_TLS_SERVER)
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
            except OSError as problem:  # includes TLS errors
                outcomes.append(type(problem))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        port = listening.getsockname()[1]
        line, _ = failed_attempts(home, node, port, "neighbour not reached")
        listening.shutdown(socket.SHUT_RDWR)
    assert "handshake failed" in line["why"]
    assert outcomes
    assert not any(isinstance(one, str) for one in outcomes)


def failed_attempts(home, node, port, event):
    """What is logged and reported about a neighbour that fails again and again."""
    attempts = threading.Semaphore(0)
    with node.client("n1", port) as client:
        expected = ExpectedMessage(message_of(home, "n1").envelope, ROWS)
        receiving = Receiving(client, expected, attempts.release)
        for _ in range(3):
            assert attempts.acquire(timeout=TIMEOUT)
        client.cancel()
        assert isinstance(receiving.result(), Stopped)
    assert node.retries("n1") >= 2
    return node.log.wait_for(event, neighbour="n1"), client.report


# --- false manifests ------------------------------------------------------------------------------


def rewritten_pair(home, **changes):
    manifest, signature = rewritten(home, **changes)
    return manifest.text, signature


@pytest.fixture(scope="module")
def false_manifests(home, other_home):
    """Texts and signatures that are not the next manifest."""
    ours, key = home.manifest(), home.operator_key()
    follows = {"generation": 2, "previous": ours.hash.hex()}
    text, signature = rewritten_pair(home, **follows)
    elsewhere, _ = rewritten_pair(home, federation=other_home.manifest().federation, **follows)
    config = with_keys(ours.config, "algorithm", lr=0.06)
    return {
        "unsigned": (text, b""),
        "signed by a node": (text, sign(credentials(home, "n1").key, text)),
        "signed by the authority": (text, sign(home.authority().key, text)),
        "with another signature": (text, home.signed_manifest()[1]),
        "changed after signing": (text.replace(b"0.05", b"0.06"), signature),
        "of another federation": (elsewhere, sign(key, elsewhere)),
        "of the same generation": rewritten_pair(home, config=config),
        "after another manifest": rewritten_pair(home, generation=2, previous="0" * 64),
        "not a manifest": (b"format = 1", sign(key, b"format = 1")),
        "without its log": (text, signature),
    }


FALSE = [
    "unsigned", "signed by a node", "signed by the authority", "with another signature",
    "changed after signing", "of another federation", "of the same generation",
    "after another manifest", "not a manifest", "without its log",
]  # fmt: skip


@pytest.mark.parametrize("kind", FALSE)
def test_a_false_manifest_is_refused_from_any_caller(home, node, port, false_manifests, kind):
    def contents():
        return {path: path.read_bytes() for path in node.folder.path.iterdir() if path.is_file()}

    before = contents()
    raw = signed_manifest(*false_manifests[kind])
    for name in ("n1", "operator"):
        with calling(port, home, credentials(home, name)) as channel:
            refusal = outcome(channel, "AnnounceManifest", raw)
            manifest = wire.SignedManifest.FromString(outcome(channel, "GetManifest"))
        assert refusal.code == StatusCode.FAILED_PRECONDITION
        assert manifest.manifest == home.manifest().text
    assert node.rejected("manifest") == node.rejected() == 2
    assert node.log.lines("rejected", reason="manifest")
    assert node.state.announced is None
    assert not node.state.interrupted
    assert contents() == before


def test_the_next_manifest_is_accepted_from_any_caller(home, node, port):
    new, signature = rewritten(home, generation=2, previous=home.manifest().hash.hex())
    text, log = new.text, log_naming(home, new)
    with calling(port, home, credentials(home, "n2")) as channel:
        assert outcome(channel, "AnnounceManifest", signed_manifest(text, signature, log)) == b""
    announced = node.state.announced
    assert (announced.manifest.text, announced.signature) == (text, signature)
    assert node.rejected() == 0


# --- slow, large and silent calls -----------------------------------------------------------------


@contextmanager
def slow_proxy(port, seconds):
    """A port that forwards one connection to another port with a delay."""

    def forward(source, sink):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(seconds)
                sink.sendall(data)

    def accept():
        with suppress(OSError):
            near, _ = front.accept()
            far = socket.create_connection(("127.0.0.1", port))
            ends.extend([near, far])
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=forward, args=(source, sink), daemon=True).start()

    ends = []
    with socket.create_server(("127.0.0.1", 0)) as front:
        threading.Thread(target=accept, daemon=True).start()
        yield front.getsockname()[1]
    for end in ends:
        end.close()


def test_a_node_with_high_latency_is_reached_at_the_first_attempt(home, port):
    """A handshake takes several round trips of half a second, as over a satellite."""
    with (
        slow_proxy(port, 0.25) as far,
        calling(far, home, credentials(home, "operator")) as channel,
    ):
        status = wire.Status.FromString(outcome(channel, "GetStatus"))
    assert status.name == "n0"


def test_a_request_that_is_too_large_is_refused_also_if_compressed(home, node, port):
    with calling(port, home, credentials(home, "n1")) as channel:
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            raw = bytes(64 << 20)
            refusal = outcome(channel, "AnnounceManifest", raw, compression=compression)
            assert refusal.code == StatusCode.RESOURCE_EXHAUSTED
            assert "larger than max" in refusal.why
        large = outcome(channel, "GetStatus", b"\x0a\x80\x80\x02" + bytes(1 << 15))
    assert large.code == StatusCode.INVALID_ARGUMENT
    assert node.rejected("malformed") == node.rejected() >= 1


def test_silent_calls_do_not_block_other_callers(home, other_home, node, port):
    """Calls without a request, of a neighbour and of a caller that has no permission at all."""
    end = threading.Event()

    def silence():
        end.wait(TIMEOUT)
        yield from ()

    with (
        calling(port, home, credentials(home, "n4")) as neighbour,
        calling(port, home, credentials(other_home, "n4")) as outsider,
        calling(port, home, credentials(home, "n1")) as other,
    ):
        calls = [
            channel.stream_stream(f"/{SERVICE}/{method}")(silence(), timeout=TIMEOUT)
            for channel in (neighbour, outsider)
            for method in ("GetStatus", "Hello", "GetManifest", "AnnounceManifest") * 4
        ]
        node.log.wait_for("rejected", reason="too many calls", sender="n4")
        node.log.wait_for("rejected", reason="another federation")
        for _ in range(3):
            assert wire.Status.FromString(outcome(other, "GetStatus")).name == "n0"
        end.set()
        for call in calls:
            call.cancel()


def test_cancelled_calls_do_not_exhaust_the_connection(home, node, port):
    """They must end without the garbage collector: a connection may have 16 open calls."""
    end = threading.Event()

    def silence():
        end.wait(TIMEOUT)
        yield from ()

    gc.disable()
    try:
        with calling(port, home, credentials(home, "n1")) as channel:
            for _ in range(50):
                call = channel.stream_unary(f"/{SERVICE}/GetStatus").future(silence())
                call.cancel()
            deadline = time.monotonic() + TIMEOUT / 2
            while not isinstance(found := outcome(channel, "GetStatus"), bytes):
                assert time.monotonic() < deadline, found.why
                time.sleep(0.05)
            assert wire.Status.FromString(found).name == "n0"
    finally:
        gc.enable()
        end.set()


# --- attacks on the operator ----------------------------------------------------------------------


def operator_sees(home, answer):
    """The operator's report about n1, and the answer to an announcement, if n1 answers so."""
    folder, manifest = home.node("n1"), home.manifest()
    with ScriptedServer(
        folder.credentials(), folder.ca(), GetStatus=answer, AnnounceManifest=answer
    ) as server:
        member = dataclasses.replace(manifest.member("n1"), address=f"127.0.0.1:{server.port}")
        alone = dataclasses.replace(manifest, members=(member,))
        client = FederationClient(alone, home.operator_credentials(), home.ca())
        try:
            return client.status(TIMEOUT)[0], client.announce(b"", b"", b"", TIMEOUT)["n1"]
        finally:
            client.close()


def test_a_status_cannot_control_the_terminal(home):
    wild = "\x1b]0;owned\x07\x1b[2J\r\n" + "x" * 10_000
    status = wire.Status(
        name=wild,
        phase=wild,
        problem=wild,
        version=wild,
        certificate_notice=wild,
        waiting_for=[wild] * 1_000,
        step=5,
    )
    report, _ = operator_sees(home, lambda raw: status.SerializeToString())
    shown = report.as_dict()
    texts = [shown[key] for key in ("name", "phase", "problem", "version", "certificate_notice")]
    texts += shown["waiting_for"]
    assert all(text.isprintable() and len(text) < 500 for text in texts)
    assert len(shown["waiting_for"]) < 500
    assert (shown["step"], shown["reached"]) == (5, True)


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x02\xff\xfe", bytes(50)])
def test_a_malformed_status_is_reported(home, raw):
    report, _ = operator_sees(home, lambda _: raw)
    assert (report.status, report.problem) == (None, "its answer cannot be parsed")


def test_a_refusal_cannot_control_the_terminal(home):
    def refuse(raw):
        raise ValueError("\x1b[2J" + "x" * 5_000)  # becomes the text of the refusal

    report, answer = operator_sees(home, refuse)
    for text in (report.problem, answer):
        assert "xxx" in text
        assert text.isprintable()
        assert len(text) < 500
