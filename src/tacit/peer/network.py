"""The network of one client among peers: the verbs of an algorithm as letters.

All peers run the same text, so the n-th exchange of an iteration is the same exchange everywhere: its address is
(epoch, iteration, n). A verb puts the own letters out and fetches those of the in-neighbours at the same address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

import torch
from torch import Tensor

from tacit.errors import Diverged, Misuse
from tacit.peer.desk import Desk
from tacit.peer.frames import Address, Envelope, Rejected, pack, refuse_not_finite
from tacit.peer.line import RECEIVED, Left, Line, refused_as
from tacit.peer.manifest import Manifest
from tacit.rows import CodedRows, Sent, received

GLANCE = 0.25  # seconds between two looks at who has not answered
ROOM = 1 << 29  # bytes of letters that are kept for neighbours that do not save; then we wait for them


class PeerNetwork:
    """The network as the client `name` sees it in one epoch: see tacit.clients.Network."""

    def __init__(self, desk: Desk, lines: Sequence[Line]) -> None:
        manifest, name = desk.manifest, desk.name
        self.received_since_saved = 0  # the most bytes that one neighbour keeps for us
        self.saved = -1  # up to which iteration neighbours may forget
        self._desk = desk
        self._manifest = manifest
        self._position = _position(manifest, name)
        self._lines = list(lines)  # by position, as rows of in-edges are
        self._targets = [member.name for member in manifest.out_neighbours(name)]
        places = [_position(manifest, line.member.name) for line in lines]
        self._before = sum(place < self._position for place in places)  # of the lines, in the order of clients
        row = manifest.graph.weights[[self._position], :].toarray()[0]
        self._weights = [float(row[place]) for place in sorted([*places, self._position])]
        self._tick, self._exchange = 0, 0
        self._pool = ThreadPoolExecutor(max(1, len(self._lines)), thread_name_prefix="fetch")

    def at(self, tick: int) -> None:
        """What follows belongs to this iteration."""
        if tick != self._tick:
            self._tick, self._exchange = tick, 0

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """Σⱼ wᵢⱼ xⱼ for the one hosted client [1, P]."""
        ours = {
            tag: sent.encode()[0] if isinstance(sent, CodedRows) else sent[0] for tag, sent in rows.items()
        }

        def decoded(found: dict[str, Tensor]) -> RECEIVED:
            return refused_as(
                "codec", lambda: {tag: _decoded(tag, found[tag], sent) for tag, sent in rows.items()}
            )

        heard = self._exchanged({"": ours}, ours, decoded)
        return tuple(
            self._weighted(received(sent)[0], [words[tag] for words in heard]) for tag, sent in rows.items()
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
            "The algorithm needs a server, and a federation has none.", "Choose a decentralized one."
        )

    def tell_each(self, letters: Mapping[str, RECEIVED], like: RECEIVED) -> list[RECEIVED]:
        """A letter of its own kind to each out-neighbour; what the in-neighbours wrote to us, which is like `like`."""
        return self._exchanged(letters, like, lambda found: found, personal=True)

    def close(self) -> None:
        """Give all connections up."""
        for line in self._lines:
            line.close()
        self._pool.shutdown(wait=True)

    @property
    def lines(self) -> list[Line]:
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
        address = Address(self._manifest.epoch, self._tick, self._exchange)
        self._exchange += 1
        for receiver, tensors in letters.items():
            for tag, row in tensors.items():
                _refuse_divergence(tag, row, address)
            outbox.post(pack(Envelope(self._manifest.federation, desk.name, receiver, address), tensors))
        receiver = desk.name if personal else ""
        futures: dict[Line, Future[RECEIVED]] = {}
        for line in self._lines:
            envelope = Envelope(self._manifest.federation, line.member.name, receiver, address)
            futures[line] = self._pool.submit(line.fetch, address, self.saved, envelope, like, check)
        self._await(futures)
        size = sum(row.numel() * row.element_size() for row in like.values())
        self.received_since_saved += size
        while outbox.bytes > ROOM and (late := outbox.wait_for_room(ROOM, GLANCE)):
            desk.report(
                phase="waiting", waiting_for=tuple(late), problem="neighbours do not save what they get"
            )
            if desk.interrupted:
                raise Left
        return [future.result() for future in futures.values()]

    def _await(self, futures: Mapping[Line, Future[RECEIVED]]) -> None:
        """Wait for all, telling whom we wait for; leave when the node is to stop or to go over."""
        desk, looked = self._desk, False
        while True:
            done, pending = wait(futures.values(), GLANCE, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()  # raises what went wrong
            if not pending:
                break
            if desk.interrupted:
                for line in futures:
                    line.cancel()
                wait(futures.values())
                raise Left
            looked = True
            desk.report(phase="waiting", waiting_for=tuple(_described(futures)), problem="")
        if looked:
            desk.report(phase="training", waiting_for=(), problem="")

    def _weighted(self, own: Tensor, others: list[Tensor]) -> Tensor:
        """Σⱼ wᵢⱼ xⱼ as one row [1, P]: in the order of clients, as a product with W sums, so that both round alike."""
        total = torch.zeros_like(own)
        rows = [*others[: self._before], own, *others[self._before :]]
        for weight, row in zip(self._weights, rows, strict=True):
            total.add_(row, alpha=weight)
        return total[None]


def _described(futures: Mapping[Line, Future[RECEIVED]]) -> Iterator[str]:
    for line, future in futures.items():
        if not future.done():
            yield f"{line.member.name} ({line.heard})" if line.heard else line.member.name


def _decoded(tag: str, row: Tensor, sent: Sent) -> Tensor:
    """What a received row stands for: itself, or what the codec makes of it."""
    if not isinstance(sent, CodedRows):
        return row
    rows = sent.decode(row[None])[0]
    refuse_not_finite(tag, rows)
    return rows


def _refuse_divergence(tag: str, row: Tensor, address: Address) -> None:
    try:
        refuse_not_finite(tag, row)
    except Rejected:
        raise Diverged(
            f"{tag} is not finite at iteration {address.tick}: nothing was sent. Try a smaller step size or less noise."
        ) from None


def _position(manifest: Manifest, name: str) -> int:
    place = manifest.position(name)
    if place is None:
        raise ValueError(f"{name} is not in the roster of epoch {manifest.epoch}")
    return place
