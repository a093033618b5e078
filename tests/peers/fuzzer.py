"""Sends mutated requests to a running node."""

import collections
import contextlib
import random
import socket

from hostile import TIMEOUT, RawStream, framed, grpc, signed_manifest, tls
from mutations import mutated

from tacit.peer.federation.equivocation import Sender, sign_list
from tacit.peer.node.node_state import PROTOCOL
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.messages import Rejected
from tacit.peer.wire.tls import MESSAGES
from tacit.peer.wire.transport import SERVICE, open_channel

UNARY = [
    *["Hello", "NotifyFinished", "AnnounceManifest", "CompareDigests"] * 3,
    "GetStatus",
    "GetManifest",
]
PARALLEL = 6  # calls at a time: others must be answered too
STREAM_TIMEOUT = 0.15  # seconds: a mutated request may never get an answer
FAILURES = ("UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED")
ANSWERS = 8  # of a stream that are read


class Fuzzer:
    """Calls the node `target` in the names of its neighbour `neighbour` and of the operator.

    `sent` counts requests; of a stream only the first mutated one counts, because the node may read
    no further. `codes` counts the results. `lost` has the errors of calls that found no node,
    `failures` those that are the node's own.
    """

    def __init__(self, home, target, neighbour, steps, seed):
        self._home, self._manifest, self._steps = home, home.manifest(), steps
        self._random = random.Random(seed)
        member = self._manifest.member(target)
        self.port = int(member.address.rpartition(":")[2])
        self._neighbour = neighbour
        self._own = {
            neighbour: home.node(neighbour).credentials(),
            "operator": home.operator_credentials(),
        }
        self._channels = {
            name: open_channel(member.address, target, self._manifest.federation, own, home.ca())
            for name, own in self._own.items()
        }
        self._valid = {method: self._valid_request(method) for method in UNARY}
        self.sent, self.answers, self.codes = 0, 0, collections.Counter()
        self.lost, self.failures = [], []

    def burst(self, count, tick):
        """Send requests, a tenth of them for messages around a tick, and garbage below gRPC."""
        for _ in range(4):
            self._send_garbage()
        calls = collections.deque()
        for number in range(count):
            if number % 10 == 0:
                # A neighbour has one stream at a time.
                self._read(self._open_stream(tick))
            else:
                calls.append(self._call())
            self.sent += 1
            if len(calls) == PARALLEL:
                self._count(calls.popleft())
        for call in calls:
            self._count(call)

    def close(self):
        for channel in self._channels.values():
            channel.close()

    def _call(self):
        name, method = (
            self._random.choice([self._neighbour, "operator"]),
            self._random.choice(UNARY),
        )
        call = self._channels[name].unary_unary(f"/{SERVICE}/{method}")
        return call.future(self._mutated_request(method), timeout=TIMEOUT)

    def _open_stream(self, tick):
        """A stream with requests: none or one that is valid, then mutated ones."""
        name = self._random.choice([*[self._neighbour] * 4, "operator"])
        requests = [framed(self._fetch_request(tick))] * self._random.randrange(2)
        for _ in range(self._random.randint(1, 4)):
            raw = self._fetch_request(tick)
            is_length_right = self._random.random() < 0.7
            requests.append(
                framed(mutated(raw, self._random))
                if is_length_right
                else mutated(framed(raw), self._random)
            )
        try:
            stream = RawStream(self.port, self._own[name])
        except OSError as problem:
            self.lost.append(str(problem))
            return None
        stream.connection.settimeout(STREAM_TIMEOUT)
        stream.send(b"".join(requests))
        # The node ends the stream after its last answer.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(stream.connection, socket.SHUT_WR)
        return stream

    def _read(self, stream):
        """Read some answers of a stream, if there are any, and hang up."""
        if stream is None:
            return
        code = "OK"
        with stream, contextlib.suppress(OSError, Rejected):
            for _ in range(ANSWERS):
                answer = stream.answer()
                if answer is None:
                    break
                self.answers += 1
                if answer.HasField("refusal"):
                    code = answer.refusal.code
                    if code in FAILURES:
                        self.failures.append(f"stream {code}: {answer.refusal.text}")
                if answer.HasField("header"):
                    stream.bytes_of(answer.header)
        self.codes[f"stream {code}"] += 1

    def _count(self, call):
        code = call.code()
        self.codes[code.name] += 1
        if code == grpc.StatusCode.UNAVAILABLE:
            self.lost.append(call.details())
        elif code.name in FAILURES:
            self.failures.append(f"{code.name}: {call.details()} {call.debug_error_string()}")

    def _fetch_request(self, tick):
        tick_near = max(0, tick + self._random.randint(-5, 1))
        return wire.FetchRequest(
            exchange=wire.ExchangeId(generation=1, tick=tick_near),
            manifest_sha256=self._manifest.hash,
            saved_tick=self._random.choice([-1, max(-1, tick - 20), tick, 2**62]),
        ).SerializeToString()

    def _mutated_request(self, method):
        while True:
            raw = mutated(self._valid[method], self._random)
            if method != "NotifyFinished" or not self._is_valid_end(raw):
                return raw

    def _valid_request(self, method):
        manifest = self._manifest
        if method == "Hello":
            return wire.NodeInfo(
                protocol=PROTOCOL, federation=manifest.federation, generation=1,
                manifest_sha256=manifest.hash, sections=manifest.sections, parameters=99,
                dtype="torch.float32", version="1",
            ).SerializeToString()  # fmt: skip
        if method == "NotifyFinished":
            return wire.Finished(generation=1, tick=self._steps).SerializeToString()
        if method == "CompareDigests":
            # Signed by a key that is not that of the named sender.
            sender = Sender(manifest.federation, 1, manifest.names[-1], b"salt")
            keys = self._home.node(manifest.names[0]).credentials()
            one = sign_list(sender, 0, 2, {(1, 0): bytes(32), (2, 0): bytes(32)}, keys)
            known = wire.SignedDigestLists(lists=[one.signed])
            return wire.DigestRequest(generation=1, known=known).SerializeToString()
        if method == "AnnounceManifest":
            return signed_manifest(*self._home.signed_update())
        return b""

    def _is_valid_end(self, raw):
        """Whether it is a valid notification, which the node would have to believe."""
        try:
            end = wire.Finished.FromString(raw)
        except Exception:  # most of them
            return False
        return (end.generation, end.tick) == (1, self._steps)

    def _send_garbage(self):
        """Send bytes that are not TLS, or neither HTTP/2 nor requests within TLS."""
        noise = self._random.randbytes(self._random.choice([1, 20, 3_000]))
        start = self._random.choice([b"", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), TIMEOUT) as raw,
        ):
            if self._random.random() < 0.5:
                raw.sendall(start + noise)
            else:
                protocol = self._random.choice(["h2", MESSAGES])
                own = self._own[self._neighbour]
                with tls(own, protocol=protocol).wrap_socket(raw) as secure:
                    secure.sendall(start + noise)
