"""Who attacks: an eavesdropper, clients that may collude, a server, or several of them.

Curious clients follow the protocol; malicious ones deviate in what they send. All adversaries know
the algorithm, its options, the graph and the model's architecture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import networkx as nx
import torch
from torch import Tensor

from tacit.auditing.active.behaviours import BEHAVIOURS
from tacit.auditing.client_names import client_name, listed
from tacit.core.checks import is_count
from tacit.core.errors import Misuse, unknown_name
from tacit.record.transcript import Message, Transcript
from tacit.record.unknowns import EVERY_CLIENT, Unknown

SYNTAX = (
    'Give e.g. "eavesdropper", "curious(0)", "curious(0,2)+eavesdropper", "server", "worst(2)", '
    'the worst two neighbours, or "malicious(1):echo"; add "+theta0" if first models are known.'
)


@dataclass(frozen=True)
class Adversary:
    """Which messages an adversary sees, and what it knows beforehand.

    Example:
        >>> both = Adversary.curious(1, 4) | Adversary.eavesdropper()
        >>> str(both), both == Adversary.parse("curious(1,4)+eavesdropper")
        ('curious(1,4)+eavesdropper', True)
    """

    # Curious and malicious clients: all they send, receive and hold.
    corrupt: frozenset[int] = frozenset()
    listens: bool = False  # to messages that are not private
    edges: frozenset[tuple[int, int]] | None = None  # (source, target) it listens on; None: all
    is_server: bool = False
    knows_theta0: bool = False  # the first models of all clients
    malicious: frozenset[int] = frozenset()  # those of the corrupt that deviate
    behaviour: str | None = None  # how they deviate; None: not chosen yet
    # Of what its clients hold, only what they share with this client; None: all of it. An audit of
    # a client's own transcript has no more.
    shares_with: int | None = None
    # Of all clients of the run, for texts; empty if they have none.
    names: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def curious(cls, *clients: int) -> Adversary:
        """Clients that follow the protocol and pool what they know."""
        _check_clients("curious", clients)
        return cls(corrupt=frozenset(clients))

    @classmethod
    def deviating(cls, *clients: int, behaviour: str | None = None) -> Adversary:
        """Clients that pool what they know and deviate from the protocol in what they send.

        `behaviour` is one of `tacit.auditing.active.behaviours.BEHAVIOURS`; None: each in turn.
        """
        _check_clients("malicious", clients)
        if behaviour is not None and behaviour not in BEHAVIOURS:
            raise unknown_name(f"No behaviour is called {behaviour!r}.", behaviour, BEHAVIOURS)
        members = frozenset(clients)
        return cls(corrupt=members, malicious=members, behaviour=behaviour)

    @property
    def passive(self) -> Adversary:
        """The same adversary if its clients follow the protocol."""
        return replace(self, malicious=frozenset(), behaviour=None)

    @classmethod
    def eavesdropper(cls, *edges: tuple[int, int]) -> Adversary:
        """An outsider that reads all messages that are not private, on all edges or on `edges`."""
        return cls(listens=True, edges=frozenset(edges) or None)

    @classmethod
    def server(cls) -> Adversary:
        """The operator of the server."""
        return cls(is_server=True)

    @classmethod
    def parse(cls, text: str) -> Adversary:
        """Parse the form that the command line takes, such as "curious(0,2)+eavesdropper"."""
        adversary, theta0 = cls(), cls(knows_theta0=True)
        named = {"eavesdropper": cls.eavesdropper(), "server": cls.server(), "theta0": theta0}
        for part in (part.strip() for part in text.split("+")):
            if match := re.fullmatch(r"curious\(\s*(\d+(?:\s*,\s*\d+)*)\s*\)", part):
                adversary |= cls.curious(*map(int, match[1].split(",")))
            elif match := re.fullmatch(
                r"malicious\(\s*(\d+(?:\s*,\s*\d+)*)\s*\)(?:\s*:\s*([\w-]+))?", part
            ):
                members = map(int, match[1].split(","))
                adversary |= cls.deviating(*members, behaviour=match[2])
            elif part in named:
                adversary |= named[part]
            else:
                raise Misuse(f"The adversary {text!r} is not understood at {part!r}.", SYNTAX)
        if adversary in (cls(), theta0):
            raise Misuse(f"The adversary {text!r} sees no messages.", SYNTAX)
        return adversary

    def __or__(self, other: Adversary) -> Adversary:
        """Both adversaries, sharing what they know."""
        everywhere = any(each.listens and each.edges is None for each in (self, other))
        named = (self.edges or frozenset()) | (other.edges or frozenset())
        behaviours = {each.behaviour for each in (self, other) if each.malicious}
        if len(behaviours) > 1:
            raise Misuse(
                "The malicious clients of one adversary behave differently.",
                "Give all of them one behaviour, e.g. malicious(1,4):echo.",
            )
        return Adversary(
            self.corrupt | other.corrupt,
            self.listens or other.listens,
            None if everywhere or not named else named,
            self.is_server or other.is_server,
            self.knows_theta0 or other.knows_theta0,
            self.malicious | other.malicious,
            next(iter(behaviours), None),
            names=self.names or other.names,
        )

    def name_of(self, client: int) -> str:
        """The name of any client of the run, or its number."""
        return client_name(client, self.names)

    def __str__(self) -> str:
        curious = self.corrupt - self.malicious
        parts = [f"curious({listed(sorted(curious), self.names)})"] if curious else []
        if self.malicious:
            members = f"malicious({listed(sorted(self.malicious), self.names)})"
            parts.append(members if self.behaviour is None else f"{members}:{self.behaviour}")
        if self.listens:
            where = "" if self.edges is None else f" on {self._tapped}"
            parts.append(f"eavesdropper{where}")
        parts += ["server"] * self.is_server + ["theta0"] * self.knows_theta0
        return "+".join(parts)

    @property
    def _tapped(self) -> str:
        edges = sorted(self.edges or ())
        if not self.names:
            return str(edges)
        return ", ".join(f"{self.name_of(source)}→{self.name_of(to)}" for source, to in edges)

    def knows(self, unknown: Unknown) -> bool:
        """Whether it has an unknown without any message: its clients' own, or first models."""
        if self.shares_with is not None and unknown.client != EVERY_CLIENT:
            is_shared = unknown.kind in ("noise", "mask") and self.shares_with in unknown[2:4]
            return is_shared and unknown.known_to(self.corrupt)
        return unknown.known_to(self.corrupt) or (self.knows_theta0 and unknown.kind == "theta0")

    def sees(self, message: Message, edges: list[tuple[int, int]]) -> Tensor:
        """Which rows of a message it sees, bool [k]; `edges` are those of the graph."""
        everyone = torch.ones(len(message.rows), dtype=torch.bool)
        # The links to a server are not edges of the graph.
        sees_server = self.is_server or (self.listens and self.edges is None)
        if message.verb == "broadcast":
            return everyone if self.corrupt or sees_server else ~everyone
        sources = message.source.tolist()
        if message.verb == "average":
            is_corrupt = torch.tensor([source in self.corrupt for source in sources])
            return everyone if sees_server else is_corrupt
        if message.target is not None:
            listens = self.listens and not message.private
            ends = zip(sources, message.target.tolist(), strict=True)
            return torch.tensor([self._sees_edge(edge, listens) for edge in ends])
        seen = self.sees_senders(edges)
        return torch.tensor([source in seen for source in sources])

    def sees_senders(self, edges: list[tuple[int, int]]) -> frozenset[int]:
        """The clients whose rows it sees when every client sends one to all its neighbours."""
        heard = {edge[0] for edge in edges if self._sees_edge(edge, self.listens)}
        return self.corrupt | heard

    def _sees_edge(self, edge: tuple[int, int], listens: bool) -> bool:
        tapped = listens and (self.edges is None or edge in self.edges)
        return tapped or not self.corrupt.isdisjoint(edge)

    def view(self, transcript: Transcript) -> Iterator[tuple[int, Tensor]]:
        """The messages it sees, as indices into the transcript, each with the rows it sees [k]."""
        for index, message in enumerate(transcript.messages):
            (rows,) = torch.where(self.sees(message, transcript.edges_at(message.tick)))
            if len(rows):
                yield index, rows

    def check_graph(self, clients: int, edges: list[tuple[int, int]]) -> None:
        """Raise Misuse if its clients or edges are not on the graph, or no client is honest."""
        if absent := sorted(client for client in self.corrupt if client >= clients):
            raise Misuse(
                f"The adversary corrupts client {absent[0]}.",
                f"Name clients from 0 to {clients - 1}.",
            )
        if len(self.corrupt) == clients:
            raise Misuse("The adversary corrupts every client.", "Leave at least one honest.")
        if unknown := sorted((self.edges or frozenset()).difference(edges)):
            raise Misuse(
                f"The eavesdropper taps {unknown[0]}, which is no edge.", "Name edges of the graph."
            )

    def honest_component(self, victim: int, transcript: Transcript) -> frozenset[int]:
        """The victim and the honest clients it stays connected to without the corrupt ones.

        A server connects all honest clients.
        """
        honest = frozenset(range(transcript.clients)) - self.corrupt
        if any(message.verb == "average" for message in transcript.messages):
            return honest
        graph = nx.Graph(transcript.edges)
        graph.add_nodes_from(honest)
        return frozenset(nx.node_connected_component(graph.subgraph(honest), victim))


def _check_clients(kind: str, clients: tuple[int, ...]) -> None:
    if not clients or not all(is_count(client, 0) for client in clients):
        raise Misuse(
            f"{kind}{clients!r} names no clients.", f"Give their numbers, e.g. {kind}(0, 2)."
        )
