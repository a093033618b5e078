"""A neighbour that answers with anything but the requested message: rejected, counted, retried."""

import itertools
import socket
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from federations import federation, plan, twin
from hostile import (
    TIMEOUT,
    IdleNode,
    Receiving,
    ScriptedServer,
    always,
    expired,
    forged,
    frame,
    framed,
    header_of,
    once,
    peak_memory,
    receive,
    rewritten,
    sent,
    signed_manifest,
)

from tacit.compression import QSGD
from tacit.config.loading import with_keys
from tacit.core.rows import CodedRows
from tacit.peer.federation.membership import revoke
from tacit.peer.federation.operator import remove
from tacit.peer.federation.signing import create_authority, issue_credentials, sign
from tacit.peer.node import member_channel
from tacit.peer.node.network import PeerNetwork
from tacit.peer.node.node_state import Stopped
from tacit.peer.wire import message_stream, wire_pb2 as wire
from tacit.peer.wire.message_stream import MAX_FRAME_BYTES
from tacit.peer.wire.messages import Envelope, ExchangeId, ExpectedMessage, pack

FEDERATION = "clinics-01234567"
EXCHANGE = ExchangeId(1, 7, 0)
ROWS = {"theta": torch.arange(6.0), "gamma": -torch.arange(6.0)}
MEGABYTE = 1 << 20
RETRIED = ["Hello", "stream", "Hello", "stream"]


def message_of(tensors=None, **changes):
    """The message of n1 that is expected, or another one."""
    envelope = Envelope(FEDERATION, "n1", "", EXCHANGE)
    return pack(replace(envelope, **changes), ROWS if tensors is None else tensors)


MESSAGE = message_of()
FRAME, SIZE = MESSAGE.frame, len(MESSAGE.frame)
OLDER = message_of(exchange=ExchangeId(1, 6, 0))
NEWER = message_of(exchange=ExchangeId(1, 8, 0))
HEADER = frame(header=header_of(MESSAGE))
EXPECTED = ExpectedMessage(MESSAGE.envelope, ROWS)
LAST_TICK = wire.ExchangeId(generation=1, tick=2**64 - 1)


def with_header(data=b"", **changes):
    """The header of the message with changes, and data."""
    return frame(header=header_of(MESSAGE, **changes)) + data


def with_number(index, value):
    """The message with another number, and a correct checksum."""
    rows = ROWS["theta"].clone()
    rows[index] = value
    return forged(MESSAGE, message_of(ROWS | {"theta": rows}).frame)


def with_bytes(old, new):
    """The message with other bytes in its frame, and a correct checksum."""
    assert old in FRAME
    assert len(old) == len(new)
    return forged(MESSAGE, FRAME.replace(old, new))


def under_header(message):
    """The frame of another message under the header of the expected one."""
    return forged(MESSAGE, message.frame)


def notice(**fields):
    return frame(notice=wire.ProgressNotice(**{"generation": 1} | fields))


# What is sent, and the reason for which it is rejected.
ATTACKS = {
    # announced and actual sizes
    "2⁶⁰ bytes": (with_header(size=1 << 60), "size"),
    "2⁶³ bytes": (with_header(size=1 << 63), "size"),
    "2⁶⁴ − 1 bytes": (with_header(size=(1 << 64) - 1), "size"),
    "a byte more announced": (with_header(FRAME + b"x", size=SIZE + 1), "size"),
    "a byte less announced": (with_header(FRAME[:-1], size=SIZE - 1), "size"),
    "nothing announced": (with_header(size=0), "size"),
    # streams that end
    "half a length": (b"\x01\x00", "truncated"),
    "half a header": (HEADER[:-5], "truncated"),
    "a header alone": (HEADER, "truncated"),
    "all but the last byte": (sent(MESSAGE)[:-1], "truncated"),
    # answers
    "an empty answer": (framed(b""), "malformed"),
    "an empty notice, and an empty answer": (
        frame(notice={"generation": 1}) + framed(b""),
        "malformed",
    ),
    "data before the header": (FRAME + HEADER, "malformed"),
    "an unknown answer": (framed(b"\x22\x01a"), "malformed"),
    "a number": (framed(b"\x08\x01"), "malformed"),
    "a length beyond the end": (framed(b"\x12\xff\xff\xff\xff\x07" + FRAME), "malformed"),
    "a length without end": (framed(b"\x12" + b"\xff" * 20), "malformed"),
    "a malformed header": (framed(b"\x12\x03\xff\xff\xff"), "malformed"),
    "a malformed notice": (framed(b"\x0a\x02\x08\x80"), "malformed"),
    "a notice that is not text": (framed(b"\x0a\x04\x1a\x02\xff\xfe"), "malformed"),
    "text": (b"HTTP/1.1 200 OK\r\n\r\n", "malformed"),
    "HTTP/2": (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18), "malformed"),
    "zeros": (bytes(10_000), "malformed"),
    "an answer of 4 GB": (b"\xff" * 4, "malformed"),
    "an answer of a byte too much": (framed(bytes(MAX_FRAME_BYTES + 1)), "malformed"),
    # other messages
    "the previous message": (sent(OLDER), "iteration"),
    "the previous message, new header": (under_header(OLDER), "iteration"),
    "the next message": (sent(NEWER), "iteration"),
    "the next message, new header": (under_header(NEWER), "iteration"),
    "another exchange": (sent(message_of(exchange=ExchangeId(1, 7, 1))), "iteration"),
    "another generation": (sent(message_of(exchange=ExchangeId(2, 7, 0))), "iteration"),
    "the largest iteration": (with_header(exchange=LAST_TICK), "iteration"),
    "a message of n2": (under_header(message_of(sender="n2")), "sender"),
    "another federation": (under_header(message_of(federation="bankers-01234567")), "envelope"),
    # other tensors
    "another name": (with_bytes(b'"gamma"', b'"gamna"'), "tensors"),
    "another shape": (with_bytes(b'"shape":[6]', b'"shape":[5]'), "shape"),
    "another number of axes": (with_bytes(b'"shape":[6]', b'"shape":666'), "shape"),
    "another type": (with_bytes(b'"dtype":"F32"', b'"dtype":"I32"'), "dtype"),
    "other offsets": (with_bytes(b"[0,24]", b"[1,25]"), "malformed"),
    "no JSON": (with_bytes(b'"__metadata__"', bytes(14)), "malformed"),
    "a frame header without end": (forged(MESSAGE, b"\xff" * 8 + FRAME[8:]), "malformed"),
    # numbers
    "NaN": (with_number(0, float("nan")), "not finite"),
    "infinity": (with_number(3, float("inf")), "not finite"),
    "minus infinity": (with_number(5, float("-inf")), "not finite"),
    "a huge number": (with_number(2, -3e38), "too large"),
    # checksums
    "another checksum": (with_header(FRAME, sha256=bytes(32)), "checksum"),
    "no checksum": (with_header(FRAME, sha256=b""), "checksum"),
    "a checksum of 16 kB": (with_header(FRAME, sha256=bytes(MAX_FRAME_BYTES - 40)), "checksum"),
    "a flipped bit": (with_header(FRAME[:-1] + bytes([FRAME[-1] ^ 1])), "checksum"),
    "two headers": (HEADER + HEADER + FRAME, "checksum"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Three nodes, all neighbours of each other."""
    folder = tmp_path_factory.mktemp("neighbours") / "f"
    return federation(folder, plan({"name": "lppa", "lr": 0.05}, clients=3), 3)


@pytest.fixture(scope="module")
def shared_server(home):
    """A scripted server with the key of n1."""
    folder = home.node("n1")
    with ScriptedServer(folder.credentials(), folder.ca()) as server:
        yield server


@pytest.fixture
def server(shared_server):
    shared_server.answers = {"Hello": lambda raw: raw}
    shared_server.calls.clear()
    return shared_server


@pytest.fixture
def node(home):
    return IdleNode(home.node("n0"))


@pytest.fixture
def client(node, server):
    with node.client("n1", server.port) as client:
        yield client


def equal(found, rows=ROWS):
    return list(found) == list(rows) and all(torch.equal(found[tag], rows[tag]) for tag in rows)


@pytest.mark.parametrize("attack", ATTACKS)
def test_anything_else_is_rejected_and_the_message_received(node, server, client, attack):
    raw, reason = ATTACKS[attack]
    server.follow(once([raw], MESSAGE))
    assert equal(receive(client, EXPECTED))
    assert node.rejected(reason) == node.rejected() == 1
    (line,) = node.log.lines("rejected")
    assert (line["sender"], line["reason"], line["level"]) == ("n1", reason, "warning")
    assert 10 < len(line["why"]) < 300
    assert node.retries("n1") == 1
    assert server.calls == RETRIED


@pytest.mark.parametrize("attack", ["the previous message, new header", "a message of n2"])
def test_what_is_not_the_message_is_not_compared_with_what_others_got(
    node, server, client, monkeypatch, attack
):
    recorded = []
    record = lambda name, exchange, sha256: recorded.append((name, exchange, sha256))  # noqa: E731
    monkeypatch.setattr(node.state.witness, "record_received", record)
    server.follow(once([ATTACKS[attack][0]], MESSAGE))
    assert equal(receive(client, EXPECTED))
    assert recorded == [("n1", EXCHANGE, MESSAGE.sha256)]


@pytest.mark.parametrize(
    "attack", ["a flipped bit", "another checksum", "all but the last byte", "two headers"]
)
def test_large_messages_are_checked_alike(node, server, client, monkeypatch, attack):
    """They are hashed in a thread, part by part."""
    monkeypatch.setattr(message_stream, "THREAD_BYTES", 1)
    monkeypatch.setattr(message_stream, "HASHED_BYTES", 10)
    raw, reason = ATTACKS[attack]
    server.follow(once([raw], MESSAGE))
    assert equal(receive(client, EXPECTED))
    assert node.rejected(reason) == node.rejected() == 1


@pytest.mark.parametrize("raw", [b"", notice(tick=3)])
def test_a_stream_that_ends_before_the_message_is_opened_again(node, server, client, raw):
    """As when the neighbour restarts: that is no attack."""
    server.follow(once([raw], MESSAGE))
    assert equal(receive(client, EXPECTED))
    assert node.log.lines("neighbour not reached", neighbour="n1", level="info")
    assert node.rejected() == 0
    assert server.calls == RETRIED


# What follows a message, and why it is rejected as the answer to the next request.
SURPLUS = {
    "a byte, and the end": (b"x", "truncated"),
    "text": (b"more", "malformed"),
    "the message again": (sent(MESSAGE), "iteration"),
    "its header again": (HEADER, "iteration"),
    "a megabyte of noise": (b"\x7f" * MEGABYTE, "malformed"),
    "an unasked false message": (sent(message_of(exchange=ExchangeId(1, 9, 0))), "iteration"),
}


@pytest.mark.parametrize("surplus", SURPLUS)
def test_bytes_after_a_message_are_not_taken_for_the_next_one(node, server, client, surplus):
    more, reason = SURPLUS[surplus]
    next_rows = {tag: rows + 1 for tag, rows in ROWS.items()}
    later = message_of(next_rows, exchange=ExchangeId(1, 8, 0))

    def script(number, requests):
        for request in requests:
            yield sent(MESSAGE if request.exchange.tick == 7 else later)
            if number == 0:
                yield more
                next(requests)
                return

    server.follow(script)
    assert equal(receive(client, EXPECTED))
    assert equal(receive(client, ExpectedMessage(later.envelope, next_rows)), next_rows)
    assert node.rejected(reason) == node.rejected() == 1


def test_a_message_to_another_receiver_is_rejected(node, server, client):
    ours, others = message_of(receiver="n0"), message_of(receiver="n2")
    server.follow(once([forged(ours, others.frame)], ours))
    assert equal(receive(client, ExpectedMessage(ours.envelope, ROWS)))
    assert node.rejected("envelope") == node.rejected() == 1


# --- compressed rows ------------------------------------------------------------------------------


def coded(codec, rows):
    """Rows as an algorithm with compressed messages sends them."""

    def words(purpose, count):
        return torch.arange(count).expand(len(rows), count)

    width, dtype = rows.shape[1], rows.dtype
    return CodedRows(
        rows=codec.received(rows, words),
        size=lambda: codec.size(width, dtype),
        encode=lambda: codec.encode(rows, words),
        decode=lambda wire: codec.decode(wire, width, dtype),
    )


def mix_after(home, node, server, changed, theirs, ours):
    """Mix our rows after n1 has sent changed bytes once, then the right ones."""
    envelope = Envelope(home.manifest().federation, "n1", "", ExchangeId(1, 0, 0))
    wrong, right = (pack(envelope, {"update": row}) for row in (changed, theirs.encode()[0]))
    server.follow(once([sent(wrong)], right))
    with node.client("n1", server.port) as client:
        (mixed,) = PeerNetwork(node.state, [client], lambda *_: None).mix(update=ours)
    return mixed


@pytest.mark.parametrize(("index", "value"), [(0, 250), (1, 9), (2, 9), (4, 7), (5, 200)], ids=str)
def test_bytes_that_the_codec_did_not_write_are_rejected(home, node, server, index, value):
    codec = QSGD(bits=4)
    theirs = coded(codec, torch.linspace(-1, 1, 6)[None])
    wrong = theirs.encode()[0].clone()
    assert wrong[index] != value
    wrong[index] = value
    mixed = mix_after(home, node, server, wrong, theirs, coded(codec, torch.zeros(1, 6)))
    assert node.rejected("codec") == node.rejected() == 1
    weight = home.manifest().graph.weights[0, 1]
    assert torch.allclose(mixed, weight * theirs.rows, atol=1e-6)


def test_a_code_that_decodes_to_infinity_is_rejected(home, node, server):
    theirs = coded(QSGD(bits=4), torch.ones(1, 6))
    wrong = theirs.encode()[0].clone()
    wrong[8:12] = torch.tensor([float("inf")]).view(torch.uint8)  # the scale, after the header
    mix_after(home, node, server, wrong, theirs, theirs)
    assert node.rejected() == 1
    assert node.rejected("not finite") + node.rejected("codec") == 1


# --- notices, Hello and rosters -------------------------------------------------------------------


def test_endless_notices_do_not_keep_the_client_from_stopping(node, server, client):
    notices = threading.Semaphore(0)

    def script(number, requests):
        next(requests)
        for tick in itertools.count():
            yield notice(tick=tick, waiting_for=["x" * 1_000] * 10)

    server.follow(script)
    receiving = Receiving(client, EXPECTED, notices.release)
    for _ in range(2_000):
        assert notices.acquire(timeout=TIMEOUT)
    assert client.report.startswith("at iteration ")
    assert len(client.report) < 200
    client.cancel()
    assert isinstance(receiving.result(), Stopped)
    assert node.rejected() == 0  # a slow neighbour does the same


def test_a_message_is_received_after_many_notices(node, server, client):
    def script(number, requests):
        next(requests)
        yield notice(tick=2**64 - 1) * 3_000
        yield sent(MESSAGE)

    server.follow(script)
    assert equal(receive(client, EXPECTED))
    assert node.rejected() == 0


def test_a_notice_of_another_generation_leads_to_another_hello(node, server, client):
    server.follow(once([notice(generation=2), sent(MESSAGE)], MESSAGE))
    assert equal(receive(client, EXPECTED))
    assert server.calls == RETRIED
    assert not node.state.interrupted


def answer_once(answer):
    """A Hello that answers with other bytes the first time."""
    answers = iter([answer])
    return lambda raw: next(answers, raw)


@pytest.mark.parametrize("answer", [b"\xff\xff", b"\x08", b"\x12\x02\xff\xfe", bytes(100)])
def test_a_malformed_answer_to_hello_is_rejected(node, server, client, answer):
    server.answers["Hello"] = answer_once(answer)
    server.follow(always(MESSAGE))
    assert equal(receive(client, EXPECTED))
    assert node.rejected("malformed") == node.rejected() == 1
    assert server.calls == ["Hello", "Hello", "stream"]


@pytest.fixture(scope="module")
def later(home, tmp_path_factory):
    """The same federation after n2 was removed: generation 2."""
    copy = twin(home, tmp_path_factory.mktemp("neighbours") / "later")
    remove(copy.path, "n2")
    return copy


def info_of(node, generation, manifest=None):
    """The info of a node that claims another generation."""
    info = node.state.node_info()
    info.generation = generation
    if manifest is not None:
        info.manifest_sha256 = manifest.hash
    return info.SerializeToString()


def false_rosters(home, later):
    """Answers to GetManifest that are not a newer roster."""
    new, key = later.manifest(), home.node("n1").credentials().key
    crafted, signature = rewritten(later, config=with_keys(new.config, "algorithm", lr=1.0))
    return {
        "unsigned": signed_manifest(new.text),
        "signed by n1": signed_manifest(crafted.text, sign(key, crafted.text)),
        "changed": signed_manifest(crafted.text + b"\n", signature),
        "empty": signed_manifest(b""),
        "ours": signed_manifest(*home.signed_manifest()),
    }


@pytest.mark.parametrize("kind", ["unsigned", "signed by n1", "changed", "empty", "ours"])
def test_a_false_claim_of_a_newer_roster_is_rejected(home, later, node, server, client, kind):
    server.answers["Hello"] = answer_once(info_of(node, 2, later.manifest()))
    server.answers["GetManifest"] = lambda raw: false_rosters(home, later)[kind]
    server.follow(always(MESSAGE))
    assert equal(receive(client, EXPECTED))
    assert node.state.announced is None
    assert node.rejected("manifest") == node.rejected() == 1
    assert node.log.lines("rejected", sender="n1", reason="manifest")
    assert server.calls == ["Hello", "GetManifest", "Hello", "stream"]


def test_a_malformed_manifest_is_rejected(later, node, server, client):
    server.answers["Hello"] = answer_once(info_of(node, 2, later.manifest()))
    server.answers["GetManifest"] = lambda raw: b"\x0a\xff\xff"
    server.follow(always(MESSAGE))
    assert equal(receive(client, EXPECTED))
    assert node.rejected("malformed") == node.rejected() == 1


def test_an_older_roster_with_a_valid_signature_is_rejected(home, later, server):
    """n1 claims generation 3 to a node of generation 2, and sends the manifest of generation 1."""
    node = IdleNode(later.node("n0"))
    server.answers["Hello"] = lambda raw: info_of(node, 3)
    server.answers["GetManifest"] = lambda raw: signed_manifest(*home.signed_manifest())
    server.follow(always(MESSAGE))
    envelope = replace(MESSAGE.envelope, exchange=ExchangeId(2, 7, 0))
    with node.client("n1", server.port) as client:
        receiving = Receiving(client, ExpectedMessage(envelope, ROWS))
        why = node.log.wait_for("rejected", reason="manifest")["why"]
        client.cancel()
        assert isinstance(receiving.result(), Stopped)
    assert "generation 1" in why
    assert node.state.announced is None
    assert node.folder.manifest().generation == 2


def test_a_newer_roster_with_a_valid_signature_is_accepted(later, node, server, client):
    """The counterpart: without it the tests above would prove little."""
    text, signature, log = later.signed_update()
    info = info_of(node, 2, later.manifest())
    server.answers["Hello"] = lambda raw: info
    server.answers["GetManifest"] = lambda raw: signed_manifest(text, signature, log)
    node.state.on_interrupt(client.cancel)
    assert isinstance(Receiving(client, EXPECTED).result(), Stopped)
    announced = node.state.announced
    assert (announced.manifest.text, announced.signature) == (text, signature)
    assert node.rejected() == 0


# --- memory and time ------------------------------------------------------------------------------


@pytest.mark.parametrize("announced", [SIZE, 1 << 30])
def test_bytes_beyond_the_message_are_not_kept(node, server, client, announced):
    parts = itertools.count()
    later = message_of(exchange=ExchangeId(1, 8, 0))

    def gigabyte(number, requests):
        for request in requests:
            if number > 0:
                yield sent(MESSAGE if request.exchange.tick == 7 else later)
                continue
            yield frame(header=header_of(MESSAGE, size=announced)) + FRAME
            for _ in range(1024):
                next(parts)
                yield bytes(MEGABYTE)

    server.follow(gigabyte)
    with peak_memory() as growth:
        assert equal(receive(client, EXPECTED))
        assert equal(receive(client, ExpectedMessage(later.envelope, ROWS)))
    assert next(parts) < 256  # the client left the stream long before its end
    assert growth() < 100 * MEGABYTE
    assert node.rejected() == 1
    assert node.rejected("size") + node.rejected("malformed") == 1


def test_large_notices_are_not_kept(node, server, client):
    large = notice(waiting_for=["x" * 1_000] * 16)

    def script(number, requests):
        next(requests)
        for _ in range(256):
            yield large * 64  # 256 MB in all
        yield sent(MESSAGE)

    server.follow(script)
    with peak_memory() as growth:
        assert equal(receive(client, EXPECTED))
    assert growth() < 100 * MEGABYTE
    assert node.rejected() == 0


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(message_stream, "SILENCE_SECONDS", 0.2)


@pytest.mark.parametrize("at", [0, 2, len(HEADER), len(HEADER) + SIZE - 1])
def test_a_sender_that_stalls_is_left(node, server, client, impatient, at):
    left = threading.Event()

    def script(number, requests):
        for _ in requests:
            if number > 0:
                yield sent(MESSAGE)
                continue
            yield sent(MESSAGE)[:at]
            next(requests, None)  # the client hangs up
            left.set()
            return

    server.follow(script)
    assert equal(receive(client, EXPECTED))
    assert left.wait(TIMEOUT)
    assert node.rejected("stalled") == node.rejected() == 1
    assert server.calls == RETRIED


@pytest.mark.parametrize("start", [0, len(HEADER)])
def test_a_sender_that_trickles_is_left(node, server, client, impatient, monkeypatch, start):
    """Every byte arrives in time, but the message would take minutes."""
    monkeypatch.setattr(message_stream, "MIN_BYTES_PER_SECOND", 1e9)
    raw, trickled = sent(MESSAGE), itertools.count()

    def script(number, requests):
        for _ in requests:
            if number > 0:
                yield raw
                continue
            yield raw[:start]
            for byte in raw[start:]:
                next(trickled)
                pause.wait(0.05)
                yield bytes([byte])

    pause = threading.Event()
    server.follow(script)
    assert equal(receive(client, EXPECTED))
    assert next(trickled) < len(raw) - start
    assert node.rejected("stalled") == node.rejected() == 1


def test_a_handshake_that_trickles_is_left(home, monkeypatch):
    """The bytes of a record that is announced as large, one at a time."""
    monkeypatch.setattr(message_stream, "CONNECT_SECONDS", 0.3)
    pause, trickled, own = threading.Event(), itertools.count(), home.node("n0").credentials()

    def trickle(listening):
        raw, _ = listening.accept()
        with raw, suppress(OSError):
            raw.recv(MEGABYTE)
            for byte in b"\x16\x03\x03\x3f\xff" + bytes(400):
                raw.sendall(bytes([byte]))
                next(trickled)
                pause.wait(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=trickle, args=[listening])
        thread.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(OSError, match="timed out"):
            message_stream.open_stream(address, "n1", FEDERATION, own, home.ca())
        thread.join(TIMEOUT)
    assert next(trickled) < 400


def test_a_refusal_cannot_flood_the_log_or_control_the_terminal(node, server, client):
    """Each refusal has another code and a long text, as if none were the repetition of another."""
    wild = "\x1b]0;owned\x07\x1b[2J\r\n" + "x" * 10_000

    def script(number, requests):
        for _ in requests:
            if number < 6:
                yield frame(refusal=wire.Refusal(code=f"{number}" * 2_000, text=wild))
                return
            yield sent(MESSAGE)

    server.follow(script)
    assert equal(receive(client, EXPECTED))
    (line,) = node.log.lines("rejected by neighbour")
    assert line["code"] == "UNKNOWN"
    assert len(line["why"]) <= 500
    assert node.retries("n1") == 6


def test_a_refusal_with_a_known_code_is_logged(node, server, client):
    refusal = wire.Refusal(code="OUT_OF_RANGE", text="n0 has saved it")
    server.follow(once([frame(refusal=refusal)], MESSAGE))
    assert equal(receive(client, EXPECTED))
    (line,) = node.log.lines("rejected by neighbour")
    assert (line["code"], line["why"]) == ("OUT_OF_RANGE", "n0 has saved it")


# --- streams with another certificate than the calls ----------------------------------------------


@pytest.mark.parametrize("kind", ["another node", "another authority", "expired", "self-made"])
def test_a_stream_with_another_certificate_gets_no_request(home, node, kind):
    federation, n1 = home.manifest().federation, home.node("n1")
    own = {
        "another node": home.node("n2").credentials(),
        "another authority": issue_credentials(create_authority(federation), "n1", federation),
        "expired": expired(home.authority(), "n1", federation),
        "self-made": create_authority(federation),
    }[kind]
    requested, attempts = [], threading.Semaphore(0)

    def script(number, requests):
        for request in requests:
            requested.append(request)
            yield sent(MESSAGE)

    with (
        ScriptedServer(
            n1.credentials(), n1.ca(), script, stream_own=own, Hello=lambda raw: raw
        ) as server,
        node.client("n1", server.port) as client,
    ):
        receiving = Receiving(client, EXPECTED, attempts.release)
        for _ in range(3):
            assert attempts.acquire(timeout=TIMEOUT)
        client.cancel()
        assert isinstance(receiving.result(), Stopped)
    line = node.log.wait_for("certificate rejected", neighbour="n1")
    assert "CERTIFICATE_VERIFY_FAILED" in line["why"]
    assert requested == []


@pytest.fixture
def places(tmp_path):
    """A federation's folder, and a copy of it for the nodes, which learn of changes later."""
    config = plan({"name": "lppa", "lr": 0.05}, clients=3)
    operator = federation(tmp_path / "operator", config, 3)
    return operator, twin(operator, tmp_path / "nodes")


def test_a_stream_ends_when_the_certificate_of_its_sender_is_revoked(places):
    """Also if another thread has used the new log for a call before the stream is ended."""
    operator, nodes = places
    node, n1 = IdleNode(nodes.node("n0")), nodes.node("n1")
    asked, ended = threading.Event(), threading.Event()

    def script(number, requests):
        next(requests)
        asked.set()
        next(requests, None)
        ended.set()
        yield sent(MESSAGE)

    with (
        ScriptedServer(n1.credentials(), n1.ca(), script, Hello=lambda raw: raw) as server,
        node.client("n1", server.port) as client,
    ):
        # Called before the client's own subscriber, which ends the stream.
        node.state.changes._subscribers.insert(
            0, lambda _: client.compare_digests(wire.DigestRequest())
        )
        receiving = Receiving(client, EXPECTED)
        assert asked.wait(TIMEOUT)
        revoke(operator.path, "n1", keep=True)
        node.state.changes.update(operator.log().text)
        assert ended.wait(TIMEOUT)
        assert "revoked" in node.log.wait_for("rejected", sender="n1", reason="revoked")["why"]
        client.cancel()
        assert isinstance(receiving.result(), Stopped)
    assert server.calls == ["Hello", "stream"]
    assert node.rejected("stalled") == 0  # it was ended at once


def test_a_stream_that_is_opened_during_a_revocation_is_not_used(places, monkeypatch):
    operator, nodes = places
    node, n1 = IdleNode(nodes.node("n0")), nodes.node("n1")
    open_stream = member_channel.open_stream

    def revoke_meanwhile(*arguments):
        stream = open_stream(*arguments)
        revoke(operator.path, "n1", keep=True)
        node.state.changes.update(operator.log().text)
        return stream

    monkeypatch.setattr(member_channel, "open_stream", revoke_meanwhile)
    with (
        ScriptedServer(n1.credentials(), n1.ca(), always(MESSAGE), Hello=lambda raw: raw) as server,
        node.client("n1", server.port) as client,
    ):
        receiving = Receiving(client, EXPECTED)
        node.log.wait_for("rejected", sender="n1", reason="revoked")
        client.cancel()
        assert isinstance(receiving.result(), Stopped)
