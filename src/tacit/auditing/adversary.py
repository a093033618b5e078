"""Who listens: an eavesdropper, curious clients that may collude, a server, or several at once.

    Adversary.curious(0, 2)                       two clients that put together all they send, receive and hold
    Adversary.eavesdropper()                      every message that is not private, on all edges
    Adversary.server()                            what passes through the server, where there is one
    Adversary.curious(1) | Adversary.eavesdropper()
    Adversary.parse("curious(1)+eavesdropper+theta0")

All follow the protocol: they add nothing and change nothing. All know the algorithm, its options, the graph and the
model's architecture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import networkx as nx
import torch
from torch import Tensor

from tacit.core.arguments import is_count
from tacit.core.errors import Misuse
from tacit.record.transcript import Message, Transcript
from tacit.record.unknowns import Unknown

SYNTAX = 'Give e.g. "eavesdropper", "curious(0)", "curious(0,2)+eavesdropper" or "server"; add "+theta0" if known.'


@dataclass(frozen=True)
class Adversary:
    """What somebody listens to, and what it knows beforehand."""

    corrupt: frozenset[int] = frozenset()
    listens: bool = False  # to messages that are not private …
    edges: frozenset[tuple[int, int]] | None = None  # … on these edges (source, target), or on all
    is_server: bool = False
    knows_theta0: bool = False  # the first models of all clients

    @classmethod
    def curious(cls, *clients: int) -> Adversary:
        """Clients that follow the rules and pool all they see and hold."""
        if not clients or not all(is_count(client, 0) for client in clients):
            raise Misuse(
                f"curious{clients!r} names no clients.", "Give their numbers, e.g. curious(0, 2)."
            )
        return cls(corrupt=frozenset(clients))

    @classmethod
    def eavesdropper(cls, *edges: tuple[int, int]) -> Adversary:
        """An outsider who reads all messages that are not private, on all edges or on those named."""
        return cls(listens=True, edges=frozenset(edges) or None)

    @classmethod
    def server(cls) -> Adversary:
        """Whoever runs the server."""
        return cls(is_server=True)

    @classmethod
    def parse(cls, text: str) -> Adversary:
        """From words as the command line takes them."""
        parts = [part.strip() for part in text.split("+")]
        adversary = cls()
        for part in parts:
            if match := re.fullmatch(r"curious\(\s*(\d+(?:\s*,\s*\d+)*)\s*\)", part):
                adversary |= cls.curious(*map(int, match[1].split(",")))
            elif part == "eavesdropper":
                adversary |= cls.eavesdropper()
            elif part == "server":
                adversary |= cls.server()
            elif part == "theta0":
                adversary = replace(adversary, knows_theta0=True)
            else:
                raise Misuse(f"The adversary {text!r} is not understood at {part!r}.", SYNTAX)
        if adversary == cls() or adversary == cls(knows_theta0=True):
            raise Misuse(f"The adversary {text!r} listens to nothing.", SYNTAX)
        return adversary

    def __or__(self, other: Adversary) -> Adversary:
        """Both, sharing what they know."""
        everywhere = any(one.listens and one.edges is None for one in (self, other))
        named = (self.edges or frozenset()) | (other.edges or frozenset())
        return Adversary(
            self.corrupt | other.corrupt,
            self.listens or other.listens,
            None if everywhere or not named else named,
            self.is_server or other.is_server,
            self.knows_theta0 or other.knows_theta0,
        )

    def __str__(self) -> str:
        parts = [f"curious({','.join(map(str, sorted(self.corrupt)))})"] if self.corrupt else []
        if self.listens:
            parts.append(
                "eavesdropper" if self.edges is None else f"eavesdropper on {sorted(self.edges)}"
            )
        parts += ["server"] * self.is_server + ["theta0"] * self.knows_theta0
        return "+".join(parts)

    def knows(self, unknown: Unknown) -> bool:
        """Whether it has this without listening: what corrupt clients hold, and θ⁰ if it was told."""
        return unknown.known_to(self.corrupt) or (self.knows_theta0 and unknown.kind == "theta0")

    def sees(self, message: Message, edges: list[tuple[int, int]]) -> Tensor:
        """Which rows of a message it sees, bool [k]; `edges` are the graph's."""
        everyone = torch.ones(len(message.rows), dtype=torch.bool)
        hears_server = self.is_server or (
            self.listens and self.edges is None
        )  # links to it are no edges
        if message.verb == "broadcast":
            return everyone if self.corrupt or hears_server else ~everyone
        if message.verb == "average":
            own = [source in self.corrupt for source in message.source.tolist()]
            return everyone if hears_server else torch.tensor(own)
        if message.target is not None:
            ends = zip(message.source.tolist(), message.target.tolist(), strict=True)
            listens = self.listens and not message.private
            return torch.tensor([self._hears((s, t), listens) for s, t in ends])
        heard = {s for s, t in edges if self._hears((s, t), self.listens)}
        return torch.tensor([source in heard | self.corrupt for source in message.source.tolist()])

    def _hears(self, edge: tuple[int, int], listens: bool) -> bool:
        tapped = listens and (self.edges is None or edge in self.edges)
        return tapped or not self.corrupt.isdisjoint(edge)

    def refuse(self, clients: int, edges: list[tuple[int, int]]) -> None:
        """Refuse an adversary that is not on this graph."""
        for client in sorted(self.corrupt):
            if client >= clients:
                raise Misuse(
                    f"The adversary corrupts client {client}.",
                    f"Name clients from 0 to {clients - 1}.",
                )
        if len(self.corrupt) == clients:
            raise Misuse("The adversary corrupts every client.", "Leave at least one honest.")
        for edge in sorted(self.edges or ()):
            if edge not in edges:
                raise Misuse(
                    f"The eavesdropper taps {edge}, which is no edge.", "Name edges of the graph."
                )

    def honest_component(self, victim: int, transcript: Transcript) -> frozenset[int]:
        """The honest clients that the victim is still connected with when the corrupt ones are taken away.

        A server connects all of them.
        """
        honest = frozenset(range(transcript.clients)) - self.corrupt
        if any(message.verb == "average" for message in transcript.messages):
            return honest
        graph = nx.Graph()
        graph.add_nodes_from(honest)
        graph.add_edges_from((s, t) for s, t in transcript.edges if s in honest and t in honest)
        return frozenset(nx.node_connected_component(graph, victim))


def view(transcript: Transcript, adversary: Adversary) -> Iterator[tuple[int, Tensor]]:
    """The messages an adversary sees, by their place in the transcript, and which of their rows [k]."""
    for place, message in enumerate(transcript.messages):
        (rows,) = torch.where(adversary.sees(message, transcript.edges))
        if len(rows):
            yield place, rows
