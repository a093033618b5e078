"""The line to one neighbour: asks for its letters until they come, through whatever the network does meanwhile."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from torch import Tensor

from tacit.peer.federation.identity import Credentials
from tacit.peer.federation.manifest import Member
from tacit.peer.node.state import NodeState
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.chunks import Assembly, read_piece, to_wire
from tacit.peer.wire.frames import Address, Expected, Rejected
from tacit.peer.wire.transport import SERVICE, channel

QUICK, SLOW = 0.05, 3.0  # seconds between attempts: doubled from the one to the other
HELLO_PATIENCE = 10.0  # seconds for an answer to a short question
FAREWELL_PATIENCE = 2.0
AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

RECEIVED = Mapping[str, Tensor]
Check = Callable[[dict[str, Tensor]], RECEIVED]


class Stopped(Exception):
    """The node was asked to stop, or to go over to another roster, while it waited."""


class RosterChanged(Exception):
    """The neighbour goes by the roster of another generation."""


class NeighbourClient:
    """One in-neighbour of this node. One thread asks and receives; `cancel` may come from any."""

    def __init__(self, desk: NodeState, member: Member, own: Credentials, ca: bytes) -> None:
        self.member = member
        self.heard = ""  # what the neighbour last said of itself while we waited
        self.blames: tuple[str, ...] = ()  # for whom it waits itself, as it says
        self._desk = desk
        self._channel = channel(member.address, member.name, desk.manifest.federation, own, ca)
        self._stream: Any = None
        self._wants: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._asked: bytes | None = None  # the Want that the neighbour is about to answer
        self._cancelled = threading.Event()

    def ask(self, address: Address, saved: int) -> bytes:
        """Say which letter is wanted next, if the connection stands: `receive` is where it is waited for."""
        want = wire.Want(address=to_wire(address), manifest=self._desk.manifest.hash, saved=saved)
        raw: bytes = want.SerializeToString()
        if self._stream is not None:
            self._put(raw)
        return raw

    def receive(
        self,
        want: bytes,
        address: Address,
        expected: Expected,
        check: Check,
        waiting: Callable[[], None],
    ) -> RECEIVED:
        """The tensors of the letter that was asked for, asked for again until it comes and is what it must be.

        `check` may look further into it, raise Rejected, and turn it into what it stands for; `waiting` is called now
        and then while nothing comes.
        """
        failures, begun = 0, time.monotonic()
        while True:
            if self._cancelled.is_set():
                raise Stopped
            try:
                frame = self._letter(want, address, expected.size, waiting)
                found = check(expected.unpack(frame))
            except Rejected as problem:
                self._desk.reject(problem.reason, self.member.name, str(problem))
            except RosterChanged:
                pass  # settled by the next Hello
            except grpc.RpcError as problem:
                self._note(problem)
            else:
                self._arrived(expected.size, time.monotonic() - begun)
                return found
            self._close()
            waiting()
            self._pause(failures)
            failures += 1

    def say_farewell(self, generation: int, tick: int) -> bool:
        """Tell the neighbour that we need nothing more; whether it has noted that."""
        ended = wire.Ended(generation=generation, tick=tick).SerializeToString()
        try:
            self._call("Farewell", ended, FAREWELL_PATIENCE)
        except grpc.RpcError as problem:
            self._note(problem)
            if problem.code() == grpc.StatusCode.FAILED_PRECONDITION:
                self._ask_for_news()
            return False
        return True

    def _ask_for_news(self) -> None:
        """The neighbour sees things otherwise: it may go by a newer roster."""
        try:
            self._hello()
        except Rejected as problem:
            self._desk.reject(problem.reason, self.member.name, str(problem))
        except grpc.RpcError as problem:
            self._note(problem)
        except RosterChanged:
            pass  # the news is told, one way or the other

    def cancel(self) -> None:
        """Make `receive` leave with Left, now and from now on."""
        self._cancelled.set()
        stream = self._stream
        if stream is not None:
            stream.cancel()

    def close(self) -> None:
        """Give the connection up."""
        self.cancel()
        self._close()
        self._channel.close()

    def _letter(
        self, want: bytes, address: Address, size: int, waiting: Callable[[], None]
    ) -> bytearray:
        if self._stream is None:
            self._hello()
            self._open()
        if self._asked != want:
            self._put(want)
        assembly: Assembly | None = None
        for raw in self._stream:
            piece = read_piece(raw)
            if piece.notice is not None:
                self._heard(piece.notice, address)
                waiting()
            if piece.head is not None:
                if assembly is not None:
                    raise Rejected("malformed", "a second head within one letter")
                assembly = Assembly(piece.head, address, size)
            if piece.data is not None:
                if assembly is None:
                    raise Rejected("malformed", "bytes of a letter before its head")
                if assembly.add(piece.data):
                    self._asked = None
                    return assembly.frame
        raise Rejected("truncated", "the stream ended within a letter")

    def _heard(self, notice: wire.Notice, address: Address) -> None:
        if notice.generation != address.generation:
            raise RosterChanged
        self.blames = tuple(name[:40] for name in notice.waiting_for[:4] if name != self._desk.name)
        others = f", waiting for {', '.join(self.blames)}" if self.blames else ""
        self.heard = f"at iteration {notice.tick}{others}"

    def _open(self) -> None:
        wants: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

        def asked() -> Iterator[bytes]:
            while (raw := wants.get()) is not None:
                yield raw

        self._wants, self._asked = wants, None
        self._stream = self._channel.stream_stream(f"/{SERVICE}/Letters")(asked())
        if self._cancelled.is_set():
            self._stream.cancel()

    def _put(self, want: bytes) -> None:
        self._asked = want
        self._wants.put(want)

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        self._asked = None
        self._wants.put(None)
        if stream is not None:
            stream.cancel()

    def _hello(self) -> None:
        """Make sure that both go by the same manifest; whoever has the older one is given the newer."""
        desk = self._desk
        ours = desk.greeting()
        try:
            theirs = wire.Greeting.FromString(self._call("Hello", ours.SerializeToString()))
        except DecodeError:
            raise Rejected("malformed", "an answer to Hello that is no Greeting") from None
        if why := desk.mismatch(theirs):
            raise Rejected("configuration", why)
        if theirs.generation > ours.generation:
            self._learn()
            raise RosterChanged
        if theirs.generation < ours.generation:
            text, signature = desk.folder.signed()
            self._call(
                "Announce",
                wire.SignedManifest(manifest=text, signature=signature).SerializeToString(),
            )
            raise RosterChanged
        desk.metrics.set("tacit_neighbour_up", 1, neighbour=self.member.name)
        desk.event_log.write_throttled(
            60, ("connected", self.member.name), "connected", neighbour=self.member.name
        )

    def _learn(self) -> None:
        """Ask the neighbour for the newer manifest that it goes by."""
        try:
            signed = wire.SignedManifest.FromString(self._call("Roster", b""))
        except DecodeError:
            raise Rejected("malformed", "an answer to Roster that is no manifest") from None
        if signed.manifest == self._desk.manifest.text:
            raise Rejected(
                "manifest", "it says that it goes by a newer manifest, and gives us our own"
            )
        self._desk.told(signed, self.member.name)

    def _call(self, method: str, raw: bytes, patience: float = HELLO_PATIENCE) -> bytes:
        answer: bytes = self._channel.unary_unary(f"/{SERVICE}/{method}")(raw, timeout=patience)
        return answer

    def _arrived(self, size: int, seconds: float) -> None:
        metrics, name = self._desk.metrics, self.member.name
        self.heard, self.blames = "", ()
        metrics.count("tacit_received_bytes_total", size, neighbour=name)
        metrics.count("tacit_letters_received_total", neighbour=name)
        metrics.count("tacit_wait_seconds_total", seconds, neighbour=name)

    def _note(self, problem: Any) -> None:
        """Log why a call failed; a neighbour that is away is no error."""
        if self._cancelled.is_set():
            return
        code, why = problem.code(), str(problem.details())[:500]
        name, desk = self.member.name, self._desk
        desk.metrics.set("tacit_neighbour_up", 0, neighbour=name)
        if "CERTIFICATE_VERIFY_FAILED" in why:
            self.heard = f"its certificate {'has expired' if 'expired' in why else 'is not of our authority'}"
            desk.event_log.write_throttled(
                30, ("certificate", name), "certificate refused", "warning", neighbour=name, why=why
            )
        elif code in AWAY:
            self.heard = "not reached"
            desk.event_log.write_throttled(
                30, ("away", name), "neighbour not reached", neighbour=name, why=why
            )
        else:
            self.heard = f"refuses us: {why[:200]}"
            key = ("refused", name, code)
            facts = {"neighbour": name, "code": code.name, "why": why}
            desk.event_log.write_throttled(30, key, "refused by neighbour", "warning", **facts)

    def _pause(self, failures: int) -> None:
        """Wait before the next attempt: longer each time, and never all at once."""
        self._desk.metrics.count("tacit_retries_total", neighbour=self.member.name)
        longest = min(SLOW, QUICK * 2 ** min(failures, 20))
        self._cancelled.wait(longest * random.uniform(0.5, 1.0))
