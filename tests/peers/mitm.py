"""A man in the middle that has the key of the node it impersonates."""

import itertools
import random
import threading
from contextlib import closing, suppress

from hostile import TIMEOUT, frame, framed
from mutations import mutated

from tacit.peer.federation.certificates import certificate_info, certified_name
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.connection_limits import ConnectionLimits
from tacit.peer.wire.gate import Gate
from tacit.peer.wire.message_stream import MessageStream, from_wire, open_stream
from tacit.peer.wire.messages import Rejected
from tacit.peer.wire.tls import peer_certificate, server_context
from tacit.peer.wire.transport import (
    SERVICE,
    caller_certificate,
    grpc,
    open_channel,
    start_server,
)

METHODS = (
    "Hello", "NotifyFinished", "GetStatus", "GetManifest", "AnnounceManifest", "CompareDigests"
)  # fmt: skip
NOTICE = wire.StreamAnswer(
    notice=wire.ProgressNotice(generation=1, tick=1, waiting_for=["n2"])
).SerializeToString()


class MitmProxy:
    """Listens at a node's address with its key, and forwards all to the node itself.

    `corrupt(caller, header, frame)` gets one message. It returns the bytes to forward, and whether
    to end the stream after them. `answers` changes answers to calls: by method, a function of the
    caller and the answer.
    """

    def __init__(self, home, name, address, backend, corrupt, answers=None):
        self._home, self._name, self._backend, self._corrupt = home, name, backend, corrupt
        self._answers = answers or {}
        self._channels, self._lock = {}, threading.Lock()
        self._own, self._ca = home.node(name).credentials(), home.node(name).ca()
        handlers = {
            method: grpc.unary_unary_rpc_method_handler(self._forward(method)) for method in METHODS
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server, port = start_server("127.0.0.1:0", [generic], 24, self._own, self._ca)
        self._gate = Gate(address, ConnectionLimits(256, 256, 256, 256), lambda *_: None)
        self._gate.start(port, self._serve_stream)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(0).wait()
        self._gate.close()
        for channel in self._channels.values():
            channel.close()

    def _caller(self, certificate):
        """The caller's name, and its key."""
        home = self._home
        caller = certified_name(certificate_info(certificate), home.manifest().federation)
        operator = caller == "operator"
        return caller, home.operator_credentials() if operator else home.node(caller).credentials()

    def _channel(self, context):
        """The caller's name, and a channel to the node with the caller's key."""
        caller, own = self._caller(caller_certificate(context))
        self._gate.admit(context.peer(), caller)
        with self._lock:
            if caller not in self._channels:
                federation = self._home.manifest().federation
                self._channels[caller] = open_channel(
                    self._backend, self._name, federation, own, self._home.ca()
                )
            return caller, self._channels[caller]

    def _forward(self, method):
        def answer(raw, context):
            caller, channel = self._channel(context)
            change = self._answers.get(method, lambda caller, answer: answer)
            try:
                call = channel.unary_unary(f"/{SERVICE}/{method}")
                return change(caller, call(raw, timeout=TIMEOUT))
            except grpc.RpcError as problem:
                return context.abort(problem.code(), problem.details())

        return answer

    def _serve_stream(self, raw, admit):
        """Forward requests and answers between a caller and the node, in turn."""
        context, federation = server_context(self._own, self._ca), self._home.manifest().federation
        with (
            suppress(OSError, Rejected),
            context.wrap_socket(raw, server_side=True) as connection,
        ):
            caller, own = self._caller(peer_certificate(connection))
            admit(caller)
            near = MessageStream(connection)
            far = open_stream(self._backend, self._name, federation, own, self._home.ca())
            with closing(far):
                while (request := near.receive(wire.FetchRequest)) is not None:
                    far.send(request)
                    if not self._forward_answers(caller, near, far, connection):
                        near.end()
                        return

    def _forward_answers(self, caller, near, far, connection):
        """Forward all answers to one request; return whether the stream goes on."""
        while (answer := far.receive(wire.StreamAnswer)) is not None:
            if not answer.HasField("header"):
                near.send(answer)
                continue
            content = bytearray(answer.header.size)
            far.receive_message(
                answer.header, from_wire(answer.header.exchange), memoryview(content)
            )
            forwarded, ends = self._corrupt(caller, answer.header, bytes(content))
            connection.sendall(forwarded)
            return not ends
        return False


class Corrupter:
    """Corrupts a random half of the messages to one caller, each time in another way."""

    def __init__(self, victim, seed):
        self._victim, self._random = victim, random.Random(seed)
        self._previous = None  # header and content of the previous message
        noise = self._random
        ways = {
            "flipped bit": lambda new, old: _sent(new[0], self._flip(new[1])),
            "flipped bit in the header": lambda new, old: (
                framed(self._flip(_answer(new[0]))) + new[1]
            ),
            "flipped bit anywhere": lambda new, old: self._flip(_sent(*new)),
            "truncated": lambda new, old: self._cut(_sent(*new)),
            "header lost": lambda new, old: new[1],
            "first bytes lost": lambda new, old: _sent(new[0], new[1][noise.randrange(1, 99) :]),
            "header twice": lambda new, old: frame(header=new[0]) + _sent(*new),
            "replayed": lambda new, old: _sent(*old),
            "replayed under the new header": _replay_under_header,
            "repeated": lambda new, old: _sent(*new) * 2,
            "noise": lambda new, old: noise.randbytes(noise.randrange(1, 50)) + _sent(*new),
            "framed noise": lambda new, old: framed(noise.randbytes(20)) + _sent(*new),
            "mutated notice": lambda new, old: framed(mutated(NOTICE, noise)) + _sent(*new),
        }
        self.counts = dict.fromkeys(ways, 0)
        self._ways = itertools.cycle(ways.items())

    def __call__(self, caller, header, content):
        new = header, content
        if caller != self._victim:
            return _sent(*new), False
        previous, self._previous = self._previous or new, new
        if self._random.random() < 0.5:
            return _sent(*new), False
        name, way = next(self._ways)
        self.counts[name] += 1
        return way(new, previous), True

    def _flip(self, raw):
        out = bytearray(raw)
        out[self._random.randrange(len(out))] ^= 1 << self._random.randrange(8)
        return bytes(out)

    def _cut(self, raw):
        return raw[: self._random.randrange(1, len(raw))]


def _answer(header):
    return wire.StreamAnswer(header=header).SerializeToString()


def _sent(header, content):
    """A message as it is sent."""
    return frame(header=header) + content


def _replay_under_header(new, old):
    """The data of the previous message under the exchange of this one."""
    header = wire.MessageHeader()
    header.CopyFrom(old[0])
    header.exchange.CopyFrom(new[0].exchange)
    return _sent(header, old[1])
