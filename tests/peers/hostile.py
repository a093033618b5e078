"""What attacks need: nodes without training, false certificates and manifests, servers that answer by script."""

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
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tacit.peer.federation.certificate_authority import issue_credentials
from tacit.peer.federation.certificates import Credentials
from tacit.peer.federation.keys import sign
from tacit.peer.federation.manifest import make_manifest
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.outbox import Outbox
from tacit.peer.node.node_state import ActiveRoster, NodeState
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.chunks import split_message
from tacit.peer.node.neighbour_client import NeighbourClient
from tacit.peer.node.service import PeerService

# Not imported by itself: gRPC must not be imported before tacit.peer has said which suites it may use.
from tacit.peer.wire.transport import CHUNK_BYTES, SERVICE, grpc, start_server

PATIENCE = 60  # seconds, only against hanging for ever
PARAMETERS, DTYPE = 6, "torch.float32"


# --- a node without its training ----------------------------------------------------------------------------


class Log(io.StringIO):
    """The stream of a journal, whose lines can be waited for."""

    def __init__(self):
        super().__init__()
        self._grown = threading.Condition()

    def write(self, text):
        with self._grown:
            super().write(text)
            self._grown.notify_all()
        return len(text)

    def lines(self, event, **fields):
        """What was said of an event, as far as it has these fields."""
        with self._grown:
            said = [json.loads(line) for line in self.getvalue().splitlines()]
        return [line for line in said if line["event"] == event and fields.items() <= line.items()]

    def wait_for(self, event, **fields):
        """The first such line, as soon as it is there."""
        with self._grown:
            there = self._grown.wait_for(lambda: self.lines(event, **fields), PATIENCE)
        assert there, f"nothing was said of {event} {fields}:\n{self.getvalue()}"
        return there[0]


class Seat:
    """A node's state without its training: what it serves, counts and logs."""

    def __init__(self, node, parameters=PARAMETERS, dtype=DTYPE):
        manifest = node.manifest()
        self.node, self.log = node, Log()
        readers = [member.name for member in manifest.out_neighbours(node.name)]
        active = ActiveRoster(manifest, Outbox(readers))
        event_log = EventLog(self.log, node.name)
        self.state = NodeState(node, node.name, active, Metrics(), event_log, parameters, dtype)
        self.state.report(steps=100)

    def rejected(self, reason=None):
        """How many messages and callers were refused, for one reason or in all."""
        metrics = self.state.metrics
        if reason is None:
            return metrics.total("tacit_rejected_total")
        return metrics.value("tacit_rejected_total", reason=reason)

    def retries(self, neighbour):
        """How often a neighbour was asked again."""
        return self.state.metrics.value("tacit_retries_total", neighbour=neighbour)

    @contextmanager
    def served(self, own=None, ca=None):
        """Its port, while it is served."""
        own, ca = own or self.node.credentials(), ca or self.node.ca()
        server, port = start_server("127.0.0.1:0", [PeerService(self.state).handlers()], 16, own, ca)
        try:
            yield port
        finally:
            self.state.active.outbox.close()
            server.stop(0).wait()

    @contextmanager
    def line(self, neighbour, port):
        """Its line to a neighbour that is reached at a port."""
        member = dataclasses.replace(
            self.state.manifest.member(neighbour), address=f"127.0.0.1:{port}"
        )
        line = NeighbourClient(self.state, member, self.node.credentials(), self.node.ca())
        try:
            yield line
        finally:
            line.close()


def plain(found):
    """For a line that has nothing to check beyond the frame."""
    return found


def idle():
    """For a line whose waiting nobody watches."""


def receive(line, address, expected, check=plain, waiting=idle):
    """Ask for a letter and wait until it comes."""
    return line.receive(line.ask(address, -1), address, expected, check, waiting)


class Receiving(threading.Thread):
    """`receive` on a thread of its own, for letters that may never come."""

    def __init__(self, *what):
        super().__init__(daemon=True)
        self._what, self.found, self.problem = what, None, None
        self.start()

    def run(self):
        """Receive; what came or why nothing did is kept."""
        try:
            self.found = receive(*self._what)
        except Exception as problem:
            self.problem = problem

    def ended(self):
        """What came, or the exception; only once it is over."""
        self.join(PATIENCE)
        assert not self.is_alive(), "the line is still waiting"
        return self.found if self.problem is None else self.problem


@contextmanager
def peak_memory():
    """By how many bytes the memory of this process grows meanwhile, at its peak."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = memory("self", "VmRSS")
    yield lambda: memory("self", "VmHWM") - before


def memory(process, kind="VmRSS"):
    """Bytes that a process has in memory."""
    status = Path(f"/proc/{process}/status").read_text().split()
    return 1024 * int(status[status.index(f"{kind}:") + 1])


# --- certificates and manifests -----------------------------------------------------------------------------


def expired(ca, name, federation):
    """Credentials as the authority issues them, but out of date since yesterday."""
    made = issue_credentials(ca, name, federation)
    old = x509.load_pem_x509_certificate(made.certificate)
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
    return Credentials(certificate, made.key)


def rewritten(home, **changes):
    """The manifest of a federation with some of its parts replaced, and the operator's signature of it."""
    old = home.manifest()
    parts = ("federation", "generation", "previous", "members", "graph", "config", "next_number")
    new = make_manifest(**{part: getattr(old, part) for part in parts} | changes)
    return new, sign(home.operator_key(), new.text)


def put(node, manifest, signature):
    """Leave a manifest in a node's folder, as if the operator had handed out that one."""
    (node.path / "federation.sig").write_text(signature.hex() + "\n")
    (node.path / "federation.toml").write_bytes(manifest.text)


def tls(own=None, side=ssl.PROTOCOL_TLS_CLIENT):
    """The standard library's TLS with somebody's credentials, which believes whatever the other end shows."""
    context = ssl.SSLContext(side)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if own is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "both.pem"
            path.write_bytes(own.certificate + own.key)
            context.load_cert_chain(path)
    return context


def knock(port, context):
    """What a server says first to a TLS client (a server of HTTP/2 speaks first); nothing if it hangs up."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as raw:
        try:
            with context.wrap_socket(raw) as secure:
                return secure.recv(1000)
        except TimeoutError:
            raise
        except OSError:  # also of TLS
            return b""


# --- servers that answer as they are told -------------------------------------------------------------------


class Impostor:
    """A server with somebody's certificate that answers by script.

    `letters` is called with the number of the stream (0, 1, …) and the Wants that come in, and yields messages;
    `hello`, `roster`, `announce` and `tell` are called with the raw question. All that was asked is in `asked`.
    """

    def __init__(self, own, ca, hello, letters, roster=None, announce=None, tell=None):
        self.hello, self.letters, self.roster, self.announce, self.tell = (
            hello,
            letters,
            roster,
            announce,
            tell,
        )
        self.asked, self.compression = [], grpc.Compression.NoCompression
        self._streams = 0
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        calls = {
            name: unary(self._unary(name.lower()))
            for name in ("Hello", "GetManifest", "AnnounceManifest", "GetStatus")
        }
        handlers = grpc.method_handlers_generic_handler(
            SERVICE, {**calls, "FetchMessages": stream(self._stream)}
        )
        self._server, self.port = start_server("127.0.0.1:0", [handlers], 16, own, ca)

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self._server.stop(0).wait()

    def begin(self, letters):
        """Follow another script from its beginning."""
        self.letters, self._streams = letters, 0

    def _unary(self, name):
        def answer(raw, context):
            self.asked.append(name)
            return getattr(self, name)(raw)

        return answer

    def _stream(self, wants, context):
        self.asked.append("letters")
        context.set_compression(self.compression)
        number, self._streams = self._streams, self._streams + 1
        yield from self.letters(number, wants)


def always(letter):
    """A script: every Want is answered by this letter."""
    return once(None, letter)


def once(messages, letter):
    """A script: these messages to the first Want and the end of that stream, then this letter to every Want."""

    def script(number, wants):
        for _ in wants:
            if number == 0 and messages is not None:
                yield from messages
                return
            yield from split_message(letter, CHUNK_BYTES)

    return script


def head_of(letter, **changes):
    """The head of a letter, or a false one."""
    at = letter.envelope.exchange
    address = wire.ExchangeId(generation=at.generation, tick=at.tick, exchange=at.exchange)
    values = {"address": address, "size": len(letter.frame), "sha256": letter.sha256} | changes
    return wire.MessageHeader(**values)


def piece(**parts):
    """A message of the stream."""
    return wire.MessageChunk(**parts).SerializeToString()


def forged(letter, frame):
    """One message: another frame under the head of a letter, with a checksum that fits."""
    return piece(header=head_of(letter, sha256=hashlib.sha256(frame).digest()), data=bytes(frame))
