"""Runs an algorithm on symbols: every row holds coefficients over the unknowns of the run.

The unknowns are first models, gradients, noise and results of declared non-linear steps. The
algorithm receives them as unit rows and combines them with its own code, so each message it sends
is recorded as coefficients. Nothing in this module is specific to one algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.auditing.symbolic.algorithm_text import failures_located
from tacit.auditing.symbolic.surroundings import Surroundings
from tacit.auditing.symbolic.symbolic_clients import (
    NonlinearStep,
    SymbolicClients,
    SymbolicHere,
    SymbolTable,
)
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.core.hosted_clients import Sampling
from tacit.core.noise import Noise
from tacit.core.schedules import Schedule
from tacit.graph import Graph, World
from tacit.record.transcript import Keep, Transcript
from tacit.record.unknowns import NO_CLIENT, Unknown, client_unknowns

# Width of rows while unknowns are counted: not zero, so that a text whose widths are fixed fails at
# the line that fixes them.
NARROW = 7
MAX_BYTES = 6e9  # of coefficients in one run


@dataclass(frozen=True, eq=False)
class SymbolicRun:
    """The messages of a run as coefficients [k, U'] over its first U' unknowns.

    Unknowns are numbered in the order of their first use, so early rows are shorter.
    """

    transcript: Transcript
    unknowns: list[Unknown]  # the columns
    laws: dict[Unknown, Noise]  # distribution of each noise unknown
    states: list[dict[str, Tensor]]  # after 0, 1, … iterations: the rows of each field [·, U']
    points: dict[int, Tensor]  # where the gradients on batch 0, 1, … were taken [n, U']
    messages_before: dict[int, int]  # how many messages were sent before these gradients
    nonlinear_steps: dict[Unknown, NonlinearStep]
    gradients_per_step: int = 1
    # How the sums of clipped gradients on batch 0, 1, … are sampled; others are plain gradients.
    samplings: dict[int, Sampling] = field(default_factory=dict)
    # What rounding to integers changes in a coordinate, in units of gradients; 0 without integers.
    rounding: float = 0.0
    # Messages that are not rows of coefficients, such as a counter: they carry no symbols.
    plain_messages: frozenset[int] = frozenset()
    # Whether the algorithm reads `here.t`, not only step sizes.
    uses_iteration: bool = False
    schedules: tuple[Schedule, ...] = ()  # step sizes and scales that change over time
    # Fields of the state that are not one number per parameter, such as a counter.
    plain_fields: frozenset[str] = frozenset()
    # Gradients of clients that did not take part are not used.
    unused: frozenset[Unknown] = frozenset()

    @cached_property
    def columns(self) -> dict[Unknown, int]:
        return {unknown: column for column, unknown in enumerate(self.unknowns)}

    @property
    def clients(self) -> int:
        return self.transcript.clients

    @property
    def steps(self) -> int:
        return len(self.states) - 1

    @property
    def models(self) -> list[Tensor]:
        """θ after 0, 1, … iterations [n, U']."""
        return [state["theta"] for state in self.states]

    def wide(self, rows: Tensor) -> npt.NDArray[np.float64]:
        """Coefficients [k, U] over all unknowns of rows [k, U'] over the first ones."""
        return np.pad(rows.numpy(), ((0, 0), (0, len(self.unknowns) - rows.shape[1])))

    def gradients(self, client: int) -> list[Unknown]:
        """The gradients of a client in the order they were taken."""
        every = (Unknown("gradient", when, client) for when in sorted(self.points))
        return [one for one in every if one in self.columns and one not in self.unused]


def run_on_symbols(
    algorithm: Algorithm,
    graph: Graph | World,
    steps: int,
    keep: Keep | None = None,
    *,
    common_start: bool = False,
) -> SymbolicRun:
    """Run `steps` iterations of an algorithm on unknowns and record the messages that `keep` names.

    The algorithm runs twice: first with empty rows to count the unknowns, then with rows of that
    many coefficients.

    Args:
        algorithm: What to run.
        graph: The clients and their edges, or the world in which these change.
        steps: The number of iterations.
        keep: Which messages to record; all by default.
        common_start: Whether all clients start from one model, which each of them knows.

    Raises:
        Misuse: The graph does not suit the algorithm, the coefficients would need too much memory,
            or the algorithm does something that symbols cannot express.
    """
    check_count("steps", steps, at_least=0)
    world = World.of(graph)
    algorithm.check_world(world)
    counter = SymbolTable(NARROW)
    run = partial(_run, algorithm, world, range(steps), keep or Keep(), common_start)
    sent = run(counter).transcript
    unknowns = len(counter.columns)
    size = 8.0 * unknowns * sent.row_count
    if size > MAX_BYTES:
        raise Misuse(
            f"{steps} iterations of {world.clients} clients have {unknowns:,} unknowns: the "
            f"coefficients of all messages would take {size / 1e9:.0f} GB.",
            f"Audit fewer iterations: about {max(1, int(steps * (MAX_BYTES / size) ** 0.5))} fit.",
        )
    # One more column than unknowns, so that no message of one number per client is as wide.
    return run(SymbolTable(unknowns + 1))


def step_on_symbols(
    algorithm: Algorithm, graph: Graph, t: int, *, steps: int = 1, keep: Keep | None = None
) -> SymbolicRun:
    """Run iteration t alone, or `steps` from there, from a state of unknowns of kind "theta0"."""
    world, counter = World(graph), SymbolTable(NARROW)
    start = _SymbolicEngine(algorithm, world, Keep(), SymbolTable(NARROW), False).start()

    def begin(table: SymbolTable) -> Any:
        unknowns = {
            name: [Unknown("theta0", 0, row, NO_CLIENT, name) for row in range(len(rows))]
            for name, rows in tensors_of(start).items()
        }
        return type(start)(**{name: table.rows(some) for name, some in unknowns.items()})

    run = partial(_run, algorithm, world, range(t, t + steps), keep or Keep(), False, begin=begin)
    run(counter)
    return run(SymbolTable(len(counter.columns) + 1))


def _run(
    algorithm: Algorithm,
    world: World,
    iterations: range,
    keep: Keep,
    common_start: bool,
    table: SymbolTable,
    begin: Callable[[SymbolTable], Any] | None = None,
) -> SymbolicRun:
    """Iterations from the algorithm's own start, or from the state that `begin` makes."""
    engine = _SymbolicEngine(algorithm, world, keep, table, common_start)
    state = engine.start() if begin is None else begin(table)
    engine.record(state)
    for t in iterations:
        state = engine.step(state, t)
    return engine.run()


class _SymbolicEngine:
    """All clients on symbols, with their messages and states recorded."""

    def __init__(
        self,
        algorithm: Algorithm,
        world: World,
        keep: Keep,
        table: SymbolTable,
        common_start: bool,
    ) -> None:
        self._algorithm, self._table = algorithm, table
        self._transcript = Transcript(keep)
        self._surroundings = surroundings = Surroundings(world, algorithm, self._transcript)
        hood = surroundings.neighbourhood
        self._clients = clients = SymbolicClients(table, hood.ids, common_start, self._transcript)
        self.here = SymbolicHere(
            hood,
            surroundings.recorder,
            clients,
            clients,
            algorithm.gradients_per_step,
            clients.nonlinear,
        )
        self._unused: set[Unknown] = set()
        self._states: list[dict[str, Tensor]] = []
        self._plain: set[int] = set()
        self._plain_fields: set[str] = set()
        self._trimmed = 0

    def start(self) -> Any:
        with failures_located(self._algorithm.name):
            return self._algorithm.start(self.here)

    def step(self, state: Any, t: int) -> Any:
        self._clients.set_tick(t + 1)
        taken = set(self._clients.points)
        with failures_located(self._algorithm.name):
            state, moment = self._surroundings.step(self.here, state, t)
        if moment.present is not None:
            absent = torch.as_tensor(np.flatnonzero(~moment.present))
            for number in self._clients.points.keys() - taken:
                self._unused |= set(client_unknowns("gradient", number, absent))
        self.record(state)
        return state

    def record(self, state: Any) -> None:
        """Keep a state, and the messages since the last one, without unused columns."""
        table, messages = self._table, self._transcript.messages
        self._plain_fields |= {
            name for name, rows in tensors_of(state).items() if rows.shape[1] != table.width
        }
        self._states.append({name: table.trim(rows) for name, rows in tensors_of(state).items()})
        for index in range(self._trimmed, len(messages)):
            if messages[index].rows.shape[1] == table.width:
                messages[index] = replace(messages[index], rows=table.trim(messages[index].rows))
            else:
                self._plain.add(index)
        self._trimmed = len(messages)

    def run(self) -> SymbolicRun:
        clients = self._clients
        return SymbolicRun(
            self._transcript,
            list(self._table.columns),
            self._table.laws,
            self._states,
            clients.points,
            clients.messages_before,
            clients.nonlinear_steps,
            self.here.gradients_per_step,
            clients.samplings,
            clients.rounding,
            frozenset(self._plain),
            clients.uses_iteration,
            tuple(clients.schedules),
            frozenset(self._plain_fields),
            frozenset(self._unused),
        )
