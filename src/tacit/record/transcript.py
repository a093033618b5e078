"""What was said: the messages of a run, kept by a network that passes all on to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from tacit.core.arguments import is_count
from tacit.core.errors import Misuse, unknown
from tacit.core.here import Apply, Function, Here, Network, Objective
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Noise
from tacit.core.randomness import Randomness
from tacit.core.rows import LazyRows, Sent, received
from tacit.record.unknowns import Unknown, of_clients, of_noise

Verb = Literal["mix", "send", "average", "broadcast"]
SERVER = -1


@dataclass(frozen=True)
class Keep:
    """What a transcript keeps; None means all of it.

    `clients`: what these send or receive. `ticks`: the first and the last (0 is `start`, t + 1 is step t). `insides`:
    clients of which also first models, gradients and noise are kept, to be what corrupt ones know. `theta0`: keep the
    first models of all, to be what somebody was told.
    """

    clients: tuple[int, ...] | None = None
    ticks: tuple[int, int] | None = None
    tags: tuple[str, ...] | None = None
    insides: tuple[int, ...] = ()
    theta0: bool = False

    def __post_init__(self) -> None:
        ticks = self.ticks
        pair = (
            isinstance(ticks, tuple)
            and len(ticks) == 2
            and all(is_count(tick, 0) for tick in ticks)
        )
        if ticks is not None and not (pair and ticks[0] <= ticks[1]):
            raise Misuse(
                f"The ticks to keep are {ticks!r}.", "Give the first and the last, e.g. (0, 20)."
            )
        for name, value in (
            ("clients", self.clients),
            ("tags", self.tags),
            ("insides", self.insides),
        ):
            if value is not None and not isinstance(value, tuple):
                raise Misuse(
                    f"{name} to keep is {value!r}.", "Give a tuple, e.g. (0, 2) or ('gamma',)."
                )

    def at(self, tick: int) -> bool:
        """Whether this moment is kept."""
        return self.ticks is None or self.ticks[0] <= tick <= self.ticks[1]


@dataclass(frozen=True, eq=False)
class Message:
    """Rows [k, P] that were sent together under one tag.

    With `mix` row k went from its source to all of its out-neighbours, with `send` from source to target, with
    `average` to the server, and with `broadcast` from there to all. Rows that travel encoded are kept as received.
    `tick` is 0 in `start` and t + 1 in step t.
    """

    tick: int
    verb: Verb
    tag: str
    rows: Tensor
    source: Tensor  # [k] clients, or SERVER
    target: Tensor | None = None  # [k] with `send` only
    private: bool = False


@dataclass(eq=False)
class Transcript:
    """The messages of a run in order, on which graph, and what the clients in `keep.insides` held."""

    keep: Keep = field(default_factory=Keep)
    clients: int = 0
    edges: list[tuple[int, int]] = field(default_factory=list)  # (source, target), all of the graph
    steps: int = 0  # iterations that were listened to
    messages: list[Message] = field(default_factory=list)
    held: dict[Unknown, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Transcript({len(self.messages)} messages: {', '.join(self.tags)})"

    @property
    def tags(self) -> list[str]:
        """What messages were sent under, in the order of their first use."""
        return list(dict.fromkeys(message.tag for message in self.messages))

    def of(self, tag: str) -> list[Message]:
        """The messages with a tag, e.g. "gamma"; a tag that none has is refused."""
        if tag not in self.tags:
            raise unknown(f"No message has the tag {tag!r}.", tag, self.tags)
        return [message for message in self.messages if message.tag == tag]


class Recorder:
    """A network that writes down what passes through it; `witness` also writes what insiders hold."""

    def __init__(self, network: Network, transcript: Transcript, graph: Neighbourhood) -> None:
        self.tick = 0
        self._network = network
        self.transcript = transcript
        self._graph = graph
        edges = zip(graph.out_source.tolist(), graph.out_target.tolist(), strict=True)
        transcript.clients, transcript.edges = len(graph.ids), list(edges)
        keep = transcript.keep
        _check_clients(keep.clients or (), transcript.clients)
        _check_clients(keep.insides, transcript.clients)
        self._insides = frozenset(keep.insides)
        chosen = set(graph.ids.tolist() if keep.clients is None else keep.clients)
        near = [s in chosen or t in chosen for s, t in transcript.edges]
        heard = {s for (s, _), is_near in zip(transcript.edges, near, strict=True) if is_near}
        self._edges = torch.tensor(near, dtype=torch.bool, device=graph.ids.device)
        self._rows = torch.tensor(
            [i in heard | chosen for i in graph.ids.tolist()], device=graph.ids.device
        )
        self._own = torch.tensor([i in chosen for i in graph.ids.tolist()], device=graph.ids.device)

    def at(self, tick: int) -> None:
        """Say which moment it is; iterations that pass are counted."""
        self.tick = tick
        self.transcript.steps = max(self.transcript.steps, tick)

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        """As the network behind it."""
        for tag, sent in rows.items():
            self._keep("mix", tag, received(sent), self._rows, self._graph.ids)
        return self._network.mix(**rows)

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        """As the network behind it."""
        source, target = self._graph.out_source, self._graph.out_target
        self._keep("send", tag, edge_rows, self._edges, source, target, private)
        return self._network.send(tag, edge_rows, private=private)

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        """As the network behind it."""
        for tag, sent in rows.items():
            self._keep("average", tag, sent, self._own, self._graph.ids)
        means = self._network.average(**rows)
        server = torch.tensor([SERVER])
        for tag, mean in zip(rows, means, strict=True):
            self._keep("broadcast", tag, mean[:1], torch.ones(1, dtype=torch.bool), server)
        return means

    def witness(self, here: Here) -> Here:
        """The same clients, talking through this and with what insiders hold written down."""
        return replace(
            here,
            net=self,
            objective=_WitnessedObjective(here.objective, self, here.graph.ids),
            randomness=_WitnessedRandomness(here.randomness, self),
            apply=self._apply(here.apply, here.graph.ids),
        )

    def hold(self, names: list[Unknown], rows: Callable[[Tensor], Tensor]) -> None:
        """Write down the rows that insiders have."""
        told = self.transcript.keep.theta0
        index = [
            k
            for k, name in enumerate(names)
            if name.known_to(self._insides) or (told and name.kind == "theta0")
        ]
        index = [k for k in index if names[k] not in self.transcript.held]
        if index:
            drawn = rows(torch.tensor(index, device=self._graph.ids.device)).detach().clone()
            self.transcript.held.update(zip((names[k] for k in index), drawn, strict=True))

    def _apply(self, apply: Apply, ids: Tensor) -> Apply:
        def witnessed(tag: str, function: Function, rows: Tensor, epsilon: float | None) -> Tensor:
            out = apply(tag, function, rows, epsilon)
            self.hold(of_clients("nonlinear", self.tick, ids, tag), lambda index: out[index])
            return out

        return witnessed

    def _keep(
        self,
        verb: Verb,
        tag: str,
        rows: Tensor,
        chosen: Tensor,
        source: Tensor,
        target: Tensor | None = None,
        private: bool = False,
    ) -> None:
        keep = self.transcript.keep
        if (
            not keep.at(self.tick)
            or (keep.tags is not None and tag not in keep.tags)
            or not bool(chosen.any())
        ):
            return
        kept = rows.clone() if bool(chosen.all()) else rows[chosen.to(rows.device)]
        to = None if target is None else target[chosen].cpu()
        message = Message(self.tick, verb, tag, kept, source[chosen].cpu(), to, private)
        self.transcript.messages.append(message)


@dataclass(frozen=True, eq=False)
class _WitnessedObjective:
    objective: Objective
    recorder: Recorder
    ids: Tensor

    def theta0(self) -> Tensor:
        rows = self.objective.theta0()
        self.recorder.hold(of_clients("theta0", 0, self.ids), lambda index: rows[index])
        return rows

    def grad(self, theta: Tensor, number: int, spent: Tensor | None = None) -> Tensor:
        rows = self.objective.grad(theta, number, spent)
        self.recorder.hold(of_clients("gradient", number, self.ids), lambda index: rows[index])
        return rows

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        rows = self.objective.minimise(linear, curvature, number)
        gradient = -linear - curvature * rows  # where ∇f(w) + b + cw = 0
        self.recorder.hold(of_clients("gradient", number, self.ids), lambda index: gradient[index])
        return rows


@dataclass(frozen=True, eq=False)
class _WitnessedRandomness:
    randomness: Randomness
    recorder: Recorder

    def rows(
        self,
        tag: str,
        law: Noise,
        tick: int,
        source: Tensor,
        target: Tensor | None,
        width: int | None = None,
    ) -> LazyRows:
        rows = self.randomness.rows(tag, law, tick, source, target, width)
        if width is None:  # others are made inside of non-linear steps
            self.recorder.hold(of_noise(tag, tick, source, target), rows.draw)
        return rows

    def words(self, tag: str, tick: int, source: Tensor, width: int) -> Tensor:
        return self.randomness.words(tag, tick, source, width)


def _check_clients(clients: tuple[int, ...], count: int) -> None:
    for client in clients:
        if not is_count(client, 0) or client >= count:
            raise Misuse(
                f"The transcript shall keep client {client!r}.",
                f"Give clients from 0 to {count - 1}.",
            )
