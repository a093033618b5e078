"""Compares digests with the neighbours from time to time, beside the training."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tacit.peer.federation.equivocation import Sender
from tacit.peer.node.digest_witness import DigestWitness
from tacit.peer.node.fresh_keys import FreshKeys
from tacit.peer.node.neighbour_client import NeighbourClient
from tacit.peer.node.node_state import NodeState
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.messages import ExchangeId, Rejected

SECONDS = 1.0  # between two comparisons
MAX_BYTES = 1 << 19  # of lists in one call


def check_and_record(
    fresh: FreshKeys, witness: DigestWitness, exchange: ExchangeId, digest: bytes
) -> None:
    """Record what is about to be sent on the disk, and for lists of digests."""
    fresh.check_sent(exchange, digest)
    witness.record_sent(exchange, digest)


def begin_witness(state: NodeState, salts: Mapping[str, bytes], fresh: FreshKeys) -> None:
    """Compare digests under the active roster, whose members have agreed on these salts."""
    manifest = state.manifest
    senders = {
        name: Sender(manifest.federation, manifest.number, name, salt)
        for name, salt in salts.items()
    }
    state.witness.begin(state.name, senders, fresh.sent_before())


class DigestComparison:
    """Asks neighbours for the digests of what they sent, and passes on those of others."""

    def __init__(self, state: NodeState, clients: Sequence[NeighbourClient]) -> None:
        self._state, self._clients = state, clients
        self._passed_on: Counter[str] = Counter()  # lists, by neighbour
        self._running = threading.Lock()

    @contextmanager
    def run(self) -> Iterator[None]:
        """Compare while the block runs."""
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(SECONDS):
                self.compare()

        thread = threading.Thread(target=repeat, name="digests", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()

    def compare(self) -> None:
        """Compare with every neighbour once."""
        with self._running:
            for client in self._clients:
                self._compare_with(client)

    def _compare_with(self, client: NeighbourClient) -> None:
        state, name, witness = self._state, client.member.name, self._state.witness
        number, known = witness.lists_since(self._passed_on[name], name, MAX_BYTES)
        request = wire.DigestRequest(
            generation=client.generation, after=witness.last_signed(name), known=known
        )
        reply = client.compare_digests(request)
        witness.note_comparison(name)
        if reply is None:
            return
        self._passed_on[name] = number
        for signed in reply.lists:
            try:
                witness.receive(signed, name)
            except Rejected as problem:
                state.reject(problem.reason, name, str(problem))
                return
