"""A man in the middle who holds the key of the node that he stands before."""

import itertools
import random
import threading

from hostile import PATIENCE
from mutations import mutated

from tacit.peer.federation.identity import server_name
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.transport import SERVICE, channel, grpc, listen


class Middleman:
    """Stands at a node's address with that node's own key, and passes everything on; letters as `spoil` leaves them.

    `spoil(caller, messages)` gets the messages of one whole letter and returns those to send on, and whether to end the
    stream after them.
    """

    def __init__(self, home, name, address, hidden, spoil):
        self._home, self._name, self._hidden, self._spoil = home, name, hidden, spoil
        self._channels, self._lock = {}, threading.Lock()
        node = home.node(name)
        stream, unary = grpc.stream_stream_rpc_method_handler, grpc.unary_unary_rpc_method_handler
        names = ("Hello", "Farewell", "Tell", "Roster", "Announce")
        calls = {method: unary(self._pass_on(method)) for method in names}
        handlers = grpc.method_handlers_generic_handler(
            SERVICE, {**calls, "Letters": stream(self._letters)}
        )
        self._server, _ = listen(address, [handlers], 24, node.credentials(), node.ca())

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self._server.stop(0).wait()
        for one in self._channels.values():
            one.close()

    def _caller(self, context):
        """Who calls, and a channel to the real node with the caller's own key."""
        home, federation = self._home, self._home.manifest().federation
        (told,) = context.auth_context()["x509_subject_alternative_name"]
        who = told.decode().removesuffix(server_name("", federation))
        with self._lock:
            if who not in self._channels:
                own = home.operator() if who == "operator" else home.node(who).credentials()
                self._channels[who] = channel(self._hidden, self._name, federation, own, home.ca())
            return who, self._channels[who]

    def _pass_on(self, method):
        def answer(raw, context):
            _, further = self._caller(context)
            try:
                return further.unary_unary(f"/{SERVICE}/{method}")(raw, timeout=PATIENCE)
            except grpc.RpcError as problem:
                return context.abort(problem.code(), problem.details())

        return answer

    def _letters(self, wants, context):
        who, further = self._caller(context)
        answers = further.stream_stream(f"/{SERVICE}/Letters")(_until_the_end(wants))
        context.add_callback(answers.cancel)
        pieces, missing = [], 0
        try:
            for raw in answers:
                told = wire.Piece.FromString(raw)
                if told.HasField("notice"):
                    yield raw
                    continue
                missing += told.head.size - len(told.data)
                pieces.append(raw)
                if missing == 0:
                    messages, ends = self._spoil(who, pieces)
                    yield from messages
                    if ends:
                        return
                    pieces = []
        except grpc.RpcError as problem:
            context.abort(problem.code(), problem.details())
        finally:
            answers.cancel()


def _until_the_end(wants):
    """What a caller asks for, until it hangs up; its call is not to be kept by the traceback."""
    try:
        yield from wants
    except grpc.RpcError as gone:
        gone.__traceback__ = None


class Spoiler:
    """Spoils a random half of the letters to one caller, each time in another way."""

    def __init__(self, victim, seed):
        self._victim, self._random = victim, random.Random(seed)
        self._before = []  # the letter before
        kinds = {
            "mutated": self._mutated,
            "cut": lambda pieces, before: [
                *pieces[:-1],
                pieces[-1][: self._random.randrange(len(pieces[-1]))],
            ],
            "lost": lambda pieces, before: pieces[1:],
            "before": lambda pieces, before: before,
            "before under the new head": _under_head,
            "twice": lambda pieces, before: pieces * 2,
            "noise": lambda pieces, before: [
                self._random.randbytes(self._random.randrange(50)),
                *pieces,
            ],
            "spoilt notice": lambda pieces, before: [mutated(NOTICE, self._random), *pieces],
        }
        self.spoilt = dict.fromkeys(kinds, 0)  # how often, in each way
        self._kinds = itertools.cycle(kinds.items())

    def __call__(self, caller, pieces):
        """The messages to send on instead, and whether to hang up after them."""
        if caller != self._victim:
            return pieces, False
        before, self._before = self._before or pieces, pieces
        if self._random.random() < 0.5:
            return pieces, False
        name, kind = next(self._kinds)
        self.spoilt[name] += 1
        return kind(pieces, before), True

    def _mutated(self, pieces, before):
        """A bit of the numbers is flipped."""
        at = self._random.randrange(len(pieces))
        told = wire.Piece.FromString(pieces[at])
        data = bytearray(told.data)
        data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        told.data = bytes(data)
        return [*pieces[:at], told.SerializeToString(), *pieces[at + 1 :]]


NOTICE = wire.Piece(
    notice=wire.Notice(generation=1, tick=1, waiting_for=["n2"])
).SerializeToString()


def _under_head(pieces, before):
    """The numbers of the letter before, as if they were those of this one."""
    new, old = (wire.Piece.FromString(messages[0]) for messages in (pieces, before))
    old.head.address.CopyFrom(new.head.address)
    return [old.SerializeToString(), *before[1:]]
