"""The recorded messages of a run, and the network wrapper that records them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from tacit.core.checks import is_count
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.errors import Misuse, unknown_name
from tacit.core.fixed_point import RESERVED, IntegerRows, Mask
from tacit.core.here import Network, Nonlinear
from tacit.core.hosted_clients import HostedClients, Objective, Sampling
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Noise
from tacit.core.randomness import Randomness
from tacit.core.rows import NoiseRows, Sent, received
from tacit.graph.spanning_tree import SpanningTree
from tacit.record.masked_sums import tree_messages, unit_of
from tacit.record.unknowns import EVERY_CLIENT, Kind, Unknown, client_unknowns, noise_unknowns

Hosted = TypeVar("Hosted", bound=HostedClients)
Verb = Literal["mix", "send", "average", "broadcast"]
SERVER = -1


@dataclass(frozen=True)
class Keep:
    """What a transcript keeps; None means everything.

    Attributes:
        clients: Keep what these clients send or receive.
        ticks: The first and the last tick to keep (0 is `start`, t + 1 is step t).
        tags: Keep messages with these tags.
        insides: Also keep initial models, gradients and noise of these clients, as the knowledge of
            corrupt clients.
        theta0: Keep the initial models of all clients, for adversaries that know them.
    """

    clients: tuple[int, ...] | None = None
    ticks: tuple[int, int] | None = None
    tags: tuple[str, ...] | None = None
    insides: tuple[int, ...] = ()
    theta0: bool = False

    def __post_init__(self) -> None:
        ticks = self.ticks
        is_pair = isinstance(ticks, tuple) and len(ticks) == 2
        if ticks is not None and not (
            is_pair and all(is_count(tick, 0) for tick in ticks) and ticks[0] <= ticks[1]
        ):
            raise Misuse(
                f"The ticks to keep are {ticks!r}.", "Give the first and the last, e.g. (0, 20)."
            )
        for name in ("clients", "tags", "insides"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, tuple):
                raise Misuse(
                    f"{name} to keep is {value!r}.", "Give a tuple, e.g. (0, 2) or ('gamma',)."
                )

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> Keep:
        """From values as files hold them, with lists in place of tuples."""
        lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**values | lists)

    def includes(self, tick: int) -> bool:
        return self.ticks is None or self.ticks[0] <= tick <= self.ticks[1]


@dataclass(frozen=True, eq=False)
class Message:
    """Rows [k, P] that were sent together under one tag.

    With `mix`, each row went from its source to all out-neighbours; with `send`, from source to
    target; with `average`, to the server; with `broadcast`, from the server to all clients.
    Encoded rows are kept as received. A `total` is kept as what clients send along the spanning
    tree: "tag/up" has masked sums, "tag/down" the total.

    Attributes:
        tick: 0 in `start`, t + 1 in step t.
        source: Clients [k], or SERVER.
        target: Clients [k]; with `send` only.
        modulus: The numbers are known up to multiples of this, if given: masked sums.
    """

    tick: int
    verb: Verb
    tag: str
    rows: Tensor
    source: Tensor
    target: Tensor | None = None
    private: bool = False
    modulus: float | None = None


@dataclass(eq=False)
class Transcript:
    """The messages of a run in order.

    Attributes:
        edges: All edges of the graph, as (source, target); of its union if it changes.
        changes: The edges from a tick on, where the graph changes.
        steps: Number of iterations that were recorded.
        held: Rows that the clients in `keep.insides` held.
    """

    keep: Keep = field(default_factory=Keep)
    clients: int = 0
    edges: list[tuple[int, int]] = field(default_factory=list)
    steps: int = 0
    messages: list[Message] = field(default_factory=list)
    held: dict[Unknown, Tensor] = field(default_factory=dict)
    changes: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Transcript({len(self.messages)} messages: {', '.join(self.tags)})"

    @property
    def tags(self) -> list[str]:
        """All tags, in the order of their first use."""
        return list(dict.fromkeys(message.tag for message in self.messages))

    def edges_at(self, tick: int) -> list[tuple[int, int]]:
        """The edges that carry messages in a tick."""
        earlier = [change for change in self.changes if change <= tick]
        return self.changes[max(earlier)] if earlier else self.edges

    @property
    def last_tick(self) -> int:
        """The last iteration whose messages are kept."""
        ticks = self.keep.ticks
        return self.steps if ticks is None else min(self.steps, ticks[1])

    @property
    def row_count(self) -> int:
        """The number of rows in all messages."""
        return sum(len(message.rows) for message in self.messages)

    def held_row(self, unknown: Unknown) -> Tensor:
        """The numbers [P] of an unknown that a client in `keep.insides` held."""
        if unknown.client == EVERY_CLIENT:  # One first model for all: each client's is it.
            held = (row for known, row in self.held.items() if known.kind == unknown.kind)
            row = next(held, None)
        else:
            row = self.held.get(unknown)
        if row is None:
            raise Misuse(
                f"The adversary knows {unknown}, but the transcript does not have it.",
                "Record what corrupt clients hold: name them in `insides`; and first models: "
                "set `theta0`.",
            )
        return row

    def of(self, tag: str) -> list[Message]:
        """The messages with a tag, such as "gamma"; an unknown tag raises Misuse."""
        if tag not in self.tags:
            raise unknown_name(f"No message has the tag {tag!r}.", tag, self.tags)
        return [message for message in self.messages if message.tag == tag]


class TranscriptRecorder:
    """A network that records its messages; `wrap` also records what the `insides` clients hold."""

    def __init__(self, network: Network, transcript: Transcript, graph: Neighbourhood) -> None:
        self.tick = 0
        self.transcript = transcript
        self._network, self._graph = network, graph
        transcript.clients, transcript.edges = len(graph.ids), _edges_of(graph)
        keep = transcript.keep
        for client in (*(keep.clients or ()), *keep.insides):
            if not is_count(client, 0) or client >= transcript.clients:
                raise Misuse(
                    f"There is no client {client!r} for the transcript to keep.",
                    f"Give clients from 0 to {transcript.clients - 1}.",
                )
        self._insides = frozenset(keep.insides)
        self._choose(graph, transcript.edges)

    def _choose(self, graph: Neighbourhood, all_edges: list[tuple[int, int]]) -> None:
        """Find which edges and clients to keep messages of."""
        keep = self.transcript.keep
        ids, device = graph.ids.tolist(), graph.ids.device
        chosen = set(ids if keep.clients is None else keep.clients)
        edges = [source in chosen or target in chosen for source, target in all_edges]
        kept_edges = itertools.compress(all_edges, edges)
        senders = chosen | {source for source, _ in kept_edges}
        if self.transcript.changes:
            # In a changing graph some clients send nothing.
            senders &= {source for source, _ in all_edges}
        # Which edges and clients to keep: of messages to neighbours, and of messages to the server.
        self._edges = torch.tensor(edges, dtype=torch.bool, device=device)
        self._senders = torch.tensor([client in senders for client in ids], device=device)
        self._chosen = torch.tensor([client in chosen for client in ids], device=device)
        self._kept_clients = self._chosen.cpu()

    def change_graph(self, graph: Neighbourhood) -> None:
        """Record messages over other edges, from this tick on."""
        self._graph, edges = graph, _edges_of(graph)
        changes = self.transcript.changes
        if not changes or edges != self.transcript.edges_at(self.tick):
            changes[self.tick] = edges
        self._choose(graph, edges)

    def set_tick(self, tick: int) -> None:
        self.tick = tick
        self.transcript.steps = max(self.transcript.steps, tick)

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        for tag, sent in rows.items():
            self._keep("mix", tag, received(sent), self._senders, self._graph.ids)
        return self._network.mix(**rows)

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        source, target = self._graph.out_source, self._graph.out_target
        self._keep("send", tag, edge_rows, self._edges, source, target, private)
        return self._network.send(tag, edge_rows, private=private)

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        for tag, sent in rows.items():
            self._record_total(tag, sent)
        return self._network.total(**rows)

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        for tag, sent in rows.items():
            self._keep("average", tag, sent, self._chosen, self._graph.ids)
        means = self._network.average(**rows)
        server = torch.tensor([SERVER])
        for tag, mean in zip(rows, means, strict=True):
            self._keep("broadcast", tag, mean[:1], torch.ones(1, dtype=torch.bool), server)
        return means

    def wrap(self, here: Hosted) -> Hosted:
        """The same clients with their messages, and what the `insides` clients hold, recorded."""
        ids = here.graph.ids

        def apply(step: Nonlinear, *rows: Tensor) -> Tensor:
            out = here.apply(step, *rows)
            unknowns = client_unknowns("nonlinear", self.tick, ids, step.tag)
            self.record_held(unknowns, out.__getitem__)
            return out

        objective = _RecordedObjective(here.objective, self, ids)
        randomness = _RecordedRandomness(here.randomness, self)
        return replace(here, net=self, objective=objective, randomness=randomness, apply=apply)

    def record_held(self, unknowns: list[Unknown], rows: Callable[[Tensor], Tensor]) -> None:
        """Keep those of the rows that `insides` clients hold; `rows` maps indices [k] to [k, P]."""
        keep, held = self.transcript.keep, self.transcript.held
        index = [
            k
            for k, unknown in enumerate(unknowns)
            if unknown not in held
            and (unknown.known_to(self._insides) or (keep.theta0 and unknown.kind == "theta0"))
        ]
        if index:
            kept = rows(torch.tensor(index, device=self._graph.ids.device)).detach().clone()
            held.update(zip((unknowns[k] for k in index), kept, strict=True))

    def _record_total(self, tag: str, sent: IntegerRows) -> None:
        """Keep what clients send along the tree, and the masks and noise of `insides` clients."""
        if not self.transcript.keep.includes(self.tick):
            return
        for sum_message in tree_messages(tag, sent, self._tree):
            kept = self._kept_clients[sum_message.source] | self._kept_clients[sum_message.target]
            ends = (sum_message.source, sum_message.target)
            self._keep("send", sum_message.tag, sum_message.rows, kept, *ends, modulus=sent.modulus)
        if not self._insides:
            return
        unit, graph = unit_of(sent), self._graph
        if sent.noise is not None:
            noise = unit * sent.noise().double()
            unknowns = noise_unknowns(f"{RESERVED} {tag}/noise", self.tick, graph.ids, None)
            self.record_held(unknowns, noise.__getitem__)
        masks = unit * sent.masks().double()
        unknowns = noise_unknowns(
            f"{RESERVED} {tag}/mask", self.tick, *graph.edge_ends, kind="mask"
        )
        self.record_held(unknowns, masks.__getitem__)

    @cached_property
    def _tree(self) -> SpanningTree:
        edges = np.array(self.transcript.edges, dtype=np.int64).reshape(-1, 2)
        return SpanningTree.of(edges, self.transcript.clients)

    def _keep(
        self,
        verb: Verb,
        tag: str,
        rows: Tensor,
        chosen: Tensor,
        source: Tensor,
        target: Tensor | None = None,
        private: bool = False,
        modulus: float | None = None,
    ) -> None:
        keep = self.transcript.keep
        if (
            not keep.includes(self.tick)
            or (keep.tags is not None and tag not in keep.tags)
            or not bool(chosen.any())
        ):
            return
        kept = rows.clone() if bool(chosen.all()) else rows[chosen.to(rows.device)]
        target = None if target is None else target[chosen].cpu()
        source = source[chosen].cpu()
        message = Message(self.tick, verb, tag, kept, source, target, private, modulus)
        self.transcript.messages.append(message)


def _edges_of(graph: Neighbourhood) -> list[tuple[int, int]]:
    return list(zip(graph.out_source.tolist(), graph.out_target.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class _RecordedObjective:
    objective: Objective
    recorder: TranscriptRecorder
    ids: Tensor

    def theta0(self) -> Tensor:
        rows = self.objective.theta0()
        self.recorder.record_held(client_unknowns("theta0", 0, self.ids), rows.__getitem__)
        return rows

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        rows = self.objective.grad(theta, number, out)
        self.recorder.record_held(client_unknowns("gradient", number, self.ids), rows.__getitem__)
        return rows

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        rows = self.objective.clipped_sum(theta, sampling, number, out)
        self.recorder.record_held(client_unknowns("gradient", number, self.ids), rows.__getitem__)
        return rows

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        rows = self.objective.minimise(linear, curvature, number)
        # The minimiser satisfies ∇f(w) + b + cw = 0.
        grad = -linear - curvature * rows
        self.recorder.record_held(client_unknowns("gradient", number, self.ids), grad.__getitem__)
        return rows


@dataclass(frozen=True, eq=False)
class _RecordedRandomness:
    randomness: Randomness
    recorder: TranscriptRecorder

    def rows(
        self,
        tag: str,
        law: Noise,
        tick: int,
        source: Tensor,
        target: Tensor | None,
        width: int | None = None,
    ) -> NoiseRows:
        rows = self.randomness.rows(tag, law, tick, source, target, width)
        # Noise of another width is drawn inside of non-linear steps, which are recorded themselves.
        if width is None:
            kind: Kind = "mask" if isinstance(law, Mask) else "noise"
            unknowns = noise_unknowns(tag, tick, source, target, kind)
            self.recorder.record_held(unknowns, rows.draw)
        return rows

    def masks(self, tag: str, tick: int, one: Tensor, other: Tensor) -> Tensor:
        return self.randomness.masks(tag, tick, one, other)

    def words(
        self, tag: str, tick: int, source: Tensor, width: int, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        return self.randomness.words(tag, tick, source, width, dtype)

    def add_integers(
        self, tag: str, law: DiscreteGaussian, tick: int, source: Tensor, onto: Tensor
    ) -> None:
        self.randomness.add_integers(tag, law, tick, source, onto)
