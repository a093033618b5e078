"""A relay with real TLS connections, but without nodes: who may use it, for what, and how much."""

import asyncio
import io
import json
import random
import shutil
import socket
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from tacit.config.loading import make_config
from tacit.core.errors import Misuse, NotReady
from tacit.peer.federation.change_log import ChangeLog
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.membership import change_address, revoke
from tacit.peer.federation.operator import create, remove
from tacit.peer.federation.relay_changes import add_relay, remove_relay
from tacit.peer.federation.relays import RelayFolder
from tacit.peer.federation.signing import create_authority, issue_credentials
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.relay import server
from tacit.peer.relay.client import RelayRefused, RelayUser
from tacit.peer.relay.dialer import RelayDialer
from tacit.peer.relay.forwarding import BUFFER_BYTES
from tacit.peer.relay.frames import MAX_FRAME_BYTES, read_frame, write_frame
from tacit.peer.relay.relay import RelayProcess
from tacit.peer.wire import gate

CONFIG = make_config({"algorithm": {"name": "dsgt", "lr": 0.1}, "run": {"iterations_per_round": 5}})
LONG = 60.0


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    nodes = dict.fromkeys("abcd", "outgoing")
    home = create(tmp_path_factory.mktemp("relays") / "f", "clinics", nodes, CONFIG)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    add_relay(home.path, "r1", f"127.0.0.1:{port}")
    return home


@pytest.fixture
def home(original, tmp_path):
    """The operator's folder."""
    return FederationFolder(shutil.copytree(original.path, tmp_path / "operator"))


@pytest.fixture
def running(home, tmp_path):
    """A relay on another machine than the operator's, and its log."""
    folder = RelayFolder(shutil.copytree(home.path / "relays" / "r1", tmp_path / "relay"))
    with run_relay(folder) as (process, text):
        yield process, text


@contextmanager
def run_relay(folder):
    text = io.StringIO()
    process = RelayProcess(folder, EventLog(text, "r1"))
    thread = threading.Thread(target=process.run)
    thread.start()
    try:
        while thread.is_alive() and "started" not in text.getvalue():
            time.sleep(0.01)
        yield process, text
    finally:
        process.stop()
        thread.join()


def user(home, name, own=None, log=None):
    node = home.node(name)
    own = own or (home.operator_credentials() if name == "operator" else node.credentials())
    log = log or home.log()
    return RelayUser(home.manifest().federation, home.ca(), lambda: own, lambda: log)


def relay_of(home):
    return user(home, "a").relays()[0]


def play(scene):
    """Run a coroutine, but not for ever."""

    async def limited():
        async with asyncio.timeout(LONG):
            return await scene

    return asyncio.run(limited())


async def refusal(request):
    """Why a relay refuses a request."""
    with pytest.raises(RelayRefused) as caught:
        await request
    return caught.value.reason


async def paired(home, caller="a", member="b"):
    """Two ends of a tunnel, the caller's first."""
    relay = relay_of(home)
    waiting = await user(home, member).wait(relay)
    calling = asyncio.ensure_future(user(home, caller).connect(relay, member))
    while (frame := await read_frame(waiting.reader, LONG)) == {"kind": "ping"}:
        pass
    assert frame == {"kind": "connected", "caller": caller}
    await write_frame(waiting.writer, "ready")
    return await calling, waiting


def events(text, event):
    lines = map(json.loads, text.getvalue().splitlines())
    return [line for line in lines if line["event"] == event]


def test_a_relay_forwards_bytes_in_both_directions_with_bounded_memory(home, running):
    async def scene():
        one, other = await paired(home)
        other.writer.write(b"answer")
        assert await one.reader.readexactly(6) == b"answer"
        data = random.Random(1).randbytes(1 << 16)
        # The other end does not read. What was accepted is in the buffers of sockets.
        accepted = 0
        while True:
            one.writer.write(data)
            try:
                async with asyncio.timeout(1.0):
                    await one.writer.drain()
            except TimeoutError:
                break
            accepted += len(data)
        [tunnel] = running[0].server.tunnels.items()
        for each in (tunnel.caller, tunnel.member):
            assert each.writer.transport.get_write_buffer_size() < 8 * BUFFER_BYTES
            assert len(each.reader._buffer) < 8 * BUFFER_BYTES
        found = await other.reader.readexactly(accepted)
        assert found == data * (accepted // len(data))
        one.writer.transport.abort()
        await read_to_end(other.reader)

    play(scene())
    assert running[0]._metrics.total("tacit_relay_forwarded_bytes_total") > 1 << 16


async def read_to_end(reader):
    size = 0
    try:
        while data := await reader.read(1 << 16):
            size += len(data)
    except OSError:
        pass
    return size


def test_what_a_relay_refuses(home, running):
    async def scene():
        relay = relay_of(home)
        assert await refusal(user(home, "a").connect(relay, "nobody")) == "unknown"
        assert await refusal(user(home, "a").connect(relay, "r1")) == "unknown"
        assert await refusal(user(home, "a").connect(relay, "operator")) == "unknown"
        assert await refusal(user(home, "a").connect(relay, "b")) == "absent"
        # The operator may query members, but is none.
        assert await refusal(user(home, "operator").wait(relay)) == "malformed"
        own = RelayFolder(home.path / "relays" / "r1").credentials()
        assert await refusal(user(home, "a", own).wait(relay)) == "not a member"
        assert await refusal(user(home, "a", own).connect(relay, "b")) == "not a member"

    play(scene())
    assert {line["reason"] for line in events(running[1], "refused")} == {
        "unknown", "malformed", "not a member"
    }  # fmt: skip


def test_a_stranger_gets_no_answer(home, running):
    """Its certificate is of another authority, although with the right names."""
    federation = home.manifest().federation
    own = issue_credentials(create_authority(federation), "b", federation)

    async def scene():
        stranger = user(home, "b", own)
        for request in (
            stranger.wait(relay_of(home)),
            stranger.connect(relay_of(home), "a"),
            stranger.send_log(relay_of(home)),
        ):
            # Depending on the moment, the alert of TLS or a closed connection.
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await request

    play(scene())
    assert running[0]._metrics.total("tacit_relay_refused_total") == 0


def test_another_federation_of_the_same_authority_is_refused(home, running, tmp_path):
    signer = home.authority()
    own = issue_credentials(signer, "b", "clinics-01234567")

    async def scene():
        assert await refusal(user(home, "b", own).wait(relay_of(home))) == "another federation"

    play(scene())


def test_no_one_else_is_taken_for_the_relay(home, running):
    """A member at the relay's address, or a revoked relay, is not trusted."""
    relay = relay_of(home)

    async def scene():
        with pytest.raises(ssl.SSLCertVerificationError):
            await user(home, "a").wait(type(relay)("r2", relay.address, relay.roots))

    play(scene())
    remove_relay(home.path, "r1")
    assert user(home, "a").relays() == []


def test_members_bring_the_log_and_revocations_close_open_connections(home, running):
    process, _ = running

    async def scene():
        relay = relay_of(home)
        one, other = await paired(home, "a", "b")
        bystander = await paired(home, "a", "c")
        old = user(home, "b")
        revoke(home.path, "b", keep=True)
        # d has the new log, and the relay has not.
        await (await user(home, "d").wait(relay)).writer.drain()
        assert await one.reader.read(1) == b""
        assert await read_to_end(other.reader) == 0
        assert await refusal(old.wait(relay)) == "revoked"
        assert await refusal(old.connect(relay, "a")) == "revoked"
        bystander[0].writer.write(b"x")
        assert await bystander[1].reader.readexactly(1) == b"x"
        # It gets in again with a new certificate, and the log that has it.
        new = issue_credentials(home.authority(), "b", home.manifest().federation)
        (home.node("b").path / "node.pem").write_bytes(new.certificate)
        home.distribute()
        waiting = await user(home, "b", new).wait(relay)
        assert await refusal(old.wait(relay)) == "revoked"
        waiting.writer.close()

    play(scene())
    assert process._changes.log == home.log()
    assert RelayFolder(process.folder.path).log() == home.log()


def test_removed_members_are_refused_and_closed(home, running):
    async def scene():
        relay, before = relay_of(home), user(home, "b")
        one, other = await paired(home, "a", "b")
        remove(home.path, "b")
        await user(home, "a").send_log(relay)
        assert await one.reader.read(1) == b""
        assert await read_to_end(other.reader) == 0
        assert await refusal(before.wait(relay)) == "not a member"
        assert await refusal(user(home, "a").connect(relay, "b")) == "unknown"

    play(scene())


def test_a_forged_or_shorter_log_changes_nothing(home, running):
    process, _ = running
    before = process._changes.log
    forged = before.appended("revocation", {"name": "a", "reason": ""}, lambda text: b"\1" * 70)

    async def scene():
        assert await refusal(user(home, "b", log=forged).send_log(relay_of(home))) == "log"
        short = ChangeLog(before.entries[:1])
        await user(home, "b", log=short).send_log(relay_of(home))

    play(scene())
    assert process._changes.log == before


def test_too_many_tunnels_between_two_members_close_the_oldest(home, running):
    async def scene():
        tunnels = [await paired(home, "a", "b") for _ in range(server.MAX_TUNNELS)]
        other = await paired(home, "c", "b")
        tunnels.append(await paired(home, "a", "b"))
        assert await read_to_end(tunnels[0][0].reader) == 0
        for one, far in [*tunnels[1:], other]:
            one.writer.write(b"x")
            assert await far.reader.readexactly(1) == b"x"

    play(scene())


GARBAGE = [
    b"GET / HTTP/1.1\r\n\r\n",
    (MAX_FRAME_BYTES + 1).to_bytes(4, "little") + b"{",
    (2).to_bytes(4, "little") + b"[]",
    (11).to_bytes(4, "little") + b'{"kind": 1}',
    (16).to_bytes(4, "little") + b'{"kind": "none"}',
    (30).to_bytes(4, "little") + b'{"kind": "log", "size": 1e300}',
    (30).to_bytes(4, "little") + b'{"kind": "log", "size": -10  }',
    (4000).to_bytes(4, "little") + b"[" * 4000,
]


def test_garbage_from_a_member_is_refused(home, running):
    async def scene():
        for sent in GARBAGE:
            connection = await user(home, "a")._open(relay_of(home))
            connection.writer.write(sent)
            answer = await read_frame(connection.reader, LONG)
            assert (answer["kind"], answer["reason"]) == ("refused", "malformed"), sent
            assert await read_to_end(connection.reader) == 0

    play(scene())
    assert not events(running[1], "internal error")


def test_silence_and_other_protocols_end_soon(home, running, monkeypatch):
    monkeypatch.setattr(gate, "HANDSHAKE_SECONDS", 0.2)
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)

    async def scene():
        relay = relay_of(home)
        host, _, port = relay.address.rpartition(":")
        for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            assert await read_to_end(reader) <= 200
        # A member that says nothing after the handshake.
        silent = await user(home, "a")._open(relay)
        await read_to_end(silent.reader)

    play(scene())


def test_strangers_cannot_use_up_the_connections(home, running):
    """Idle connections of one address are few; members still get in."""
    host, _, port = relay_of(home).address.rpartition(":")
    idle = []
    try:
        for _ in range(600):
            idle.append(socket.create_connection((host, int(port)), LONG))

        async def scene():
            return await paired(home, "a", "b")

        play(scene())
        assert running[0]._metrics.value("tacit_connections_refused_total", reason="too many") > 0
    finally:
        for each in idle:
            each.close()


def test_a_waiting_member_that_does_not_answer_is_passed_over(home, running, monkeypatch):
    monkeypatch.setattr(server, "READY_SECONDS", 0.1)
    monkeypatch.setattr(server, "PAIR_SECONDS", LONG)

    async def scene():
        relay = relay_of(home)
        await user(home, "b").wait(relay)
        calling = asyncio.ensure_future(user(home, "a").connect(relay, "b"))
        alive = await user(home, "b").wait(relay)
        assert (await read_frame(alive.reader, LONG))["kind"] == "connected"
        await write_frame(alive.writer, "ready")
        connection = await calling
        connection.writer.write(b"x")
        assert await alive.reader.readexactly(1) == b"x"

    play(scene())


def test_a_relay_pings_members_that_wait_and_closes_unused_tunnels(home, running, monkeypatch):
    monkeypatch.setattr(server, "PING_SECONDS", 0.01)

    async def scene():
        waiting = await user(home, "b").wait(relay_of(home))
        for _ in range(3):
            assert await read_frame(waiting.reader, LONG) == {"kind": "ping"}
        one, other = await paired(home, "a", "c")
        monkeypatch.setattr(server, "IDLE_SECONDS", -1.0)
        assert await read_to_end(one.reader) == 0
        assert await read_to_end(other.reader) == 0

    play(scene())


def ask(address, data):
    """The echo of some bytes; less if the connection ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LONG)
        connection.connect(address.removeprefix("unix:"))
        found = b""
        try:
            connection.sendall(data)
            while len(found) < len(data) and (part := connection.recv(1 << 16)):
                found += part
        except OSError:
            pass
        return found


def test_without_a_relay_the_dialer_says_so(home):
    dialer = RelayDialer(user(home, "a", log=ChangeLog(home.log().entries[:1])))
    assert ask(dialer.address("b"), b"x") == b""
    assert "add-relay" in dialer.problem("b")
    dialer.close()


def test_the_sockets_of_a_dialer_are_for_one_user_and_go_away(home):
    dialer = RelayDialer(user(home, "a"))
    folder = Path(dialer.address("b").removeprefix("unix:")).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    dialer.close()
    assert not folder.exists()


def test_a_folder_with_a_long_name_is_refused(home, tmp_path, monkeypatch):
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    dialer = RelayDialer(user(home, "a"))
    with pytest.raises(Misuse, match="TMPDIR"):
        dialer.address("b")
    dialer.close()
    assert not list(long.iterdir())


def test_metrics_and_health(home, running):
    process, _ = running

    async def scene():
        ends = await paired(home)
        pages = [
            await asyncio.to_thread(fetch, process, page)
            for page in ("health", "metrics", "status")
        ]
        ends[0].writer.close()
        return pages

    health, metrics, status = play(scene())
    assert json.loads(health) == {"healthy": True, "reason": "serving"}
    assert "tacit_relay_tunnels 1\n" in metrics
    assert "tacit_connections_pending 0\n" in metrics
    assert json.loads(status)["name"] == "r1"
    remove_relay(home.path, "r1")
    process._changes.update(home.log().text)
    assert json.loads(fetch(process, "health"))["healthy"] is False


def fetch(process, page):
    port = json.loads((process.folder.run / "ports.json").read_text())["metrics"]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=LONG) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as answer:  # /health answers 503 if there is a problem
        return answer.read().decode()


# --- what the operator does -----------------------------------------------------------------------


def test_the_log_names_relays_and_their_folders_hold_no_manifest(home):
    folder = RelayFolder(home.path / "relays" / "r1")
    assert sorted(path.name for path in folder.path.iterdir() if path.is_file()) == [
        "ca.pem", "federation.log", "node.key", "node.pem", "operator.pem", "relay.json"
    ]  # fmt: skip
    assert (folder.path / "node.key").stat().st_mode & 0o777 == 0o600
    assert (folder.name, folder.federation) == ("r1", home.manifest().federation)
    assert [entry.describe() for entry in home.log().entries if entry.kind == "relay"] == [
        f"relay r1: {relay_of(home).address}"
    ]
    change_address(home.path, "r1", "relay.example.org:7400")
    assert relay_of(home).address == "relay.example.org:7400"
    assert folder.log() == home.log()
    remove_relay(home.path, "r1")
    assert home.log().relays == {"r1": ""}
    assert home.log().trusted_certificates("r1") == []
    assert home.log().entries[-1].describe() == "relay r1 removed"


@pytest.mark.parametrize(
    ("name", "address", "why"),
    [
        ("a", "h:1", "is or was the name of a member or relay"),
        ("r1", "h:1", "is or was the name of a member or relay"),
        ("operator", "h:1", "reserved"),
        ("r2", "outgoing", "is not an address"),
        ("r2", "h", "is not an address"),
    ],
)
def test_impossible_relays(home, name, address, why):
    before = home.log()
    with pytest.raises(Misuse, match=why):
        add_relay(home.path, name, address)
    assert home.log() == before


def test_names_and_addresses_are_not_shared(home):
    address = relay_of(home).address
    with pytest.raises(Misuse, match="r1 has the address"):
        add_relay(home.path, "r2", address)
    with pytest.raises(Misuse, match="already"):
        change_address(home.path, "r1", address)
    remove_relay(home.path, "r1")
    with pytest.raises(Misuse, match="There is no relay"):
        remove_relay(home.path, "r1")
    with pytest.raises(Misuse, match="is or was"):
        add_relay(home.path, "r1", address)


def test_a_folder_of_a_member_and_a_taken_port_are_refused(home):
    folder = RelayFolder(home.path / "relays" / "r1")
    with run_relay(folder), pytest.raises(Misuse, match="running already"):
        RelayProcess(folder, EventLog(io.StringIO(), "r1")).run()
    with pytest.raises(Misuse, match=r"relay.json"):
        RelayProcess(RelayFolder(home.node("a").path), EventLog(io.StringIO(), "a"))
    host, _, port = relay_of(home).address.rpartition(":")
    with socket.create_server((host, int(port))), pytest.raises(NotReady, match="another program"):
        RelayProcess(folder, EventLog(io.StringIO(), "r1")).run()
    remove_relay(home.path, "r1")
    with pytest.raises(Misuse, match="not a relay"):
        RelayProcess(folder, EventLog(io.StringIO(), "r1"))
