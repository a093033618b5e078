"""Parts of attacks: nodes without training, false certificates and manifests, scripted servers."""

import dataclasses
import hashlib
import io
import json
import socket
import ssl
import tempfile
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from federations import federation, plan

from tacit.peer.federation.certificates import Credentials, server_name
from tacit.peer.federation.manifest import make_manifest
from tacit.peer.federation.operator import create
from tacit.peer.federation.signing import issue_credentials, sign
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.neighbour_client import NeighbourClient
from tacit.peer.node.node_state import ActiveRoster, NodeState
from tacit.peer.node.plausible_values import check_values
from tacit.peer.node.servers import serve_peers
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.connection_limits import ConnectionLimits
from tacit.peer.wire.gate import Gate
from tacit.peer.wire.message_stream import LENGTH_BYTES, MessageStream, to_wire
from tacit.peer.wire.tls import MESSAGES, server_context

# Not imported directly: tacit.peer must choose the TLS ciphers before grpc is imported.
from tacit.peer.wire.transport import SERVICE, grpc, start_server

TIMEOUT = 60  # seconds; only against tests that hang
PARAMETERS, DTYPE = 6, "torch.float32"


# --- a node without its training ------------------------------------------------------------------


class Log(io.StringIO):
    """The stream of an event log, with a way to wait for a line."""

    def __init__(self):
        super().__init__()
        self._grown = threading.Condition()

    def write(self, text):
        with self._grown:
            super().write(text)
            self._grown.notify_all()
        return len(text)

    def lines(self, event, **fields):
        """The lines about an event that have these fields."""
        with self._grown:
            lines = [json.loads(line) for line in self.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event and fields.items() <= line.items()]

    def wait_for(self, event, **fields):
        """The first such line, as soon as it exists."""
        with self._grown:
            found = self._grown.wait_for(lambda: self.lines(event, **fields), TIMEOUT)
        assert found, f"no line about {event} {fields}:\n{self.getvalue()}"
        return found[0]


class IdleNode:
    """The state of a node that does not train: it serves, counts and logs."""

    def __init__(self, folder, parameters=PARAMETERS, dtype=DTYPE):
        self.folder, self.log, name = folder, Log(), folder.name
        active = ActiveRoster.load(folder, name, folder.manifest())
        self.state = NodeState(folder, name, active, EventLog(self.log, name), parameters, dtype)
        self.state.report(steps=100)

    def rejected(self, reason=None):
        """How many messages and callers were rejected, for one reason or in total."""
        metrics = self.state.metrics
        if reason is None:
            return metrics.total("tacit_rejected_total")
        return metrics.value("tacit_rejected_total", reason=reason)

    def retries(self, neighbour):
        return self.state.metrics.value("tacit_retries_total", neighbour=neighbour)

    @contextmanager
    def served(self):
        """Serve the node as in its own process; yields its port."""
        try:
            with serve_peers(self.state, "127.0.0.1:0") as port:
                yield port
        finally:
            self.state.stop.clear()

    @contextmanager
    def client(self, neighbour, port):
        """The node's client of a neighbour that listens on a port."""
        member = self.state.manifest.member(neighbour)
        member = dataclasses.replace(member, address=f"127.0.0.1:{port}")
        client = NeighbourClient(self.state, member)
        try:
            yield client
        finally:
            client.close()


def receive(client, expected, on_wait=lambda: None):
    """Request a message and wait until it arrives."""
    client.request(expected.envelope.exchange, -1)
    return client.receive(expected, checked, on_wait)


def checked(found):
    """A message whose numbers a node accepts."""
    check_values(found, {})
    return found


class Receiving(threading.Thread):
    """`receive` in a thread, for messages that may never arrive."""

    def __init__(self, *arguments):
        super().__init__(daemon=True)
        self._arguments, self._result = arguments, None
        self.start()

    def run(self):
        try:
            self._result = receive(*self._arguments)
        except Exception as problem:
            self._result = problem

    def result(self):
        """The message or the exception, when the thread has ended."""
        self.join(TIMEOUT)
        assert not self.is_alive(), "the client still waits"
        return self._result


@contextmanager
def peak_memory():
    """Yield a function: the bytes by which this process has grown at its peak."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = memory("self", "VmRSS")
    yield lambda: memory("self", "VmHWM") - before


def memory(process, kind="VmRSS"):
    """Bytes that a process has in memory."""
    status = Path(f"/proc/{process}/status").read_text().split()
    return 1024 * int(status[status.index(f"{kind}:") + 1])


# --- federations ----------------------------------------------------------------------------------


def ring_of_five(folder):
    """Five nodes on a ring: n1 and n4 are neighbours of n0, n2 and n3 are not."""
    return federation(folder, plan({"name": "lppa", "lr": 0.05}))


def same_names_elsewhere(home, folder):
    """Another federation of the same authority, with nodes of the same names."""
    nodes = {member.name: member.address for member in home.members}
    return create(folder, "clinics", nodes, home.manifest().config, authority=home.authority())


# --- certificates and manifests -------------------------------------------------------------------


def expired(ca, name, federation):
    """Credentials as the authority issues them, but expired since yesterday."""
    issued = issue_credentials(ca, name, federation)
    old = x509.load_pem_x509_certificate(issued.certificate)
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name=old.issuer,
        subject_name=old.subject,
        public_key=old.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(days=9),
        not_valid_after=now - timedelta(days=1),
        extensions=list(old.extensions),
    )
    key = serialization.load_pem_private_key(ca.key, password=None)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return Credentials(certificate, issued.key)


def rewritten(home, **changes):
    """A federation's manifest with some parts replaced, and the operator's signature."""
    old = home.manifest()
    parts = ("federation", "generation", "previous", "members", "graph", "config", "next_number")
    new = make_manifest(**{part: getattr(old, part) for part in parts} | changes)
    return new, sign(home.operator_key(), new.text)


def log_naming(home, manifest):
    """The operator's log with one more entry, which names a manifest."""
    change = {"generation": manifest.generation, "manifest": manifest.hash.hex(), "members": []}
    return home.log().appended("roster", change, partial(sign, home.operator_key())).text


def install(home, node, manifest, signature):
    """Write a manifest and the log that names it into a node's folder without any check."""
    (node.path / "federation.log").write_bytes(log_naming(home, manifest))
    (node.path / "federation.sig").write_text(signature.hex() + "\n")
    (node.path / "federation.toml").write_bytes(manifest.text)


def signed_manifest(text, signature=b"", log=b""):
    return wire.SignedManifest(manifest=text, signature=signature, log=log).SerializeToString()


def tls(own=None, side=ssl.PROTOCOL_TLS_CLIENT, protocol="h2"):
    """TLS of the standard library with some credentials, without any verification."""
    context = ssl.SSLContext(side)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    if own is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "both.pem"
            path.write_bytes(own.certificate + own.key)
            context.load_cert_chain(path)
    return context


def first_bytes(port, context):
    """What a server sends first over TLS (in HTTP/2 it starts); b"" if it hangs up."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as raw:
        try:
            with context.wrap_socket(raw) as secure:
                return secure.recv(1000)
        except TimeoutError:
            raise
        except OSError:  # includes TLS errors
            return b""


# --- streams of messages --------------------------------------------------------------------------


def framed(raw):
    """Bytes as one request or answer of a stream."""
    return len(raw).to_bytes(LENGTH_BYTES, "little") + raw


def frame(**parts):
    """An answer on a stream."""
    return framed(wire.StreamAnswer(**parts).SerializeToString())


def header_of(message, **changes):
    """The header of a message, or a false one."""
    exchange = to_wire(message.envelope.exchange)
    values = {"exchange": exchange, "size": len(message.frame), "sha256": message.sha256}
    return wire.MessageHeader(**values | changes)


def sent(message):
    """A message as it is sent."""
    return frame(header=header_of(message)) + bytes(message.frame)


def forged(message, content):
    """Other bytes under the header of a message, with a correct checksum."""
    header = header_of(message, sha256=hashlib.sha256(content).digest())
    return frame(header=header) + bytes(content)


@lru_cache(maxsize=8)
def _stream_context(own):
    return tls(own, protocol=MESSAGES)


class RawStream:
    """A stream to a node that sends any bytes; it does not verify the node."""

    def __init__(self, port, own, name="n0", federation="f", context=None):
        raw = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        try:
            context = context or _stream_context(own)
            host = server_name(name, federation)
            self.connection = context.wrap_socket(raw, server_hostname=host)
        except BaseException:
            raw.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def send(self, raw):
        """Send bytes; whatever the node does with the connection is for `answers` to find."""
        with suppress(OSError):
            self.connection.sendall(raw)

    def answer(self):
        """The next answer; None if the node has closed the stream."""
        try:
            return MessageStream(self.connection).receive(wire.StreamAnswer)
        except TimeoutError:
            raise
        except OSError:  # includes alerts of TLS
            return None

    def bytes_of(self, header):
        """The bytes of a message after its header."""
        found = bytearray()
        while len(found) < header.size:
            part = self.connection.recv(header.size - len(found))
            if not part:
                raise ConnectionError("the stream ended within a message")
            found += part
        return bytes(found)

    def outcome(self):
        """The bytes of a message, or the refusal, after any notices; None: the stream ended."""
        while (answer := self.answer()) is not None:
            if answer.HasField("header"):
                return self.bytes_of(answer.header)
            if answer.HasField("refusal"):
                return answer.refusal
        return None


def fetched(port, own, *requests):
    """What a node answers to raw requests on a new stream: see `RawStream.outcome`."""
    try:
        with RawStream(port, own) as stream:
            for raw in requests:
                stream.send(framed(raw))
            return stream.outcome()
    except TimeoutError:
        raise
    except OSError:  # the handshake has failed
        return None


# --- scripted servers -----------------------------------------------------------------------------


class ScriptedServer:
    """A server with some node's certificate that answers by script.

    `messages` is called with the number of the stream (0, 1, …) and its requests; it yields bytes.
    `answers` has functions of the raw request for the calls. `calls` lists all calls, and "stream".
    `stream_own` is for streams that show another certificate than calls.
    """

    def __init__(self, own, ca, messages=None, stream_own=None, **answers):
        self.messages, self.answers, self.calls = messages, answers, []
        self._own, self._ca, self._streams = stream_own or own, ca, 0
        methods = ("Hello", "GetManifest", "AnnounceManifest", "GetStatus")
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(self._unary(name)) for name in methods
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server, port = start_server("127.0.0.1:0", [generic], 16, own, ca)
        self._gate = Gate("127.0.0.1:0", ConnectionLimits(256, 256, 256, 256), lambda *_: None)
        self.port = self._gate.port
        self._gate.start(port, self._serve)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(0).wait()
        self._gate.close()

    def follow(self, messages):
        """Follow another script from its start."""
        self.messages, self._streams = messages, 0

    def _unary(self, name):
        def answer(raw, context):
            self._gate.admit(context.peer(), "caller")
            self.calls.append(name)
            return self.answers[name](raw)

        return answer

    def _serve(self, raw, admit):
        with (
            suppress(OSError),
            server_context(self._own, self._ca).wrap_socket(raw, server_side=True) as connection,
        ):
            connection.settimeout(TIMEOUT)
            admit("caller")
            self.calls.append("stream")
            number, self._streams = self._streams, self._streams + 1
            stream = MessageStream(connection)
            requests = iter(lambda: stream.receive(wire.FetchRequest), None)
            for part in self.messages(number, requests):
                connection.sendall(part)
            stream.end()


def always(message):
    """A script that answers every request with a message."""
    return once(None, message)


def once(parts, message):
    """A script: these bytes as answer to the first request, after that always a message."""

    def script(number, requests):
        for _ in requests:
            if number == 0 and parts is not None:
                yield from parts
                return
            yield sent(message)

    return script
