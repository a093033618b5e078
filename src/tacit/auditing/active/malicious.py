"""An algorithm some of whose clients are malicious: the same text with another network.

`Malicious` runs the `start` and `step` of the algorithm that it wraps. The network that it hands
them replaces what malicious clients send, so it works for every algorithm and on every engine:

    mix, send    rows of malicious clients are replaced, and recorded as sent
    average      nothing is replaced: a client sends to the server before it sees anything

Malicious clients send one row to all their neighbours where the protocol does, and keep their own
state as if they had sent their own row. Private messages and encoded rows are left as they are: the
first are masks that the adversary knows anyway, and not every row is the code of something.

`ArbitraryRows` is for proofs. It replaces all that malicious clients send by unknowns of their own,
which the adversary knows: what is proved of it holds whatever they send, adaptively or not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.wrapped import WrappedAlgorithm
from tacit.auditing.active.behaviours import ECHO, Substitute, substitutes
from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.errors import Misuse
from tacit.core.fixed_point import IntegerRows
from tacit.core.here import Network
from tacit.core.hosted_clients import HostedClients
from tacit.core.noise import Gaussian
from tacit.core.rows import CodedRows, Sent, received
from tacit.engines.lazy_rows import evaluated
from tacit.graph import Graph
from tacit.record.transcript import Verb

# Only for symbols, where every distribution gives an unknown.
ANY = Gaussian(1.0)


@dataclass(frozen=True)
class MessageKind:
    """How a message is sent, and what it is made of: level 1 for models, 0 for gradients."""

    verb: Verb
    level: float


def message_kinds(algorithm: Algorithm, graph: Graph) -> dict[str, MessageKind]:
    """The messages of an algorithm by tag, without private ones and those that are no rows.

    The level is the sum of a row's coefficients on first models: moving all of them by a vector
    moves the message by that many times the vector.
    """
    run = run_on_symbols(algorithm, graph, 2)
    first = [k for k, unknown in enumerate(run.unknowns) if unknown.kind == "theta0"]
    kinds: dict[str, MessageKind] = {}
    for index, message in enumerate(run.transcript.messages):
        if index in run.plain_messages or message.private or message.verb == "broadcast":
            continue
        columns = [k for k in first if k < message.rows.shape[1]]
        kinds[message.tag] = MessageKind(message.verb, float(message.rows[0, columns].sum()))
    return kinds


@dataclass(frozen=True, eq=False)
class _Wrapper(WrappedAlgorithm):
    """What both wrappers share: the graph and the adversary."""

    graph: Graph
    adversary: Adversary

    def network(self, here: HostedClients) -> Network:
        if len(here.graph.ids) != self.graph.clients:
            raise Misuse(
                "Malicious clients are simulated where all clients are hosted together.",
                "Run the audit in one process.",
            )
        return self._network(here)

    @abstractmethod
    def _network(self, here: HostedClients) -> Network:
        """The network that the wrapped algorithm gets, where all clients are hosted."""


@dataclass(frozen=True, eq=False)
class Malicious(_Wrapper):
    """An algorithm in which the adversary's malicious clients attack one victim.

    Args:
        inner: The algorithm that all others follow.
        graph: The graph it runs on.
        adversary: Has malicious clients and a behaviour.
        victim: The client that they attack.
    """

    victim: int

    def __repr__(self) -> str:
        victim = self.adversary.name_of(self.victim)
        return f"{self.inner!r} with {self.adversary} against client {victim}"

    @cached_property
    def kinds(self) -> dict[str, MessageKind]:
        return message_kinds(self.inner, self.graph)

    @cached_property
    def substitutes(self) -> dict[int, Substitute]:
        """What each malicious client sends when all send one row to their neighbours."""
        weights = torch.as_tensor(self.graph.weights[[self.victim]].toarray()[0])
        edges = [(int(s), int(t)) for s, t in self.graph.edges]
        seen, adversary = self.adversary.sees_senders(edges), self.adversary
        behaviour = adversary.behaviour or ""
        return substitutes(behaviour, weights, self.victim, adversary.malicious, seen)

    def _network(self, here: HostedClients) -> Network:
        return MaliciousNetwork(here, self.substitutes, self.kinds, self._echoed_edges(here))

    def _echoed_edges(self, here: HostedClients) -> dict[int, int]:
        """Out-edges m→v to fill with what was sent on v→m, for messages with one row per edge."""
        if self.adversary.behaviour != ECHO:
            return {}
        ends = (here.graph.out_source.tolist(), here.graph.out_target.tolist())
        numbers = {edge: k for k, edge in enumerate(zip(*ends, strict=True))}
        return {
            numbers[m, self.victim]: numbers[self.victim, m]
            for m in self.adversary.malicious
            if (m, self.victim) in numbers and (self.victim, m) in numbers
        }


@dataclass(frozen=True, eq=False)
class MaliciousNetwork:
    """The network of an algorithm, with rows of malicious clients replaced."""

    here: HostedClients
    substitutes: Mapping[int, Substitute]
    kinds: Mapping[str, MessageKind]
    echoed_edges: Mapping[int, int]  # out-edge → the out-edge with the row to send on it

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        changed = {tag: self._changed(tag, sent) for tag, sent in rows.items()}
        mixed = self.here.net.mix(**changed)
        return tuple(
            self._own_state(evaluated(out), received(sent), received(changed[tag]))
            for (tag, sent), out in zip(rows.items(), mixed, strict=True)
        )

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        rows = evaluated(edge_rows)
        if self.echoed_edges and not private and tag in self.kinds:
            rows, before = rows.clone(), rows
            for edge, source in self.echoed_edges.items():
                rows[edge] = before[source]
        arrived: Tensor = evaluated(self.here.net.send(tag, rows, private=private))
        return arrived

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        # What malicious clients add to a sum shifts it by a number that they know.
        return tuple(evaluated(total) for total in self.here.net.total(**rows))

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(evaluated(mean) for mean in self.here.net.average(**rows))

    def _changed(self, tag: str, sent: Sent) -> Sent:
        sent = evaluated(sent)
        if isinstance(sent, CodedRows) or tag not in self.kinds:
            return sent
        rows, level = sent.clone(), self.kinds[tag].level
        for client, substitute in self.substitutes.items():
            rows[client] = substitute.rows.to(sent) @ sent
            if substitute.chosen and level:
                chosen = evaluated(self.here.theta0)[client]
                rows[client] += substitute.chosen * level * chosen
        return rows

    def _own_state(self, mixed: Tensor, honest: Tensor, sent: Tensor) -> Tensor:
        """Give malicious clients what they would have computed from their own rows."""
        if sent is honest or not self.substitutes:
            return mixed
        clients = list(self.substitutes)
        mixed = mixed.clone()
        mixed[clients] += self.here.graph.own(honest - sent)[clients]
        return mixed


@dataclass(frozen=True, eq=False)
class ArbitraryRows(_Wrapper):
    """An algorithm in which all that malicious clients send are unknowns that they know."""

    def _network(self, here: HostedClients) -> Network:
        return _ArbitraryNetwork(here, sorted(self.adversary.malicious))


@dataclass(frozen=True, eq=False)
class _ArbitraryNetwork:
    here: HostedClients
    malicious: list[int]

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        return self.here.net.mix(**{tag: self._any(tag, sent) for tag, sent in rows.items()})

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        chosen = {
            tag: sent.with_integers(self._any(tag, sent.integers)) for tag, sent in rows.items()
        }
        return self.here.net.total(**chosen)

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        return self.here.net.average(**{tag: self._any(tag, sent) for tag, sent in rows.items()})

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        chosen, _ = self.here.edge_noise(f"chosen {tag}", ANY)
        rows = edge_rows
        if chosen.width == edge_rows.shape[1]:
            malicious = torch.isin(self.here.graph.out_source, torch.tensor(self.malicious))
            rows = torch.where(malicious[:, None], chosen.tensor(), edge_rows)
        return self.here.net.send(tag, rows, private=private)

    def _any(self, tag: str, sent: Sent) -> Tensor:
        rows = received(sent)
        chosen = self.here.noise(f"chosen {tag}", ANY)
        if chosen.shape != rows.shape:
            return rows
        rows = rows.clone()
        rows[self.malicious] = chosen[self.malicious]
        return rows
