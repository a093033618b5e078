"""The network of one client among peers: the verbs of an algorithm as letters.

All peers run the same text, so the n-th exchange of an iteration is the same exchange everywhere: its address is
(generation, iteration, n). A verb puts the own letters out and fetches those of the in-neighbours at the same address.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from tacit.core.errors import Diverged, Misuse
from tacit.core.rows import CodedRows, Sent, received
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.state import Awaited, NodeState
from tacit.peer.wire.frames import Address, Envelope, Expected, Rejected, is_finite, pack
from tacit.peer.wire.neighbour_client import RECEIVED, NeighbourClient, Stopped

GLANCE = 0.25  # seconds between two looks at who has not answered
ROOM = (
    1 << 29
)  # bytes of letters that are kept for neighbours that do not save; then we wait for them


class PeerNetwork:
    """The network as the client `name` sees it in one generation: see tacit.core.here.Network."""

    def __init__(self, desk: NodeState, lines: Sequence[NeighbourClient]) -> None:
        manifest, name = desk.manifest, desk.name
        self.received_since_saved = 0  # the most bytes that one neighbour keeps for us
        self.saved = -1  # up to which iteration neighbours may forget
        self._desk = desk
        self._manifest = manifest
        self._position = _position(manifest, name)
        self._lines = list(lines)  # by position, as rows of in-edges are
        self._targets = [member.name for member in manifest.out_neighbours(name)]
        places = [_position(manifest, line.member.name) for line in lines]
        self._before = sum(
            place < self._position for place in places
        )  # of the lines, in the order of clients
        row = manifest.graph.weights[[self._position], :].toarray()[0]
        self._weights = [float(row[place]) for place in sorted([*places, self._position])]
        self._tick, self._exchange = 0, 0

    def at(self, tick: int) -> None:
        """What follows belongs to this iteration."""
        if tick != self._tick:
            self._tick, self._exchange = tick, 0

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """Σⱼ wᵢⱼ xⱼ for the one hosted client [1, P]."""
        ours = {
            tag: (sent.encode() if isinstance(sent, CodedRows) else received(sent))[0]
            for tag, sent in rows.items()
        }

        def decoded(found: dict[str, Tensor]) -> RECEIVED:
            return {tag: _decoded(tag, found[tag], sent) for tag, sent in rows.items()}

        heard = self._exchanged({"": ours}, ours, decoded)
        return tuple(
            self._weighted(received(sent)[0], [words[tag] for words in heard])
            for tag, sent in rows.items()
        )

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        """A row to each out-neighbour; the rows of the in-neighbours. Each is encrypted to the other end by TLS."""
        letters = {target: {tag: row} for target, row in zip(self._targets, edge_rows, strict=True)}
        like = {tag: edge_rows.new_empty(edge_rows.shape[1:])}
        heard = self._exchanged(letters, like, lambda found: found, personal=True)
        return (
            torch.stack([words[tag] for words in heard])
            if heard
            else edge_rows.new_empty(0, edge_rows.shape[1])
        )

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """Refused: there is no server."""
        raise Misuse(
            "The algorithm needs a server, and a federation has none.",
            "Choose a decentralized one.",
        )

    def tell_each(self, letters: Mapping[str, RECEIVED], like: RECEIVED) -> list[RECEIVED]:
        """A letter of its own kind to each out-neighbour; what the in-neighbours wrote to us, which is like `like`."""
        return self._exchanged(letters, like, lambda found: found, personal=True)

    def cancel(self) -> None:
        """Leave whatever is waited for; may come from any thread."""
        for line in self._lines:
            line.cancel()

    def close(self) -> None:
        """Give all connections up."""
        for line in self._lines:
            line.close()

    @property
    def lines(self) -> list[NeighbourClient]:
        """To the in-neighbours."""
        return self._lines

    def _exchanged(
        self,
        letters: Mapping[str, RECEIVED],
        like: RECEIVED,
        check: Callable[[dict[str, Tensor]], RECEIVED],
        personal: bool = False,
    ) -> list[RECEIVED]:
        """Put our letters out and fetch everybody's; in the order of the lines."""
        desk, outbox = self._desk, self._desk.standing.outbox
        if desk.interrupted:
            raise Stopped
        address = Address(self._manifest.generation, self._tick, self._exchange)
        self._exchange += 1
        for receiver, tensors in letters.items():
            for tag, row in tensors.items():
                _refuse_divergence(tag, row, address)
            outbox.post(
                pack(Envelope(self._manifest.federation, desk.name, receiver, address), tensors)
            )
        receiver = desk.name if personal else ""
        wants = [
            line.ask(address, self.saved) for line in self._lines
        ]  # all, before waiting for one
        heard: list[RECEIVED] = []
        begun, before = time.monotonic(), desk.progress.phase
        try:
            for line, want in zip(self._lines, wants, strict=True):
                desk.awaited = Awaited(
                    tuple(late.member.name for late in self._lines[len(heard) :]), begun
                )
                envelope = Envelope(self._manifest.federation, line.member.name, receiver, address)
                expected = Expected(envelope, like)
                heard.append(
                    line.receive(want, address, expected, check, lambda: self._waiting(len(heard)))
                )
        finally:
            desk.awaited = Awaited()
        if desk.progress.waiting_for:
            desk.report(phase=before, waiting_for=(), blamed=(), problem="")
        self.received_since_saved += sum(row.numel() * row.element_size() for row in like.values())
        self._wait_for_room()
        return heard

    def _waiting(self, arrived: int) -> None:
        """Tell whom we wait for: those after the letters that have arrived."""
        late = [
            f"{line.member.name} ({line.heard})" if line.heard else line.member.name
            for line in self._lines[arrived:]
        ]
        first = self._lines[arrived]
        blamed = first.blames or (first.member.name,)
        self._desk.report(phase="waiting", waiting_for=tuple(late), blamed=blamed, problem="")

    def _wait_for_room(self) -> None:
        """Go on only when neighbours let us forget enough: what we keep for them is bounded."""
        desk, outbox, before = self._desk, self._desk.standing.outbox, self._desk.progress.phase
        while late := outbox.wait_for_room(ROOM, GLANCE):
            desk.report(
                phase="waiting",
                waiting_for=tuple(late),
                problem="neighbours do not save what they get",
            )
            if desk.interrupted:
                raise Stopped
        if desk.progress.waiting_for:
            desk.report(phase=before, waiting_for=(), blamed=(), problem="")

    def _weighted(self, own: Tensor, others: list[Tensor]) -> Tensor:
        """Σⱼ wᵢⱼ xⱼ as one row [1, P]: in the order of clients, as a product with W sums, so that both round alike."""
        total = torch.zeros_like(own)
        rows = [*others[: self._before], own, *others[self._before :]]
        for weight, row in zip(self._weights, rows, strict=True):
            total.add_(row, alpha=weight)
        return total[None]


def _decoded(tag: str, row: Tensor, sent: Sent) -> Tensor:
    """What a received row stands for: itself, or what the codec makes of it."""
    if not isinstance(sent, CodedRows):
        return row
    try:
        rows = sent.decode(row[None])[0]
    except Misuse as problem:
        raise Rejected("codec", str(problem)) from None
    if not is_finite(rows):
        raise Rejected("not finite", f"{tag} stands for NaN or infinity")
    return rows


def _refuse_divergence(tag: str, row: Tensor, address: Address) -> None:
    if not is_finite(row):
        raise Diverged(
            f"{tag} is not finite at iteration {address.tick}: nothing was sent. Try a smaller step size or less noise."
        )


def _position(manifest: Manifest, name: str) -> int:
    place = manifest.position(name)
    if place is None:
        raise ValueError(f"{name} is not in the roster of generation {manifest.generation}")
    return place
