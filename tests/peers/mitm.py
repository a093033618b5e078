"""A man in the middle that has the key of the node it impersonates."""

import itertools
import random
import threading

from hostile import TIMEOUT, chunk
from mutations import mutated

from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.transport import SERVICE, caller_name, grpc, open_channel, start_server

METHODS = (
    "Hello", "NotifyFinished", "GetStatus", "GetManifest", "AnnounceManifest", "CompareDigests"
)  # fmt: skip
NOTICE = chunk(notice=wire.ProgressNotice(generation=1, tick=1, waiting_for=["n2"]))


class MitmProxy:
    """Listens at a node's address with its key, and forwards all calls to the node itself.

    `corrupt(caller, chunks)` gets the chunks of one message. It returns the chunks to forward, and
    whether to end the stream after them. `answers` changes answers to other calls: by method, a
    function of the caller and the answer.
    """

    def __init__(self, home, name, address, backend, corrupt, answers=None):
        self._home, self._name, self._backend, self._corrupt = home, name, backend, corrupt
        self._answers = answers or {}
        self._channels, self._lock = {}, threading.Lock()
        node = home.node(name)
        handlers = {
            method: grpc.unary_unary_rpc_method_handler(self._forward(method)) for method in METHODS
        }
        handlers["FetchMessages"] = grpc.stream_stream_rpc_method_handler(self._fetch_messages)
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server, _ = start_server(address, [generic], 24, node.credentials(), node.ca())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(0).wait()
        for channel in self._channels.values():
            channel.close()

    def _channel(self, context):
        """The caller's name, and a channel to the node with the caller's key."""
        home, federation = self._home, self._home.manifest().federation
        caller = caller_name(context, federation)
        with self._lock:
            if caller not in self._channels:
                operator = caller == "operator"
                own = home.operator_credentials() if operator else home.node(caller).credentials()
                self._channels[caller] = open_channel(
                    self._backend, self._name, federation, own, home.ca()
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

    def _fetch_messages(self, requests, context):
        caller, channel = self._channel(context)
        answers = channel.stream_stream(f"/{SERVICE}/FetchMessages")(_until_hangup(requests))
        context.add_callback(answers.cancel)
        chunks, missing = [], 0
        try:
            for raw in answers:
                parsed = wire.MessageChunk.FromString(raw)
                if parsed.HasField("notice"):
                    yield raw
                    continue
                missing += parsed.header.size - len(parsed.data)
                chunks.append(raw)
                if missing == 0:
                    forwarded, ends = self._corrupt(caller, chunks)
                    yield from forwarded
                    if ends:
                        return
                    chunks = []
        except grpc.RpcError as problem:
            context.abort(problem.code(), problem.details())
        finally:
            answers.cancel()


def _until_hangup(requests):
    """Requests until the caller hangs up; the traceback must not keep the call open."""
    try:
        yield from requests
    except grpc.RpcError as hangup:
        hangup.__traceback__ = None


class Corrupter:
    """Corrupts a random half of the messages to one caller, each time in another way."""

    def __init__(self, victim, seed):
        self._victim, self._random = victim, random.Random(seed)
        self._previous = []  # chunks of the previous message
        ways = {
            "flipped bit": self._flip_bit,
            "truncated": self._truncate,
            "first chunk lost": lambda chunks, previous: chunks[1:],
            "replayed": lambda chunks, previous: previous,
            "replayed under the new header": _replay_under_header,
            "repeated": lambda chunks, previous: chunks * 2,
            "noise": lambda chunks, previous: [
                self._random.randbytes(self._random.randrange(50)),
                *chunks,
            ],
            "mutated notice": lambda chunks, previous: [mutated(NOTICE, self._random), *chunks],
        }
        self.counts = dict.fromkeys(ways, 0)
        self._ways = itertools.cycle(ways.items())

    def __call__(self, caller, chunks):
        if caller != self._victim:
            return chunks, False
        previous, self._previous = self._previous or chunks, chunks
        if self._random.random() < 0.5:
            return chunks, False
        name, way = next(self._ways)
        self.counts[name] += 1
        return way(chunks, previous), True

    def _truncate(self, chunks, previous):
        return [*chunks[:-1], chunks[-1][: self._random.randrange(len(chunks[-1]))]]

    def _flip_bit(self, chunks, previous):
        index = self._random.randrange(len(chunks))
        parsed = wire.MessageChunk.FromString(chunks[index])
        data = bytearray(parsed.data)
        data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        parsed.data = bytes(data)
        return [*chunks[:index], parsed.SerializeToString(), *chunks[index + 1 :]]


def _replay_under_header(chunks, previous):
    """The data of the previous message under the exchange of this one."""
    new, old = (wire.MessageChunk.FromString(one[0]) for one in (chunks, previous))
    old.header.exchange.CopyFrom(new.header.exchange)
    return [old.SerializeToString(), *previous[1:]]
