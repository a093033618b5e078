"""Runs an algorithm on symbols: every row holds coefficients over the unknowns of the run.

The unknowns are first models, gradients, noise and results of declared non-linear steps. The
algorithm receives them as unit rows and combines them with its own code, so each message it sends
is recorded as coefficients. Nothing in this module is specific to one algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.auditing.symbolic.unrounded import UnroundedClients
from tacit.core.checks import check_count
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.core.fixed_point import FixedPoint, IntegerRows, Mask
from tacit.core.here import Network, Nonlinear
from tacit.core.hosted_clients import Sampling
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Noise
from tacit.core.rounded_sums import ROUNDING
from tacit.core.rows import NoiseRows, Sent, received
from tacit.core.schedules import Rate, Schedule, rate_at
from tacit.engines.changing_network import ChangingNetwork, keep_absent
from tacit.graph import Graph, Moment, World
from tacit.record.transcript import Keep, Transcript, TranscriptRecorder
from tacit.record.unknowns import (
    NO_CLIENT,
    Kind,
    Unknown,
    client_unknowns,
    first_models,
    noise_unknowns,
)

MAX_BYTES = 6e9  # of coefficients in one run


@dataclass(frozen=True, eq=False)
class NonlinearStep:
    """A declared non-linear step, its inputs [U'], and how many messages were sent before it."""

    inputs: tuple[Tensor, ...]
    declared: Nonlinear
    messages_before: int = 0

    @property
    def epsilon(self) -> float | None:
        return self.declared.epsilon


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
    def has_plain_state(self) -> bool:
        """Whether a field of the state is not one number per parameter."""
        return bool(self.plain_fields)

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

    def gradients(self, client: int) -> list[Unknown]:
        """The gradients of a client in the order they were taken."""
        every = (Unknown("gradient", when, client) for when in sorted(self.points))
        return [one for one in every if one in self.columns and one not in self.unused]


class SymbolTable:
    """Assigns columns to unknowns in the order of their first use, in rows of a fixed width."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.columns: dict[Unknown, int] = {}
        self.laws: dict[Unknown, Noise] = {}

    def rows(self, unknowns: list[Unknown]) -> Tensor:
        """Unit rows [n, width]; new unknowns get the next columns."""
        columns = [self.columns.setdefault(unknown, len(self.columns)) for unknown in unknowns]
        rows = torch.zeros(len(unknowns), self.width, dtype=torch.float64)
        # A table that is too narrow only counts the unknowns.
        if self.width >= len(self.columns):
            rows[torch.arange(len(unknowns)), torch.tensor(columns, dtype=torch.int64)] = 1.0
        return rows

    def trim(self, rows: Tensor) -> Tensor:
        """A copy without the columns that are not assigned yet: they are still zero."""
        return rows[:, : len(self.columns)].clone()


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
    counter = SymbolTable(0)
    run = partial(_run, algorithm, world, steps, keep or Keep(), common_start=common_start)
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


def _run(
    algorithm: Algorithm,
    world: World,
    steps: int,
    keep: Keep,
    table: SymbolTable,
    common_start: bool,
) -> SymbolicRun:
    engine = _SymbolicEngine(algorithm, world, keep, table, common_start)
    state = algorithm.start(engine.here)
    engine.record(state)
    for t in range(steps):
        state = engine.step(state, t)
    return engine.run()


def step_on_symbols(
    algorithm: Algorithm, graph: Graph, t: int, *, steps: int = 1, keep: Keep | None = None
) -> SymbolicRun:
    """Run iteration t alone, or `steps` from there, from a state of unknowns of kind "theta0"."""
    world = World(graph)
    counter = SymbolTable(0)
    engine = _SymbolicEngine(algorithm, world, Keep(), counter, False)
    start = algorithm.start(engine.here)
    rows = {name: len(value) for name, value in tensors_of(start).items()}

    def run(table: SymbolTable) -> SymbolicRun:
        engine = _SymbolicEngine(algorithm, world, keep or Keep(), table, False)
        unknowns = {
            name: [Unknown("theta0", 0, row, NO_CLIENT, name) for row in range(count)]
            for name, count in rows.items()
        }
        state = type(start)(**{name: table.rows(some) for name, some in unknowns.items()})
        engine.record(state)
        for later in range(t, t + steps):
            state = engine.step(state, later)
        return engine.run()

    counter = SymbolTable(0)
    run(counter)
    return run(SymbolTable(len(counter.columns) + 1))


class _SymbolicHere(UnroundedClients):
    """Hosted clients that notice when an algorithm reads the iteration."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("t", "tick"):
            object.__getattribute__(self, "objective").uses_iteration = True
        return object.__getattribute__(self, name)

    def rate(self, rate: Rate) -> float:
        if callable(rate):
            object.__getattribute__(self, "objective").schedules.append(rate)
        return rate_at(rate, object.__getattribute__(self, "t"))

    def grad(self, theta: Tensor, local: int = 0) -> Tensor:
        clients = object.__getattribute__(self, "objective")
        used = clients.uses_iteration
        gradients = super().grad(theta, local)
        clients.uses_iteration = used
        return gradients

    def clipped_sum(
        self,
        theta: Tensor,
        bound: float,
        rate: float,
        local: int = 0,
        rounding: float = ROUNDING,
    ) -> Tensor:
        clients = object.__getattribute__(self, "objective")
        used = clients.uses_iteration
        sums = super().clipped_sum(theta, bound, rate, local, rounding)
        clients.uses_iteration = used
        return sums

    def minimise(self, linear: Tensor, curvature: Tensor) -> Tensor:
        clients = object.__getattribute__(self, "objective")
        used = clients.uses_iteration
        found = super().minimise(linear, curvature)
        clients.uses_iteration = used
        return found

    def with_network(self, net: Network) -> Self:
        clients = object.__getattribute__(self, "objective")
        used = clients.uses_iteration
        here = super().with_network(net)
        clients.uses_iteration = used
        return here

    def encoded_with(self, code: FixedPoint, rows: Tensor) -> None:
        clients = object.__getattribute__(self, "objective")
        clients.rounding = max(clients.rounding, clients.relative_rounding(code, rows))

    @property
    def _tick(self) -> int:
        tick: int = object.__getattribute__(self, "tick")
        return tick


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
        self._recorder = surroundings.recorder
        self._clients = clients = SymbolicClients(table, hood.ids, common_start, self._transcript)
        self.here = _SymbolicHere(
            hood, self._recorder, clients, clients, algorithm.gradients_per_step, clients.nonlinear
        )
        self._unused: set[Unknown] = set()
        self._states: list[dict[str, Tensor]] = []
        self._plain: set[int] = set()
        self._plain_fields: set[str] = set()
        self._trimmed = 0

    def step(self, state: Any, t: int) -> Any:
        self._recorder.set_tick(t + 1)
        self._clients.set_tick(t + 1)
        moment, taken = self._surroundings.enter(t), set(self._clients.points)
        here = self.here.at(t, self._surroundings.neighbourhood)
        before = state
        state = self._algorithm.step(state, here)
        if moment.present is not None:
            state = keep_absent(tensors_of(before), state, moment.present)
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


class SymbolicClients:
    """Objective, randomness and non-linear steps of the clients in a run on symbols."""

    def __init__(
        self, table: SymbolTable, ids: Tensor, common_start: bool, transcript: Transcript
    ) -> None:
        self.tick = 0
        self._transcript = transcript
        self._common_start = common_start
        self._table = table
        self._ids = ids
        self._used: set[str] = set()
        self.points: dict[int, Tensor] = {}
        self.messages_before: dict[int, int] = {}
        self.uses_iteration = False
        self.schedules: list[Schedule] = []
        self.nonlinear_steps: dict[Unknown, NonlinearStep] = {}
        self.samplings: dict[int, Sampling] = {}
        self.rounding = 0.0

    def set_tick(self, tick: int) -> None:
        self.tick = tick
        self._used.clear()

    def theta0(self) -> Tensor:
        return self._table.rows(first_models(self._ids, self._common_start))

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        self._check_first_use(
            f"a gradient on batch {number}", "Declare gradients_per_step to take several."
        )
        if number in self.points:
            raise Misuse(
                f"Two gradients are taken on batch {number}, in different iterations.",
                "Take only gradient 0 in `start`.",
            )
        self.points[number] = self._table.trim(theta)
        self.messages_before[number] = len(self._transcript.messages)
        return self._table.rows(client_unknowns("gradient", number, self._ids))

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        self.samplings[number] = sampling
        return self.grad(theta, number)

    def relative_rounding(self, code: FixedPoint, rows: Tensor) -> float:
        """1/s over the smallest coefficient of a gradient in rows that are encoded."""
        kinds = [unknown.kind == "gradient" for unknown in self._table.columns]
        width = min(rows.shape[1], len(kinds))
        found = rows[:, :width][:, torch.tensor(kinds[:width], dtype=torch.bool)].abs()
        found = found[found > 0]
        return 1 / (code.scale * float(found.min())) if len(found) else 1 / code.scale

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        # ∇f(w) + b + cw = 0: with the gradient as an unknown, w is linear in it.
        w = -(self.grad(linear, number) + linear) / curvature
        self.points[number] = self._table.trim(w)
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
        kind: Kind = "mask" if isinstance(law, Mask) else "noise"
        unknowns = noise_unknowns(tag, tick, source, target, kind)
        table, is_zero = self._table, law.variance == 0
        if not is_zero:
            if any(table.laws.get(unknown, law) != law for unknown in unknowns[:1]):
                raise Misuse(
                    f"The noise {tag!r} has two distributions in one iteration.",
                    "Give them different tags.",
                )
            if kind == "noise":
                table.laws.update(dict.fromkeys(unknowns, law))
            # Assign columns in this order, whatever order the rows are drawn in.
            table.rows(unknowns)

        def draw(index: Tensor) -> Tensor:
            if is_zero:
                return torch.zeros(len(index), table.width, dtype=torch.float64)
            return table.rows([unknowns[k] for k in index.tolist()])

        return NoiseRows(len(unknowns), table.width, torch.float64, source.device, draw)

    def masks(self, tag: str, tick: int, one: Tensor, other: Tensor) -> Tensor:
        raise Misuse("Integer masks have no symbols.", "Add them with here.fixed_point.")

    def words(self, tag: str, tick: int, source: Tensor, width: int) -> Tensor:
        raise Misuse(
            f"The algorithm draws words {tag!r} outside of here.nonlinear.",
            "Draw them inside the function given to here.nonlinear: the result is not linear.",
        )

    def integers(
        self,
        tag: str,
        law: DiscreteGaussian,
        tick: int,
        source: Tensor,
        width: int | None = None,
    ) -> Tensor:
        raise Misuse(
            f"The algorithm draws integers {tag!r} outside of here.nonlinear.",
            "Draw them inside the function given to here.nonlinear.",
        )

    def add_integers(
        self, tag: str, law: DiscreteGaussian, tick: int, source: Tensor, onto: Tensor
    ) -> None:
        self.integers(tag, law, tick, source)

    def nonlinear(self, step: Nonlinear, *rows: Tensor) -> Tensor:
        self._check_first_use(f"the non-linear step {step.tag!r}", "Give them different tags.")
        unknowns = client_unknowns("nonlinear", self.tick, self._ids, step.tag)
        inputs = zip(*(self._table.trim(one) for one in rows), strict=True)
        for unknown, own in zip(unknowns, inputs, strict=True):
            self.nonlinear_steps[unknown] = NonlinearStep(own, step, len(self._transcript.messages))
        return self._table.rows(unknowns)

    def _check_first_use(self, name: str, remedy: str) -> None:
        if name in self._used:
            raise Misuse(f"The algorithm takes {name} twice in one iteration.", remedy)
        self._used.add(name)


class Surroundings:
    """The network of a world in float64 and its recorder, one iteration after the other.

    Attributes:
        recorder: Records the messages.
        neighbourhood: The edges of the current iteration.
    """

    def __init__(self, world: World, algorithm: Algorithm, transcript: Transcript) -> None:
        self._world, self._algorithm = world, algorithm
        self._graph: Graph | None = None
        self.neighbourhood = _neighbourhood(world.graph)
        self._network: Network = DenseNetwork(world.graph)
        if not world.is_static:
            self._network = ChangingNetwork(DenseNetwork, algorithm.tolerates.uses_once)
        self.recorder = TranscriptRecorder(self._network, transcript, self.neighbourhood)
        self.enter(0)

    def enter(self, t: int) -> Moment:
        """Go to iteration t."""
        if not isinstance(self._network, ChangingNetwork):
            return Moment(self._world.graph)
        moment = self._world.at(t)
        self._network.enter(moment, self._world.longest_delay)
        if moment.graph is not self._graph:
            self._graph = moment.graph
            self._algorithm.check_moment(moment.graph, t)
            self.neighbourhood = _neighbourhood(moment.graph)
            self.recorder.change_graph(self.neighbourhood)
        return moment


def _neighbourhood(graph: Graph) -> Neighbourhood:
    return Neighbourhood.of(graph.edges, np.arange(graph.clients), "cpu", graph.weights)


class DenseNetwork:
    """Delivers messages between all clients in float64."""

    def __init__(self, graph: Graph) -> None:
        self._weights = torch.as_tensor(graph.weights.toarray(), dtype=torch.float64)
        source, target = graph.edges[:, 0], graph.edges[:, 1]
        self._delivery = torch.as_tensor(np.lexsort((source, target)))

    def mix(self, **rows: Sent) -> tuple[Tensor, ...]:
        return tuple(self._weights @ received(sent) for sent in rows.values())

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Tensor:
        return edge_rows[self._delivery]

    def total(self, **rows: IntegerRows) -> tuple[Tensor, ...]:
        sums = [sent.integers.sum(0, keepdim=True) for sent in rows.values()]
        return tuple(total.repeat(len(self._weights), 1) for total in sums)

    def average(self, **rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.mean(0, keepdim=True).repeat(len(x), 1) for x in rows.values())
