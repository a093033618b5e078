"""The network of one client in a federation: the exchanges of an algorithm as messages.

All nodes run the same algorithm, so the n-th exchange of an iteration is the same at every node and
has the id (generation, iteration, n). An exchange puts this node's messages into its outbox and
fetches those of the in-neighbours with the same id.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor

from tacit.core.errors import Diverged, Misuse
from tacit.core.fixed_point import IntegerRows, wrapped
from tacit.core.rows import CodedRows, Sent, received
from tacit.peer.node.checkpoint_policy import write_with_retry
from tacit.peer.node.neighbour_client import NeighbourClient
from tacit.peer.node.node_state import NodeState
from tacit.peer.node.plausible_values import check_values, largest_of_each
from tacit.peer.node.transcript_log import TranscriptLog
from tacit.peer.node.tree_place import TreePlace
from tacit.peer.wire.messages import (
    Envelope,
    ExchangeId,
    ExpectedMessage,
    Rejected,
    Tensors,
    WireMessage,
    pack,
    raw_bytes,
)

CheckSent = Callable[[ExchangeId, bytes], None]

SPACE_CHECK_SECONDS = 0.25
SUSPICIOUS = 1e3  # times the numbers of this node: accepted, but named if the state diverges
MAX_OUTBOX_BYTES = 1 << 29  # kept for one neighbour that does not save; then this node waits


class PeerNetwork:
    """The network that one client sees in one generation: see tacit.core.here.Network."""

    def __init__(
        self,
        state: NodeState,
        clients: Sequence[NeighbourClient],
        check_sent: CheckSent,
        transcript: TranscriptLog | None = None,
    ) -> None:
        """See RosterContext.build.

        `clients` are the in-neighbours in the order of their positions, as in-edges are.
        """
        self.manifest, self.name = state.manifest, state.name
        self.clients = list(clients)
        self.received_since_saved = 0  # bytes from each neighbour
        self.saved = -1  # tick up to which neighbours may drop their messages
        self._state, self._check_sent, self._transcript = state, check_sent, transcript
        self._receivers = [member.name for member in self.manifest.out_neighbours(self.name)]
        own = self.manifest.position(self.name)
        columns = sorted([own, *(self.manifest.position(one.member.name) for one in clients)])
        self._own_index = columns.index(own)
        row = self.manifest.graph.weights[[own], :].toarray()[0]
        self._weights = [float(row[column]) for column in columns]
        self._tick, self._index = 0, 0
        self._frame = bytearray()  # for messages that are used at once, one after the other
        self._counts = (0, 0)  # exchanges in the last two ticks
        self._early: ExchangeId | None = None  # what was requested before its time
        self._is_regular = True  # no such request was wrong
        self.suspicion = ""  # which neighbour may have made this node's state infinite, as text
        self._extreme = 0.0

    @cached_property
    def _tree(self) -> TreePlace:
        return TreePlace.of(self.manifest, self.name)

    def start_tick(self, tick: int) -> None:
        """Number the following exchanges within this tick."""
        if tick != self._tick:
            self._counts = (self._counts[1], self._index)
            self._tick, self._index = tick, 0

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """Σⱼ wᵢⱼ xⱼ as rows [1, P], summed in the order of clients to round like W x.

        A message is added as soon as it has arrived, so that one at a time is in memory.
        """
        own = {tag: received(sent)[0] for tag, sent in rows.items()}
        sums: dict[str, Tensor] = {}
        weights, before = iter(self._weights), self._own_index

        def add(found: Tensors) -> None:
            weight = next(weights)
            for tag in rows:
                if tag in sums:
                    sums[tag].add_(found[tag], alpha=weight)
                else:
                    sums[tag] = found[tag] * weight

        for position, theirs in enumerate(self._exchange_alike(rows, reuse=True)):
            if position == before:
                add(own)
            add(theirs)
        if before == len(self.clients):
            add(own)
        return tuple(total[None] for total in sums.values())

    def broadcast(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """The row of each in-neighbour [f, P], for robust mixing."""
        theirs = list(self._exchange_alike(rows))
        return tuple(
            torch.stack([tensors[tag] for tensors in theirs]) if theirs else own[:0]
            for tag, own in rows.items()
        )

    def _exchange_alike(
        self, rows: Mapping[str, Sent], *, reuse: bool = False
    ) -> Iterator[Tensors]:
        """Send the same rows to all out-neighbours; yield those of each in-neighbour.

        With `reuse` each is overwritten by the next.
        """
        coded = {tag: sent for tag, sent in rows.items() if isinstance(sent, CodedRows)}
        ours = {
            tag: (sent.encode() if isinstance(sent, CodedRows) else received(sent))[0]
            for tag, sent in rows.items()
        }
        own = largest_of_each([{tag: received(sent)[0] for tag, sent in coded.items()}])

        def decode(found: dict[str, Tensor]) -> Tensors:
            decoded = {tag: _decode(found[tag], sent) for tag, sent in coded.items()}
            check_values(decoded, own)
            return found | decoded

        return self._exchange({"": ours}, ours, decode, recorded=True, reuse=reuse)

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        """One row to each out-neighbour [e, P]; returns one row from each in-neighbour.

        TLS encrypts every row for its receiver, so `private` changes nothing.
        """
        messages = {to: {tag: row} for to, row in zip(self._receivers, edge_rows, strict=True)}
        like = {tag: edge_rows.new_empty(edge_rows.shape[1:])}
        theirs = list(self._exchange(messages, like, recorded=True))
        if not theirs:
            return edge_rows.new_empty(0, edge_rows.shape[1])
        return torch.stack([tensors[tag] for tensors in theirs])

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        self._is_regular = False
        return self._total(rows, recorded=True)

    def total_before_start(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        """As `total`, for what nodes agree on before the algorithm starts.

        It is no message of the algorithm, so it is not recorded. The rows must not depend on
        messages: a node that starts again then masks the same ones.
        """
        return self._total(rows, recorded=False)

    def _total(self, rows: Mapping[str, IntegerRows], *, recorded: bool) -> tuple[Tensor, ...]:
        tree = self._tree
        self._state.check_interrupted()
        masked = {tag: sent.masked()[0] for tag, sent in rows.items()}
        up, down = self._next_exchange(), self._next_exchange()
        # Its own row, before it is added to others: what it adds to may change without harm.
        own_row = hashlib.sha256(raw_bytes(torch.stack(list(masked.values())))).digest()
        if recorded:
            self._record(up, own_row)
        children = [client for client in self.clients if client.member.name in tree.children]
        like = [masked] * len(children)
        found = list(self._fetch(up, children, like, self.name, kept=recorded))
        sums: Tensors = {
            tag: wrapped(torch.stack([row, *(one[tag] for one in found)]).sum(0))
            for tag, row in masked.items()
        }
        if tree.parent is not None:
            self._publish(self._packed(up, {tree.parent: sums}), kept=recorded)
            (above,) = (one for one in self.clients if one.member.name == tree.parent)
            (sums,) = self._fetch(down, [above], [sums], self.name, kept=recorded)
        self._publish(self._packed(down, dict.fromkeys(tree.children, sums)), kept=recorded)
        self._wait_for_space()
        return tuple(sent.decode(sums[tag][None]) for tag, sent in rows.items())

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        problem = "The algorithm needs a server, and a federation has none."
        raise Misuse(problem, "Choose a decentralized algorithm.")

    def cancel(self) -> None:
        """Make all waiting raise Stopped; any thread may call this."""
        for client in self.clients:
            client.cancel()

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def exchange(
        self,
        messages: Mapping[str, Tensors],
        like: Tensors,
        decode: Callable[[dict[str, Tensor]], Tensors] = lambda found: found,
    ) -> list[Tensors]:
        """Publish messages by receiver ("" for all); fetch one from each client, in their order.

        Those received have the tags, types and shapes of `like` before `decode`. This is for what
        nodes agree on before the algorithm starts, which has neither noise nor masks.
        """
        return list(self._exchange(messages, like, decode))

    def _exchange(
        self,
        messages: Mapping[str, Tensors],
        like: Tensors,
        decode: Callable[[dict[str, Tensor]], Tensors] = lambda found: found,
        *,
        recorded: bool = False,
        reuse: bool = False,
    ) -> Iterator[Tensors]:
        """As `exchange`; yields messages in turn, so that they need not all be in memory.

        What an algorithm sends is recorded. With `reuse` each message is overwritten by the next.
        """
        self._state.check_interrupted()
        exchange = self._next_exchange()
        own = largest_of_each(messages.values())
        self._check_finite(own, exchange)
        packed = self._packed(exchange, messages)
        if recorded:
            digests = b"".join(message.sha256 for message in packed)
            self._record(exchange, hashlib.sha256(digests).digest())
        self._publish(packed, kept=recorded)
        to_us = "" if "" in messages else self.name

        def check_and_decode(sender: str, found: dict[str, Tensor]) -> Tensors:
            value, ours = check_values(found, own), max(own.values(), default=0.0)
            self._note_extreme(value / max(1.0, ours), value, sender, exchange.tick)
            return decode(found)

        like_each = [like] * len(self.clients)
        yield from self._fetch(
            exchange, self.clients, like_each, to_us, check_and_decode, kept=recorded, reuse=reuse
        )
        if recorded:
            self._request_next(exchange)
        self._wait_for_space()

    def _request_next(self, done: ExchangeId) -> None:
        """Request the messages of the next exchange, so that they arrive while this node computes.

        It is known if all ticks have as many exchanges.
        """
        usual, number = self._counts[1], self.manifest.number
        self._is_regular &= self._early in (None, done)
        if not self._is_regular or self._counts != (usual, usual) or not usual:
            return
        if done.index + 1 < usual:
            self._early = ExchangeId(number, done.tick, done.index + 1)
        elif done.tick < self._state.progress.steps:
            self._early = ExchangeId(number, done.tick + 1, 0)
        else:
            return
        for client in self.clients:
            client.request_early(self._early, self.saved)

    def _note_extreme(self, ratio: float, value: float, sender: str, tick: int) -> None:
        """Remember which neighbour sent the most extreme numbers."""
        if ratio > max(SUSPICIOUS, self._extreme):
            self._extreme = ratio
            self.suspicion = (
                f" Or it is due to {sender}, which sent {value:.3g} at iteration {tick}: "
                f"{ratio:,.0f} times the numbers of this node."
            )

    def _next_exchange(self) -> ExchangeId:
        exchange = ExchangeId(self.manifest.number, self._tick, self._index)
        self._index += 1
        return exchange

    def _record(self, exchange: ExchangeId, digest: bytes) -> None:
        """Record what is about to be sent, and wait as long as the disk is full."""
        write = partial(self._check_sent, exchange, digest)
        write_with_retry(self._state, "the record of messages", write)

    def _check_finite(self, own: Mapping[str, float], exchange: ExchangeId) -> None:
        """Raise Diverged instead of sending what is not finite."""
        for tag, value in own.items():
            if not math.isfinite(value):
                raise Diverged(
                    f"{tag} is not finite at iteration {exchange.tick}: nothing was sent. "
                    f"Try a smaller step size or less noise.{self.suspicion}"
                )

    def _packed(self, exchange: ExchangeId, messages: Mapping[str, Tensors]) -> list[WireMessage]:
        """Messages by receiver ("" for all) as they are sent."""
        return [
            pack(Envelope(self.manifest.federation, self.name, receiver, exchange), tensors)
            for receiver, tensors in messages.items()
        ]

    def _publish(self, packed: Sequence[WireMessage], *, kept: bool) -> None:
        """Put messages into the outbox, and before that into the transcript if they are kept."""
        for message in packed:
            if kept and self._transcript is not None:
                self._transcript.add(message)
            self._state.active.outbox.put(message)

    def _fetch(
        self,
        exchange: ExchangeId,
        clients: Sequence[NeighbourClient],
        like: Sequence[Tensors],
        to_us: str,
        decode: Callable[[str, dict[str, Tensor]], Tensors] = lambda sender, found: found,
        *,
        kept: bool = True,
        reuse: bool = False,
    ) -> Iterator[Tensors]:
        """Wait for one message from each of the clients, like the tensors given for it.

        They are put into the transcript if they are `kept`. With `reuse` each may be overwritten by
        the next.
        """
        state, federation = self._state, self.manifest.federation
        # Request all messages before waiting for the first.
        for client in clients:
            client.request(exchange, self.saved)
        phase = state.progress.phase
        keep = self._transcript.add if kept and self._transcript is not None else None
        # A thread writes the transcript: what it gets must not be overwritten.
        reuse &= keep is None
        for position, (client, tensors) in enumerate(zip(clients, like, strict=True)):
            late, sender = clients[position:], client.member.name
            expected = ExpectedMessage(Envelope(federation, sender, to_us, exchange), tensors)
            on_wait = partial(self._report_wait, late)
            if reuse and len(self._frame) != expected.size:
                self._frame = bytearray(expected.size)
            state.waiting_since = time.monotonic()
            state.awaited = tuple(one.member.name for one in late)
            try:
                frame = self._frame if reuse else None
                found = client.receive(expected, partial(decode, sender), on_wait, frame, keep)
            finally:
                state.awaited = ()
            self._report_end_of_wait(phase)
            yield found
        if like:
            self.received_since_saved += sum(row.nbytes for row in like[0].values())

    def _report_wait(self, late: Sequence[NeighbourClient]) -> None:
        """Report the clients whose messages have not arrived."""
        names = [
            f"{client.member.name} ({client.report})" if client.report else client.member.name
            for client in late
        ]
        refusals = [client.refusal for client in late if client.refusal]
        problem = f"{self.name} {refusals[0]}" if refusals else ""
        self._state.report(phase="waiting", waiting_for=tuple(names), problem=problem)

    def _report_end_of_wait(self, phase: str) -> None:
        if self._state.progress.waiting_for:
            self._state.report(phase=phase, waiting_for=(), problem="")

    def _wait_for_space(self) -> None:
        """Wait while the outbox keeps too many bytes that neighbours have not saved."""
        state, phase = self._state, self._state.progress.phase
        while late := state.active.outbox.wait_for_space(MAX_OUTBOX_BYTES, SPACE_CHECK_SECONDS):
            problem = "neighbours do not save the messages they receive; check their disks"
            state.report(phase="waiting", waiting_for=tuple(late), problem=problem)
            state.check_interrupted()
        self._report_end_of_wait(phase)


def _decode(row: Tensor, sent: CodedRows) -> Tensor:
    """The numbers of a received row, which is compressed."""
    try:
        return sent.decode(row[None])[0]
    except Misuse as problem:
        raise Rejected("codec", str(problem)) from None
