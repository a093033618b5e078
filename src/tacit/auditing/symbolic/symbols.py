"""An algorithm run on symbols: every row is a row of coefficients over the unknowns of the run.

First models, gradients, noise and declared non-linear steps are the unknowns; `here` hands them out as unit rows, the
algorithm's own text combines them, and what it sends is written down as coefficients. Nothing here knows which
algorithm it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, gradients_per_step
from tacit.core.arguments import is_count
from tacit.core.errors import Misuse
from tacit.core.here import Function, Here
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Noise
from tacit.core.rows import LazyRows, Sent, received
from tacit.graph import Graph
from tacit.record.transcript import Keep, Recorder, Transcript
from tacit.record.unknowns import Unknown, of_clients, of_noise

LARGEST = 6e9  # bytes of coefficients that one run may take


@dataclass(frozen=True, eq=False)
class NonlinearStep:
    """What went into a declared non-linear step [U'], and the ε it grants each coordinate, if any."""

    rows: Tensor
    epsilon: float | None


@dataclass(frozen=True, eq=False)
class SymbolicRun:
    """What was said in a run, as coefficients [k, U'] over the first U' of its unknowns, in order of first mention."""

    transcript: Transcript
    unknowns: list[Unknown]  # the columns
    laws: dict[Unknown, Noise]  # of those that are noise
    models: list[Tensor]  # θ after 0, 1, … iterations [n, U']
    points: dict[int, Tensor]  # where the gradients on batch 0, 1, … were taken [n, U']
    nonlinear_steps: dict[Unknown, NonlinearStep]
    gradients_per_step: int = 1

    @cached_property
    def places(self) -> dict[Unknown, int]:
        """The column of each unknown."""
        return {unknown: column for column, unknown in enumerate(self.unknowns)}

    @property
    def clients(self) -> int:
        """Number of clients."""
        return self.transcript.clients

    @property
    def steps(self) -> int:
        """Number of iterations."""
        return len(self.models) - 1

    def gradients(self, client: int) -> list[Unknown]:
        """The gradients of a client in the order they were taken."""
        return [
            u
            for when in sorted(self.points)
            if (u := Unknown("gradient", when, client)) in self.places
        ]


class Book:
    """The unknowns in the order of their first mention, and the width of the rows that stand for them."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.places: dict[Unknown, int] = {}
        self.laws: dict[Unknown, Noise] = {}

    def rows(self, names: list[Unknown]) -> Tensor:
        """Unit rows [n, width]; new names get the next places."""
        places = [self.places.setdefault(name, len(self.places)) for name in names]
        rows = torch.zeros(len(names), self.width, dtype=torch.float64)
        if self.width >= len(self.places):  # else this run only counts
            rows[torch.arange(len(names)), torch.tensor(places, dtype=torch.int64)] = 1.0
        return rows


def run_on_symbols(
    algorithm: Algorithm, graph: Graph, steps: int, keep: Keep | None = None
) -> SymbolicRun:
    """Run `steps` iterations of an algorithm on unknowns, keeping the messages that `keep` says.

    Run twice: first with empty rows to see how many unknowns there are, then with rows of that many coefficients.
    """
    if not is_count(steps, 0):
        raise Misuse(f"steps is {steps!r}.", "Give a whole number that is not negative.")
    graph.require(*algorithm.requires, by=algorithm.name)
    count = Book(0)
    sent = _run(algorithm, graph, steps, keep or Keep(), count).transcript
    unknowns = len(count.places)
    size = 8.0 * unknowns * sum(len(message.rows) for message in sent.messages)
    if size > LARGEST:
        raise Misuse(
            f"{steps} iterations of {graph.clients} clients have {unknowns:,} unknowns: the messages would take "
            f"{size / 1e9:.0f} GB as coefficients.",
            f"Audit fewer iterations: about {max(1, int(steps * (LARGEST / size) ** 0.5))} fit.",
        )
    return _run(algorithm, graph, steps, keep or Keep(), Book(unknowns))


def _run(algorithm: Algorithm, graph: Graph, steps: int, keep: Keep, book: Book) -> SymbolicRun:
    transcript = Transcript(keep)
    hood = Neighbourhood.of(graph.edges, np.arange(graph.clients), "cpu", graph.weights.diagonal())
    recorder = Recorder(_Network(graph), transcript, hood)
    stage = _Stage(book, hood.ids)
    here = Here(hood, recorder, stage, stage, gradients_per_step(algorithm), stage.nonlinear)
    state = algorithm.start(here)
    models = [state.theta[:, : len(book.places)].clone()]
    listed = 0
    for t in range(steps):
        recorder.at(t + 1)
        stage.at(t + 1)
        state = algorithm.step(state, here.at(t))
        models.append(state.theta[:, : len(book.places)].clone())
        for place in range(
            listed, len(transcript.messages)
        ):  # the rest of the columns is still zero
            message = transcript.messages[place]
            transcript.messages[place] = replace(
                message, rows=message.rows[:, : len(book.places)].clone()
            )
        listed = len(transcript.messages)
    return SymbolicRun(
        transcript,
        list(book.places),
        book.laws,
        models,
        stage.points,
        stage.nonlinear_steps,
        here.gradients_per_step,
    )


class _Stage:
    """The objective, the randomness and the non-linear steps of a run on symbols."""

    def __init__(self, book: Book, ids: Tensor) -> None:
        self.tick = 0
        self._book = book
        self._ids = ids
        self._used: set[tuple[str, str | int]] = set()
        self.points: dict[int, Tensor] = {}
        self.nonlinear_steps: dict[Unknown, NonlinearStep] = {}

    def at(self, tick: int) -> None:
        self.tick = tick
        self._used.clear()

    def theta0(self) -> Tensor:
        return self._book.rows(of_clients("theta0", 0, self._ids))

    def grad(self, theta: Tensor, number: int, spent: Tensor | None = None) -> Tensor:
        self._once(
            "gradient",
            number,
            "of one batch twice in an iteration; declare local_steps for more gradients",
        )
        self.points[number] = theta[:, : len(self._book.places)].clone()
        return self._book.rows(of_clients("gradient", number, self._ids))

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        """Where ∇f(w) + b + cw = 0: with the gradient for an unknown, w is linear in it."""
        w = -(self.grad(linear, number) + linear) / curvature
        self.points[number] = w[:, : len(self._book.places)].clone()
        return w

    def rows(
        self,
        tag: str,
        law: Noise,
        tick: int,
        source: Tensor,
        target: Tensor | None,
        width: int | None = None,
    ) -> LazyRows:
        names = of_noise(tag, tick, source, target)
        silent = law.variance == 0
        if not silent:
            if any(self._book.laws.get(name, law) != law for name in names[:1]):
                raise Misuse(
                    f"The noise {tag!r} is drawn by two laws in one iteration.",
                    "Give them different tags.",
                )
            self._book.laws.update(dict.fromkeys(names, law))
            self._book.rows(names)  # give them their places in order

        def draw(index: Tensor) -> Tensor:
            if silent:
                return torch.zeros(len(index), self._book.width, dtype=torch.float64)
            return self._book.rows([names[k] for k in index.tolist()])

        return LazyRows(len(names), self._book.width, torch.float64, source.device, draw)

    def words(self, tag: str, tick: int, source: Tensor, width: int) -> Tensor:
        raise Misuse(
            f"The algorithm draws words {tag!r} outside of here.nonlinear.",
            "Draw them inside the function that it is given: what is made of them is not linear.",
        )

    def nonlinear(
        self, tag: str, function: Function, rows: Tensor, epsilon: float | None
    ) -> Tensor:
        self._once("non-linear step", tag, "twice in an iteration; give them different tags")
        names = of_clients("nonlinear", self.tick, self._ids, tag)
        for name, row in zip(names, rows[:, : len(self._book.places)].clone(), strict=True):
            self.nonlinear_steps[name] = NonlinearStep(row, epsilon)
        return self._book.rows(names)

    def _once(self, what: str, which: str | int, remedy: str) -> None:
        if (what, which) in self._used:
            raise Misuse(
                f"The algorithm takes {what} {which!r} {remedy}.", "Then it can be audited."
            )
        self._used.add((what, which))


class _Network:
    """Messages between all clients in float64."""

    def __init__(self, graph: Graph) -> None:
        self._weights = torch.as_tensor(graph.weights.toarray(), dtype=torch.float64)
        source, target = graph.edges[:, 0], graph.edges[:, 1]
        self._delivery = torch.as_tensor(np.lexsort((source, target)))

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        return tuple(self._weights @ received(sent) for sent in rows.values())

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        return edge_rows[self._delivery]

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.mean(0, keepdim=True).repeat(len(x), 1) for x in rows.values())
