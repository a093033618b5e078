"""Runs an algorithm on symbols: every row holds coefficients over the unknowns of the run.

The unknowns are first models, gradients, noise and results of declared non-linear steps. The
algorithm receives them as unit rows and combines them with its own code, so each message it sends
is recorded as coefficients. Nothing in this module is specific to one algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.core.here import Function
from tacit.core.hosted_clients import HostedClients
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Noise
from tacit.core.rows import NoiseRows, Sent, received
from tacit.graph import Graph
from tacit.record.transcript import Keep, Transcript, TranscriptRecorder
from tacit.record.unknowns import Unknown, client_unknowns, noise_unknowns

MAX_BYTES = 6e9  # of coefficients in one run


@dataclass(frozen=True, eq=False)
class NonlinearStep:
    """The input [U'] of a declared non-linear step, and its ε per coordinate if it declares one."""

    input: Tensor
    epsilon: float | None


@dataclass(frozen=True, eq=False)
class SymbolicRun:
    """The messages of a run as coefficients [k, U'] over its first U' unknowns.

    Unknowns are numbered in the order of their first use, so early rows are shorter.
    """

    transcript: Transcript
    unknowns: list[Unknown]  # the columns
    laws: dict[Unknown, Noise]  # distribution of each noise unknown
    models: list[Tensor]  # θ after 0, 1, … iterations [n, U']
    points: dict[int, Tensor]  # where the gradients on batch 0, 1, … were taken [n, U']
    nonlinear_steps: dict[Unknown, NonlinearStep]
    gradients_per_step: int = 1

    @cached_property
    def columns(self) -> dict[Unknown, int]:
        return {unknown: column for column, unknown in enumerate(self.unknowns)}

    @property
    def clients(self) -> int:
        return self.transcript.clients

    @property
    def steps(self) -> int:
        return len(self.models) - 1

    def gradients(self, client: int) -> list[Unknown]:
        """The gradients of a client in the order they were taken."""
        every = (Unknown("gradient", when, client) for when in sorted(self.points))
        return [gradient for gradient in every if gradient in self.columns]


def run_on_symbols(
    algorithm: Algorithm, graph: Graph, steps: int, keep: Keep | None = None
) -> SymbolicRun:
    """Run `steps` iterations of an algorithm on unknowns and record the messages that `keep` names.

    The algorithm runs twice: first with empty rows to count the unknowns, then with rows of that
    many coefficients.

    Raises:
        Misuse: The graph does not suit the algorithm, the coefficients would need too much memory,
            or the algorithm does something that symbols cannot express.
    """
    check_count("steps", steps, at_least=0)
    graph.require(*algorithm.requires, by=algorithm.name)
    keep = keep or Keep()
    counted = _run(algorithm, graph, steps, keep, width=0)
    unknowns = len(counted.unknowns)
    size = 8.0 * unknowns * sum(len(message.rows) for message in counted.transcript.messages)
    if size > MAX_BYTES:
        raise Misuse(
            f"{steps} iterations of {graph.clients} clients have {unknowns:,} unknowns: the "
            f"coefficients of all messages would take {size / 1e9:.0f} GB.",
            f"Audit fewer iterations: about {max(1, int(steps * (MAX_BYTES / size) ** 0.5))} fit.",
        )
    return _run(algorithm, graph, steps, keep, width=unknowns)


def _run(algorithm: Algorithm, graph: Graph, steps: int, keep: Keep, width: int) -> SymbolicRun:
    transcript = Transcript(keep)
    hood = Neighbourhood.of(graph.edges, np.arange(graph.clients), "cpu", graph.weights.diagonal())
    recorder = TranscriptRecorder(_Network(graph), transcript, hood)
    clients = SymbolicClients(hood.ids, width)
    here = HostedClients(
        hood, recorder, clients, clients, algorithm.gradients_per_step, clients.nonlinear
    )
    state = algorithm.start(here)
    models = [clients.trim(state.theta)]
    trimmed = 0
    for t in range(steps):
        recorder.set_tick(t + 1)
        clients.set_tick(t + 1)
        state = algorithm.step(state, here.at(t))
        models.append(clients.trim(state.theta))
        for message in transcript.messages[trimmed:]:
            transcript.messages[trimmed] = replace(message, rows=clients.trim(message.rows))
            trimmed += 1
    return SymbolicRun(
        transcript,
        list(clients.columns),
        clients.laws,
        models,
        clients.points,
        clients.nonlinear_steps,
        here.gradients_per_step,
    )


class SymbolicClients:
    """Objective, randomness and non-linear steps of the clients in a run on symbols.

    Unknowns get columns in the order of their first use, in rows of a fixed width.
    """

    def __init__(self, ids: Tensor, width: int) -> None:
        self.tick = 0
        self._ids, self._width = ids, width
        self._used: set[str] = set()
        self.columns: dict[Unknown, int] = {}
        self.laws: dict[Unknown, Noise] = {}
        self.points: dict[int, Tensor] = {}
        self.nonlinear_steps: dict[Unknown, NonlinearStep] = {}

    def set_tick(self, tick: int) -> None:
        self.tick = tick
        self._used.clear()

    def trim(self, rows: Tensor) -> Tensor:
        """A copy without the columns that are not assigned yet: they are still zero."""
        return rows[:, : len(self.columns)].clone()

    def _unit_rows(self, unknowns: list[Unknown]) -> Tensor:
        """Unit rows [n, width]; new unknowns get the next columns."""
        columns = [self.columns.setdefault(unknown, len(self.columns)) for unknown in unknowns]
        rows = torch.zeros(len(unknowns), self._width, dtype=torch.float64)
        # A run whose rows are too narrow only counts the unknowns.
        if self._width >= len(self.columns):
            rows[torch.arange(len(unknowns)), torch.tensor(columns, dtype=torch.int64)] = 1.0
        return rows

    def theta0(self) -> Tensor:
        return self._unit_rows(client_unknowns("theta0", 0, self._ids))

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        self._check_first_use(
            f"a gradient on batch {number}", "Declare gradients_per_step to take several."
        )
        self.points[number] = self.trim(theta)
        return self._unit_rows(client_unknowns("gradient", number, self._ids))

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        # ∇f(w) + b + cw = 0: with the gradient as an unknown, w is linear in it.
        w = -(self.grad(linear, number) + linear) / curvature
        self.points[number] = self.trim(w)
        return w

    def rows(
        self,
        tag: str,
        law: Noise,
        tick: int,
        source: Tensor,
        target: Tensor | None,
        width: int | None = None,
    ) -> NoiseRows:
        unknowns = noise_unknowns(tag, tick, source, target)
        is_zero = law.variance == 0
        if not is_zero:
            if any(self.laws.get(unknown, law) != law for unknown in unknowns[:1]):
                raise Misuse(
                    f"The noise {tag!r} has two distributions in one iteration.",
                    "Give them different tags.",
                )
            self.laws.update(dict.fromkeys(unknowns, law))
            # Assign columns in this order, whatever order the rows are drawn in.
            self._unit_rows(unknowns)

        def draw(index: Tensor) -> Tensor:
            if is_zero:
                return torch.zeros(len(index), self._width, dtype=torch.float64)
            return self._unit_rows([unknowns[k] for k in index.tolist()])

        return NoiseRows(len(unknowns), self._width, torch.float64, source.device, draw)

    def words(self, tag: str, tick: int, source: Tensor, width: int) -> Tensor:
        raise Misuse(
            f"The algorithm draws words {tag!r} outside of here.nonlinear.",
            "Draw them inside the function given to here.nonlinear: the result is not linear.",
        )

    def nonlinear(
        self, tag: str, function: Function, rows: Tensor, epsilon: float | None
    ) -> Tensor:
        self._check_first_use(f"the non-linear step {tag!r}", "Give them different tags.")
        unknowns = client_unknowns("nonlinear", self.tick, self._ids, tag)
        for unknown, row in zip(unknowns, self.trim(rows), strict=True):
            self.nonlinear_steps[unknown] = NonlinearStep(row, epsilon)
        return self._unit_rows(unknowns)

    def _check_first_use(self, name: str, remedy: str) -> None:
        if name in self._used:
            raise Misuse(f"The algorithm takes {name} twice in one iteration.", remedy)
        self._used.add(name)


class _Network:
    """Delivers messages between all clients in float64."""

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
