"""A neighbour that answers with anything but the letter that was asked for: refused, counted, logged, asked again."""

import itertools
import threading
from dataclasses import replace

import pytest
import torch
from federations import federation, plan, twin
from hostile import (
    PATIENCE,
    Impostor,
    Receiving,
    Seat,
    always,
    forged,
    grpc,
    head_of,
    once,
    peak_memory,
    piece,
    plain,
    receive,
    rewritten,
)
from tacit.peer.federation.identity import sign

from tacit.compression import QSGD
from tacit.config.loading import with_keys
from tacit.core.rows import CodedRows
from tacit.peer.federation.keys import sign
from tacit.peer.federation.operator import remove
from tacit.peer.node.network import PeerNetwork
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.chunks import split_message, notice_chunk
from tacit.peer.wire.messages import ExchangeId, Envelope, ExpectedMessage, pack
from tacit.peer.node.neighbour_client import Stopped

FEDERATION = "clinics-01234567"
ADDRESS = ExchangeId(1, 7, 0)
ROWS = {"theta": torch.arange(6.0), "gamma": -torch.arange(6.0)}
MEGABYTE = 1 << 20


def letter_of(tensors=None, **changes):
    """The letter of n1 that is expected, or another one."""
    envelope = Envelope(FEDERATION, "n1", "", ADDRESS)
    return pack(replace(envelope, **changes), ROWS if tensors is None else tensors)


LETTER = letter_of()
FRAME, SIZE = LETTER.frame, len(LETTER.frame)
OLDER, NEWER = letter_of(address=ExchangeId(1, 6, 0)), letter_of(address=ExchangeId(1, 8, 0))
PIECES = list(split_message(LETTER, 64))
HEAD = piece(header=head_of(LETTER))
EXPECTED = ExpectedMessage(LETTER.envelope, ROWS)


def with_number(at, value):
    """The letter with another number, and a checksum that fits."""
    rows = ROWS["theta"].clone()
    rows[at] = value
    return forged(LETTER, letter_of(ROWS | {"theta": rows}).frame)


def with_header(old, new):
    """The letter that says something else of itself in as many bytes, and a checksum that fits."""
    assert old in FRAME
    assert len(old) == len(new)
    return forged(LETTER, FRAME.replace(old, new))


ATTACKS = {
    # what it announces, and what follows
    "2⁶⁰ bytes": ([piece(header=head_of(LETTER, size=1 << 60))], "size"),
    "2⁶⁴ − 1 bytes": ([piece(header=head_of(LETTER, size=(1 << 64) - 1))], "size"),
    "a byte more announced": (
        [piece(header=head_of(LETTER, size=SIZE + 1), data=FRAME + b"x")],
        "size",
    ),
    "a byte less announced": (
        [piece(header=head_of(LETTER, size=SIZE - 1), data=FRAME[:-1])],
        "size",
    ),
    "nothing announced": ([piece(header=head_of(LETTER, size=0))], "size"),
    "a byte more than announced": ([piece(header=head_of(LETTER), data=FRAME + b"x")], "size"),
    "a piece more than announced": ([*PIECES[:-1], piece(data=bytes(1 << 16))], "size"),
    # streams that end
    "nothing": ([], "truncated"),
    "a head alone": ([HEAD], "truncated"),
    "all but the last piece": (PIECES[:-1], "truncated"),
    "half, and a notice": (
        [*PIECES[:2], notice_chunk(wire.ProgressNotice(generation=1, tick=3))],
        "truncated",
    ),
    # pieces
    "an empty message": ([b""], "malformed"),
    "a piece without bytes": ([HEAD, b"\x12\x00"], "malformed"),
    "bytes before the head": ([piece(data=FRAME), HEAD], "malformed"),
    "two heads": ([HEAD, HEAD], "malformed"),
    "two heads in a message": ([HEAD + HEAD], "malformed"),
    "bytes twice in a message": ([PIECES[0] + PIECES[1]], "malformed"),
    "an unknown field": ([b"\x22\x01a" + HEAD], "malformed"),
    "a number": ([b"\x08\x01"], "malformed"),
    "a length beyond the end": ([b"\x12\xff\xff\xff\xff\x07" + FRAME], "malformed"),
    "a length without end": ([b"\x12" + b"\xff" * 20], "malformed"),
    "a head that is none": ([b"\x0a\x03\xff\xff\xff"], "malformed"),
    "a notice that is none": ([b"\x1a\x02\x08\x80"], "malformed"),
    "a notice that is no text": ([b"\x1a\x04\x1a\x02\xff\xfe"], "malformed"),
    "text": ([b"HTTP/1.1 200 OK\r\n\r\n"], "malformed"),
    "zeros": ([bytes(10_000)], "malformed"),
    # other letters
    "the letter before": (list(split_message(OLDER, 64)), "iteration"),
    "the letter before, new head": ([forged(LETTER, OLDER.frame)], "iteration"),
    "the letter after": (list(split_message(NEWER, 64)), "iteration"),
    "the letter after, new head": ([forged(LETTER, NEWER.frame)], "iteration"),
    "another exchange": (list(split_message(letter_of(address=ExchangeId(1, 7, 1)), 64)), "iteration"),
    "another generation": (list(split_message(letter_of(address=ExchangeId(2, 7, 0)), 64)), "iteration"),
    "an iteration beyond all": (
        [piece(header=head_of(LETTER, address=wire.ExchangeId(generation=1, tick=2**64 - 1)))],
        "iteration",
    ),
    "the letter of n2": ([forged(LETTER, letter_of(sender="n2").frame)], "sender"),
    "of another federation": (
        [forged(LETTER, letter_of(federation="bankers-01234567").frame)],
        "envelope",
    ),
    # other tensors
    "another name": ([with_header(b'"gamma"', b'"gamna"')], "tensors"),
    "another shape": ([with_header(b'"shape":[6]', b'"shape":[5]')], "shape"),
    "another number of axes": ([with_header(b'"shape":[6]', b'"shape":666')], "shape"),
    "another type": ([with_header(b'"dtype":"F32"', b'"dtype":"I32"')], "dtype"),
    "tensors elsewhere": ([with_header(b"[0,24]", b"[1,25]")], "malformed"),
    "no JSON": ([with_header(b'"__metadata__"', bytes(14))], "malformed"),
    "a header without end": ([forged(LETTER, b"\xff" * 8 + FRAME[8:])], "malformed"),
    # numbers
    "NaN": ([with_number(0, float("nan"))], "not finite"),
    "infinity": ([with_number(3, float("inf"))], "not finite"),
    "minus infinity": ([with_number(5, float("-inf"))], "not finite"),
    # checksums
    "another checksum": ([piece(header=head_of(LETTER, sha256=bytes(32)), data=FRAME)], "checksum"),
    "no checksum": ([piece(header=head_of(LETTER, sha256=b""), data=FRAME)], "checksum"),
    "a checksum of 8 MB": (
        [piece(header=head_of(LETTER, sha256=bytes(8 * MEGABYTE)), data=FRAME)],
        "checksum",
    ),
    "a flipped bit": (
        [piece(header=head_of(LETTER), data=FRAME[:-1] + bytes([FRAME[-1] ^ 1]))],
        "checksum",
    ),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Three nodes, all neighbours of each other."""
    return federation(
        tmp_path_factory.mktemp("neighbours") / "f",
        plan({"name": "lppa", "lr": 0.05}, clients=3),
        3,
    )


@pytest.fixture(scope="module")
def impostor(home):
    """Whoever holds the key of n1."""
    node = home.node("n1")
    with Impostor(node.credentials(), node.ca(), None, None) as other:
        yield other


@pytest.fixture
def seat(home, impostor):
    impostor.hello, impostor.roster = (lambda raw: raw), None
    impostor.compression = grpc.Compression.NoCompression
    impostor.asked.clear()
    return Seat(home.node("n0"))


@pytest.fixture
def line(seat, impostor):
    with seat.line("n1", impostor.port) as line:
        yield line


def right(found, rows=ROWS):
    return list(found) == list(rows) and all(torch.equal(found[tag], rows[tag]) for tag in rows)


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_not_the_letter_is_refused_and_the_letter_taken(seat, impostor, line, attack):
    messages, reason = ATTACKS[attack]
    impostor.begin(once(messages, LETTER))
    assert right(receive(line, ADDRESS, EXPECTED))
    assert seat.rejected(reason) == seat.rejected() == 1
    (logged,) = seat.log.lines("rejected")
    assert (logged["sender"], logged["reason"], logged["level"]) == ("n1", reason, "warning")
    assert 10 < len(logged["why"]) < 300
    assert seat.retries("n1") == 1
    assert impostor.asked == ["hello", "letters", "hello", "letters"]


def test_an_attack_before_every_letter_does_not_wear_the_line_out(seat, impostor, line):
    attacks = [messages for messages, _ in ATTACKS.values()][::3]
    letters = {
        tick: letter_of({"x": torch.full((3,), float(tick))}, address=ExchangeId(1, tick, 0))
        for tick in range(len(attacks))
    }
    spared = set()

    def script(number, wants):
        for raw in wants:
            tick = wire.FetchRequest.FromString(raw).exchange.tick
            if tick not in spared:
                spared.add(tick)
                yield from attacks[tick]
                return
            yield from split_message(letters[tick], 64)

    impostor.begin(script)
    for letter in letters.values():
        tick, like = letter.envelope.exchange.tick, {"x": torch.empty(3)}
        found = receive(line, letter.envelope.exchange, ExpectedMessage(letter.envelope, like))
        assert right(found, {"x": torch.full((3,), float(tick))})
    assert seat.rejected() == seat.retries("n1") == len(attacks)


def test_what_follows_a_whole_letter_is_refused_with_the_next(seat, impostor, line):
    """More than was asked for: leftovers in the stream must not pass for what is asked for next."""
    next_rows = {tag: rows + 1 for tag, rows in ROWS.items()}
    later = letter_of(next_rows, address=ExchangeId(1, 8, 0))

    def script(number, wants):
        for raw in wants:
            address = wire.FetchRequest.FromString(raw).exchange
            yield from split_message(LETTER if address.tick == 7 else later, 1 << 20)
            if number == 0:
                yield from [piece(data=b"more"), *split_message(LETTER, 64)]

    impostor.begin(script)
    assert right(receive(line, ADDRESS, EXPECTED))
    found = receive(line, later.envelope.exchange, ExpectedMessage(later.envelope, next_rows))
    assert right(found, next_rows)
    assert seat.rejected("malformed") == seat.rejected() == 1


def test_a_letter_to_another_receiver_is_refused(home, seat, impostor, line):
    mine, others = letter_of(receiver="n0"), letter_of(receiver="n2")
    impostor.begin(once([forged(mine, others.frame)], mine))
    assert right(receive(line, ADDRESS, ExpectedMessage(mine.envelope, ROWS)))
    assert seat.rejected("envelope") == seat.rejected() == 1


# --- bytes of a codec -----------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("at", "value"), [(0, 250), (1, 9), (2, 9), (4, 7), (5, 200)], ids=lambda number: str(number)
)
def test_bytes_that_the_codec_did_not_write_are_refused(home, seat, impostor, at, value):
    codec, theirs = QSGD(bits=4), torch.linspace(-1, 1, 6)[None]
    sent = coded(codec, theirs)
    envelope = Envelope(home.manifest().federation, "n1", "", ExchangeId(1, 0, 0))
    good = pack(envelope, {"update": sent.encode()[0]})
    wrong = sent.encode()[0].clone()
    assert wrong[at] != value
    wrong[at] = value
    impostor.begin(once(split_message(pack(envelope, {"update": wrong}), 64), good))
    ours = coded(codec, torch.zeros(1, 6))
    with seat.line("n1", impostor.port) as line:
        network = PeerNetwork(seat.state, [line])
        (mixed,) = network.mix(update=ours)
    assert seat.rejected("codec") == seat.rejected() == 1
    weight = home.manifest().graph.weights[0, 1]
    assert torch.allclose(mixed, weight * sent.rows, atol=1e-6)


def test_a_code_that_stands_for_infinity_is_refused(home, seat, impostor):
    codec = QSGD(bits=4)
    sent = coded(codec, torch.ones(1, 6))
    envelope = Envelope(home.manifest().federation, "n1", "", ExchangeId(1, 0, 0))
    wrong = sent.encode()[0].clone()
    wrong[8:12] = torch.tensor([float("inf")]).view(torch.uint8)  # the scale, behind the header
    impostor.begin(
        once(
            split_message(pack(envelope, {"update": wrong}), 64), pack(envelope, {"update": sent.encode()[0]})
        )
    )
    with seat.line("n1", impostor.port) as line:
        PeerNetwork(seat.state, [line]).mix(update=sent)
    assert seat.rejected() == 1
    assert seat.rejected("not finite") + seat.rejected("codec") == 1


# --- notices, greetings and rosters ---------------------------------------------------------------------------


def test_notices_without_end_keep_us_waiting_but_not_from_leaving(seat, impostor, line):
    said = threading.Semaphore(0)

    def script(number, wants):
        next(wants)
        for tick in itertools.count():
            yield notice_chunk(
                wire.ProgressNotice(generation=1, tick=tick, waiting_for=["x" * 10_000] * 10)
            )

    impostor.begin(script)
    receiving = Receiving(line, ADDRESS, EXPECTED, plain, said.release)
    for _ in range(2_000):
        assert said.acquire(timeout=PATIENCE)
    assert line.heard.startswith("at iteration ")
    assert len(line.heard) < 200
    line.cancel()
    assert isinstance(receiving.ended(), Stopped)
    assert seat.rejected() == 0  # a slow neighbour says the same


def test_the_letter_is_taken_after_many_notices(seat, impostor, line):
    notices = [notice_chunk(wire.ProgressNotice(generation=1, tick=2**64 - 1))] * 3_000

    def script(number, wants):
        next(wants)
        yield from [*notices, *PIECES[:2], *notices[:10], *PIECES[2:]]

    impostor.begin(script)
    assert right(receive(line, ADDRESS, EXPECTED))
    assert seat.rejected() == 0


def test_a_notice_of_another_generation_leads_back_to_the_greeting(seat, impostor, line):
    impostor.begin(once([notice_chunk(wire.ProgressNotice(generation=2, tick=0)), *PIECES], LETTER))
    assert right(receive(line, ADDRESS, EXPECTED))
    assert impostor.asked == ["hello", "letters", "hello", "letters"]
    assert not seat.state.interrupted


@pytest.mark.parametrize("answer", [b"\xff\xff", b"\x08", b"\x12\x02\xff\xfe", bytes(100)])
def test_an_answer_to_hello_that_is_no_greeting_is_refused(seat, impostor, line, answer):
    answers = iter([answer])
    impostor.hello = lambda raw: next(answers, raw)
    impostor.begin(always(LETTER))
    assert right(receive(line, ADDRESS, EXPECTED))
    assert seat.rejected("malformed") == seat.rejected() == 1
    assert impostor.asked == ["hello", "hello", "letters"]


@pytest.fixture(scope="module")
def later(home, tmp_path_factory):
    """The same federation after n2 has left: generation 2."""
    copy = twin(home, tmp_path_factory.mktemp("neighbours") / "later")
    remove(copy.path, "n2")
    return copy


def rosters(home, later):
    """What is no newer roster, although the neighbour says that it has one; and by which reason it is refused."""
    new, key = later.manifest(), home.node("n1").credentials().key
    crafted, signature = rewritten(later, config=with_keys(new.config, "algorithm", lr=1.0))
    return {
        "unsigned": wire.SignedManifest(manifest=new.text),
        "signed by n1": wire.SignedManifest(
            manifest=crafted.text, signature=sign(key, crafted.text)
        ),
        "changed": wire.SignedManifest(manifest=crafted.text + b"\n", signature=signature),
        "empty": wire.SignedManifest(),
        "ours": wire.SignedManifest(manifest=home.signed_manifest()[0], signature=home.signed_manifest()[1]),
    }


@pytest.mark.parametrize("kind", ["unsigned", "signed by n1", "changed", "empty", "ours"])
def test_a_neighbour_that_pretends_to_know_a_newer_roster_is_refused(
    home, later, seat, impostor, line, kind
):
    greeting = seat.state.node_info()
    greeting.generation, greeting.manifest = 2, later.manifest().hash
    greetings = iter([greeting.SerializeToString()])
    impostor.hello = lambda raw: next(greetings, raw)
    impostor.roster = lambda raw: rosters(home, later)[kind].SerializeToString()
    impostor.begin(always(LETTER))
    assert right(receive(line, ADDRESS, EXPECTED))
    assert seat.state.announced is None
    assert seat.rejected("manifest") == seat.rejected() == 1
    assert seat.log.lines("rejected", sender="n1", reason="manifest")
    assert impostor.asked == ["hello", "roster", "hello", "letters"]


def test_an_answer_to_roster_that_is_no_manifest_is_refused(later, seat, impostor, line):
    greeting = seat.state.node_info()
    greeting.generation, greeting.manifest = 2, later.manifest().hash
    greetings = iter([greeting.SerializeToString()])
    impostor.hello = lambda raw: next(greetings, raw)
    impostor.roster = lambda raw: b"\x0a\xff\xff"
    impostor.begin(always(LETTER))
    assert right(receive(line, ADDRESS, EXPECTED))
    assert seat.rejected("malformed") == seat.rejected() == 1


def test_an_older_roster_that_was_once_signed_is_refused(home, later, impostor):
    """A node of generation 2, told that there is a generation 3, is given that of generation 1."""
    seat = Seat(later.node("n0"))
    greeting = seat.state.node_info()
    greeting.generation = 3
    text, signature = home.signed_manifest()
    impostor.hello = lambda raw: greeting.SerializeToString()
    impostor.roster = lambda raw: wire.SignedManifest(
        manifest=text, signature=signature
    ).SerializeToString()
    impostor.begin(always(LETTER))
    with seat.line("n1", impostor.port) as line:
        receiving = Receiving(line, ExchangeId(2, 7, 0), EXPECTED)
        why = seat.log.wait_for("rejected", reason="manifest")["why"]
        line.cancel()
        assert isinstance(receiving.ended(), Stopped)
    assert "generation 1, ours of 2" in why
    assert seat.state.announced is None
    assert seat.node.manifest().generation == 2


def test_a_true_newer_roster_is_believed_whoever_brings_it(home, later, seat, impostor, line):
    """The counterpart, without which the tests above would prove little."""
    greeting = seat.state.node_info()
    greeting.generation, greeting.manifest = 2, later.manifest().hash
    text, signature = later.signed_manifest()
    impostor.hello = lambda raw: greeting.SerializeToString()
    impostor.roster = lambda raw: wire.SignedManifest(
        manifest=text, signature=signature
    ).SerializeToString()
    seat.state.on_interrupt(line.cancel)
    receiving = Receiving(line, ADDRESS, EXPECTED)
    assert isinstance(receiving.ended(), Stopped)
    assert (seat.state.announced.text, seat.state.announced.signature) == (text, signature)
    assert seat.rejected() == 0


# --- memory ---------------------------------------------------------------------------------------------------


def gigabyte(begin, part):
    """A script: a gigabyte to the first Want, in parts; how many of them were fetched."""
    fetched = itertools.count()

    def script(number, wants):
        for _ in wants:
            if number > 0:
                yield from PIECES
                continue
            yield from begin
            for _ in range(1024):
                next(fetched)
                yield part

    return script, fetched


def test_bytes_beyond_the_letter_are_not_kept(seat, impostor, line):
    script, fetched = gigabyte([HEAD], piece(data=bytes(MEGABYTE)))
    impostor.begin(script)
    with peak_memory() as grown:
        assert right(receive(line, ADDRESS, EXPECTED))
    assert next(fetched) < 256  # the stream was left long before its end
    assert grown() < 100 * MEGABYTE
    assert seat.rejected("size") == seat.rejected() == 1


def test_large_notices_are_not_kept(seat, impostor, line):
    notice = notice_chunk(wire.ProgressNotice(generation=1, waiting_for=["x" * MEGABYTE] * 8))

    def script(number, wants):
        next(wants)
        for _ in range(48):  # 384 MB
            yield notice
        yield from PIECES

    impostor.begin(script)
    with peak_memory() as grown:
        assert right(receive(line, ADDRESS, EXPECTED))
    assert grown() < 250 * MEGABYTE
    assert seat.rejected() == 0


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_message_beyond_the_limit_is_not_even_read(seat, impostor, line, compression):
    """Also one that is small as it travels: a checksum that would let the letter pass is of no avail."""
    impostor.compression = compression
    impostor.begin(once([piece(header=head_of(LETTER), data=FRAME) + bytes(64 * MEGABYTE)], LETTER))
    assert right(receive(line, ADDRESS, EXPECTED))
    assert "larger than max" in seat.log.wait_for("rejected by neighbour", neighbour="n1")["why"]
    assert seat.retries("n1") == 1
