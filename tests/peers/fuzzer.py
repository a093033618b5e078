"""Sends mutated messages to a live node."""

import collections
import contextlib
import itertools
import random
import socket

from hostile import PATIENCE, grpc, tls
from mutations import mutated

from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.transport import SERVICE, channel

UNARY = [*["Hello", "Farewell", "Announce"] * 3, "Tell", "Roster"]
FLYING = 6  # calls at a time, and as many streams: others must be answered too
STREAM = 0.1  # seconds to wait for answers that a mutated Want may never get


class Fuzzer:
    """Speaks to the node `target` in the names of its neighbour `neighbour` and of the operator.

    `sent` counts messages (of a stream of Wants only the first that is mutated, because the node may read no further),
    `codes` counts what came of them, `lost` has the words of calls that found no node.
    """

    def __init__(self, home, target, neighbour, steps, seed):
        self._home, self._manifest, self._steps = home, home.manifest(), steps
        self._random = random.Random(seed)
        member = self._manifest.member(target)
        self.port = int(member.address.rpartition(":")[2])
        self._neighbour = neighbour
        self._own = {neighbour: home.node(neighbour).credentials(), "operator": home.operator()}
        self._channels = {
            who: channel(member.address, target, self._manifest.federation, own, home.ca())
            for who, own in self._own.items()
        }
        self._valid = {method: self._message(method) for method in UNARY}
        self.sent, self.answers, self.codes, self.lost = 0, 0, collections.Counter(), []

    def burst(self, count, tick):
        """So many messages, a tenth of them Wants around an iteration, and some garbage below gRPC."""
        for _ in range(4):
            self._garbage()
        calls, streams = collections.deque(), collections.deque()
        for number in range(count):
            if number % 10 == 0:
                streams.append(self._letters(tick))
            else:
                calls.append(self._unary())
            self.sent += 1
            if len(calls) == FLYING:
                self._note("", calls.popleft())
            if len(streams) == FLYING:
                self._read(streams.popleft())
        for call in calls:
            self._note("", call)
        for stream in streams:
            self._read(stream)

    def close(self):
        """Give the connections up."""
        for one in self._channels.values():
            one.close()

    def _unary(self):
        who, method = self._random.choice([self._neighbour, "operator"]), self._random.choice(UNARY)
        raw = self._mutation(method)
        return self._channels[who].unary_unary(f"/{SERVICE}/{method}").future(raw, timeout=PATIENCE)

    def _letters(self, tick):
        """A stream of Wants: none or one that is right, then mutated ones."""
        who = self._random.choice([*[self._neighbour] * 4, "operator"])
        wants = [self._want(tick)] * self._random.randrange(2)
        wants += [
            mutated(self._want(tick), self._random) for _ in range(self._random.randint(1, 4))
        ]
        return self._channels[who].stream_stream(f"/{SERVICE}/Letters")(iter(wants), timeout=STREAM)

    def _read(self, call):
        """Take some answers of a stream, if there are any, and hang up."""
        with contextlib.suppress(grpc.RpcError):
            for _ in itertools.islice(call, 8):
                self.answers += 1
            call.cancel()
        self._note("stream ", call)

    def _note(self, kind, call):
        code = call.code()
        self.codes[kind + code.name] += 1
        if code == grpc.StatusCode.UNAVAILABLE:
            self.lost.append(call.details())

    def _want(self, tick):
        address = wire.Address(generation=1, tick=max(0, tick + self._random.randint(-5, 1)))
        saved = self._random.choice([-1, max(-1, tick - 20), tick, 2**62])
        return wire.Want(
            address=address, manifest=self._manifest.hash, saved=saved
        ).SerializeToString()

    def _mutation(self, method):
        while True:
            raw = mutated(self._valid[method], self._random)
            if method != "Farewell" or not self._is_the_end(raw):
                return raw

    def _message(self, method):
        """A valid one."""
        manifest = self._manifest
        if method == "Hello":
            greeting = wire.Greeting(
                protocol=1, federation=manifest.federation, generation=1, manifest=manifest.hash,
                sections=manifest.sections(), parameters=99, dtype="torch.float32", version="1",
            )  # fmt: skip
            return greeting.SerializeToString()
        if method == "Farewell":
            return wire.Ended(generation=1, tick=self._steps).SerializeToString()
        if method == "Announce":
            text, signature = self._home.signed()
            return wire.SignedManifest(manifest=text, signature=signature).SerializeToString()
        return b""

    def _is_the_end(self, raw):
        """Whether it says in the neighbour's own name that the neighbour needs nothing more: that is its own word."""
        try:
            ended = wire.Ended.FromString(raw)
        except Exception:  # as most of them
            return False
        return (ended.generation, ended.tick) == (1, self._steps)

    def _garbage(self):
        """Bytes that are no TLS, or no HTTP/2 within it."""
        noise = self._random.randbytes(self._random.choice([1, 20, 3_000]))
        start = self._random.choice([b"", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), PATIENCE) as raw,
        ):
            if self._random.random() < 0.5:
                raw.sendall(start + noise)
            else:
                with tls(self._own[self._neighbour]).wrap_socket(raw) as secure:
                    secure.sendall(start + noise)
