"""Checks the symbols: on numbers, the algorithm must do what its coefficients say.

On symbols a row holds coefficients. Code that is not linear in its rows, such as an undeclared sign
or noise scaled by a norm, computes something there that has no meaning. So the algorithm runs again
on random numbers in place of gradients and first models, for several seeds and sizes. Every
message, every model, every point at which a gradient is taken and every input of a declared
non-linear step must equal Σ coefficient · number. What a declared step says of itself is checked
too: that it is deterministic, its inverse, its Lipschitz constant.

What passes is linear in these runs. An algorithm that changes its behaviour later, or only for
certain numbers, can still deceive the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.algorithm_text import failures_located
from tacit.auditing.symbolic.linear_knowledge import LinearKnowledge
from tacit.auditing.symbolic.surroundings import Surroundings
from tacit.auditing.symbolic.symbols import SymbolicRun, run_on_symbols
from tacit.auditing.symbolic.unrounded import UnroundedClients
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.here import Nonlinear
from tacit.core.hosted_clients import Sampling
from tacit.core.noise import Noise
from tacit.core.randomness import Philox, Randomness
from tacit.core.rows import NoiseRows
from tacit.engines.setting import Setting
from tacit.graph import Graph, World
from tacit.record.transcript import Keep, Message, Transcript
from tacit.record.unknowns import EVERY_CLIENT, Unknown, client_unknowns, noise_unknowns

WIDTH = 6  # numbers in a row
SIZES = (1.0, 1e-3, 1e4)  # of gradients and first models, one run each
RELATIVE = 1e-8  # difference allowed, relative to Σ |coefficient| · |number|
MOST_NUMBERS = 2e7  # in one run on numbers
MOST_CLIENTS = 30  # whose states are examined
ABSOLUTE = 1e-11  # and to the largest number in the run


@dataclass(frozen=True)
class Mismatch:
    """Something that an algorithm computes otherwise on numbers than on symbols."""

    what: str
    message: int | None = None  # index in the transcript, if it is a message


def replay(
    algorithm: Algorithm,
    graph: Graph | World,
    run: SymbolicRun,
    sizes: tuple[float, ...] = SIZES,
    width: int = WIDTH,
) -> list[Mismatch]:
    """Compare a run on symbols with runs on random numbers; one mismatch for each thing.

    Args:
        algorithm: The algorithm of the run.
        graph: The graph of the run, or the world in which it changes.
        run: The run on symbols, with all its messages.
        sizes: Standard deviations of the random numbers, one run on numbers each.
        width: Parameters of the model; code may treat them differently by position.
    """
    found: dict[str, Mismatch] = {}
    widths = [WIDTH] * len(sizes)
    # As wide as the model, as far as memory allows.
    widths[0] = min(width, max(WIDTH, int(MOST_NUMBERS / max(1, len(run.unknowns)))))
    on_numbers = partial(_Replay, algorithm, graph, run)
    with failures_located(algorithm.name):
        runs = [
            _replayed(partial(on_numbers, seed, size), wide, widths[0])
            for seed, (size, wide) in enumerate(zip(sizes, widths, strict=True))
        ]
    # The same initial models and noise with other gradients.
    other = on_numbers(0, sizes[0], widths[0], gradients=1)
    for mismatch in (
        *(mismatch for one in runs for mismatch in one.mismatches()),
        *_hidden_inputs(runs[0].clients, other.clients),
        *_unheard_rows(algorithm, graph, min(run.steps, 2)),
    ):
        found.setdefault(mismatch.what, mismatch)
    return list(found.values())


def checked_run(setting: Setting, iterations: int) -> tuple[SymbolicRun, list[Mismatch]]:
    """A run on symbols with all its messages, and what it computes otherwise on numbers."""
    algorithm, world = setting.algorithm, setting.world
    run = run_on_symbols(algorithm, world, iterations, common_start=setting.start_alike)
    return run, replay(algorithm, world, run, width=setting.task.parameters)


def _replayed(on_numbers: Callable[[int], _Replay], width: int, widest: int) -> _Replay:
    """A run on numbers: of few numbers in a row, or of all where non-linear steps need them."""
    try:
        return on_numbers(width)
    except Exception:
        if width == widest:
            raise
        return on_numbers(widest)


def _hidden_inputs(one: _RandomClients, other: _RandomClients) -> Iterator[Mismatch]:
    """Steps that give different results for equal rows: they use something that is not declared."""
    for key, (step, arguments, out) in one.steps.items():
        # The same step of the other run, in which gradients differ, with the rows of this one.
        if step.deterministic and key in other.steps:
            again = other.steps[key][0](*(rows.clone() for rows in arguments))
            if not torch.allclose(again, out, rtol=RELATIVE, atol=0, equal_nan=True):
                name = f"the non-linear step {step.tag!r}"
                yield Mismatch(f"the result of {name} depends on more than its rows")
    for unknown, rows in one.inputs.items():
        if (
            unknown in other.inputs
            and all(map(torch.equal, rows, other.inputs[unknown]))
            and not torch.equal(one.results[unknown], other.results[unknown])
        ):
            name = f"the non-linear step {unknown.tag!r}"
            yield Mismatch(f"the result of {name} depends on more than its rows")


def _unheard_rows(algorithm: Algorithm, graph: Graph | World, steps: int) -> Iterator[Mismatch]:
    """States of clients that contain what they neither hold nor received."""
    run = run_on_symbols(algorithm, graph, steps)
    if graph.clients < 2 or any(m.verb == "average" for m in run.transcript.messages):
        return
    source = [edge[0] for edge in run.transcript.edges]
    for client in range(min(graph.clients, MOST_CLIENTS)):
        knowledge = LinearKnowledge(run, Adversary.curious(client))
        for name, rows in run.states[-1].items():
            if name in run.plain_fields:
                continue
            owners = range(graph.clients) if len(rows) == graph.clients else source
            own = [k for k, owner in enumerate(owners) if owner == client]
            if own and not knowledge.exact(np.stack([knowledge.pad(rows[k]) for k in own])).all():
                yield Mismatch(f"clients have parts of others in {name!r} that were never sent")
                return


def without(run: SymbolicRun, mismatches: list[Mismatch]) -> SymbolicRun:
    """The run with messages that mismatch left unread."""
    messages = run.transcript.messages
    if any(one.message is None for one in mismatches):
        return replace(run, plain_messages=frozenset(range(len(messages))))
    tags = {messages[one.message].tag for one in mismatches if one.message is not None}
    unread = {k for k, message in enumerate(messages) if message.tag in tags}
    return replace(run, plain_messages=run.plain_messages | unread)


@dataclass(eq=False)
class _RandomClients:
    """An objective of random gradients, and non-linear steps whose declarations are checked."""

    ids: Tensor
    seed: int
    size: float
    common_start: bool
    points: dict[int, Tensor] = field(default_factory=dict)
    inputs: dict[Unknown, tuple[Tensor, ...]] = field(default_factory=dict)
    width: int = WIDTH
    gradients: int = 0  # another number gives other gradients
    results: dict[Unknown, Tensor] = field(default_factory=dict)
    # By tick and tag: a step, its arguments and its result.
    steps: dict[tuple[int, str], tuple[Nonlinear, tuple[Tensor, ...], Tensor]] = field(
        default_factory=dict
    )
    tick: int = 0
    problems: list[str] = field(default_factory=list)
    inside_step: str | None = None
    drawn_inside: set[Unknown] = field(default_factory=set)
    drawn_by: dict[tuple[str, int], str] = field(default_factory=dict)

    def theta0(self) -> Tensor:
        rows = self._rows("theta0", 0)
        return rows[:1].repeat(len(rows), 1) if self.common_start else rows

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        self.points[number] = theta.clone()
        return self._rows("gradient", number)

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        return self.grad(theta, number)

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        w = -(self._rows("gradient", number) + linear) / curvature
        self.points[number] = w.clone()
        return w

    def apply(self, step: Nonlinear, *rows: Tensor) -> Tensor:
        unknowns = client_unknowns("nonlinear", self.tick, self.ids, step.tag)
        own = zip(*(one.clone() for one in rows), strict=True)
        self.inputs.update(zip(unknowns, own, strict=True))
        self.inside_step = step.tag
        out = step(*(one.clone() for one in rows))
        self.results.update(zip(unknowns, out.clone(), strict=True))
        self.steps[self.tick, step.tag] = step, tuple(one.clone() for one in rows), out.clone()
        self.problems += _false_declarations(step, rows, out)
        self.inside_step = None
        return out

    def draw(self, tag: str, tick: int) -> None:
        """Note who draws a random stream; two steps with one stream are not independent."""
        if self.inside_step is None:
            return
        if self.drawn_by.setdefault((tag, tick), self.inside_step) != self.inside_step:
            self.problems.append(f"two non-linear steps draw the same random numbers {tag!r}")

    def _rows(self, kind: str, number: int) -> Tensor:
        """Numbers of both signs and many sizes, with zeros among them."""
        variant = self.gradients if kind == "gradient" else 0
        rng = np.random.default_rng((self.seed, len(kind), number, variant))
        shape = (len(self.ids), self.width)
        rows = self.size * rng.normal(size=shape) * 10.0 ** rng.uniform(-1, 1, (len(self.ids), 1))
        return torch.as_tensor(np.where(rng.random(shape) < 0.1, 0.0, rows))


@dataclass(frozen=True, eq=False)
class _WatchedNoise:
    """Randomness that notes which noise is drawn inside of non-linear steps."""

    randomness: Randomness
    clients: _RandomClients

    def rows(
        self,
        tag: str,
        law: Noise,
        tick: int,
        source: Tensor,
        target: Tensor | None,
        width: int | None = None,
    ) -> NoiseRows:
        self.clients.draw(tag, tick)
        if self.clients.inside_step is not None:
            self.clients.drawn_inside.update(noise_unknowns(tag, tick, source, target))
        return self.randomness.rows(tag, law, tick, source, target, width)

    def masks(self, tag: str, tick: int, one: Tensor, other: Tensor) -> Tensor:
        return self.randomness.masks(tag, tick, one, other)

    def words(
        self, tag: str, tick: int, source: Tensor, width: int, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        self.clients.draw(f"words {tag}", tick)
        return self.randomness.words(tag, tick, source, width, dtype)

    def add_integers(
        self, tag: str, law: DiscreteGaussian, tick: int, source: Tensor, onto: Tensor
    ) -> None:
        self.clients.draw(f"integers {tag}", tick)
        self.randomness.add_integers(tag, law, tick, source, onto)


def _false_declarations(
    step: Nonlinear, arguments: tuple[Tensor, ...], out: Tensor
) -> Iterator[str]:
    name, rows = f"the non-linear step {step.tag!r}", arguments[0]
    if any(out.shape != one.shape for one in arguments):
        yield f"{name} gives rows of another shape"
        return
    others = [torch.cat((2 * one[:1] + 1, one[1:])) for one in arguments]
    if len(rows) > 1 and not torch.equal(step(*others)[1:], out[1:]):
        yield f"{name} of one client depends on the rows of others"
    if step.deterministic:
        each = enumerate(zip(*arguments, strict=True))
        single = torch.cat([step.of_client(k, *(x[None].clone() for x in own)) for k, own in each])
        if not torch.allclose(single, out, rtol=RELATIVE, atol=0):
            yield f"{name} is declared deterministic, but is not a function of each row"
    if step.inverse is not None:
        # Where f is flat an inverse has no digits left: compare what it gives through f.
        back = step.function(step.inverse(out.clone()))
        if not torch.allclose(back, out, rtol=1e-6, atol=0):
            yield f"{name} declares an inverse that is none"
    if step.lipschitz is not None:
        moved = rows + 1e-3 * rows.roll(1, 0)
        change = (step.function(moved.clone()) - out).norm(dim=1)
        if bool((change > step.lipschitz * (moved - rows).norm(dim=1) * (1 + 1e-6)).any()):
            yield f"{name} changes faster than the Lipschitz constant it declares"


class _Replay:
    """One run on numbers beside the run on symbols."""

    def __init__(
        self,
        algorithm: Algorithm,
        graph: Graph | World,
        run: SymbolicRun,
        seed: int,
        size: float,
        width: int,
        gradients: int = 0,
    ) -> None:
        self.run, self.width = run, width
        ids = np.arange(graph.clients)
        self.transcript = Transcript(Keep(insides=tuple(ids.tolist()), theta0=True))
        surroundings = Surroundings(World.of(graph), algorithm, self.transcript)
        hood, recorder = surroundings.neighbourhood, surroundings.recorder
        common = any(unknown.client == EVERY_CLIENT for unknown in run.unknowns)
        self.clients = clients = _RandomClients(
            hood.ids, seed, size, common, width=width, gradients=gradients
        )
        noise = _WatchedNoise(Philox(seed, width, torch.float64), clients)
        here = recorder.wrap(
            UnroundedClients(
                hood, recorder, clients, noise, algorithm.gradients_per_step, clients.apply
            )
        )
        state = algorithm.start(here)
        self.states = [tensors_of(state)]
        for t in range(run.steps):
            clients.tick = t + 1
            state, _ = surroundings.step(here, state, t)
            self.states.append(tensors_of(state))
        held = [self._held(unknown) for unknown in run.unknowns]
        self.missing = [u for u, row in zip(run.unknowns, held, strict=True) if row is None]
        zero = torch.zeros(width, dtype=torch.float64)
        self.numbers = torch.stack([zero if row is None else row.double() for row in held])
        self.largest = float(self.numbers.abs().max())

    def _held(self, unknown: Unknown) -> Tensor | None:
        if unknown.client == EVERY_CLIENT:
            unknown = unknown._replace(client=0)
        return self.transcript.held.get(unknown)

    def mismatches(self) -> Iterator[Mismatch]:
        run = self.run
        yield from (Mismatch(problem) for problem in dict.fromkeys(self.clients.problems))
        for unknown in self.clients.drawn_inside & self.run.laws.keys():
            yield Mismatch(f"the noise {unknown.tag!r} is used both inside and outside of a step")
        for unknown in self.missing:
            yield Mismatch(f"{unknown} is used on symbols, but not on numbers")
        symbolic, recorded = run.transcript.messages, self.transcript.messages
        if list(map(outline, symbolic)) != list(map(outline, recorded)):
            yield Mismatch("other messages are sent on numbers than on symbols")
            return
        for index, (message, numbers) in enumerate(zip(symbolic, recorded, strict=True)):
            yield from self._message(index, message, numbers)
        for t, state in enumerate(self.states):
            for name, rows in state.items():
                if name not in run.plain_fields and not self._agrees(run.states[t][name], rows):
                    yield Mismatch(f"the state {name!r} is not linear in the unknowns")
        for number, point in self.clients.points.items():
            if not self._agrees(run.points[number], point):
                yield Mismatch("the points at which gradients are taken are not linear")
        for unknown, arguments in self.clients.inputs.items():
            step = run.nonlinear_steps.get(unknown)
            inputs = () if step is None else step.inputs
            linear = len(inputs) == len(arguments) and all(
                self._agrees(one[None], row[None])
                for one, row in zip(inputs, arguments, strict=True)
            )
            if not linear:
                yield Mismatch(f"the input of the non-linear step {unknown.tag!r} is not linear")

    def _message(self, index: int, message: Message, numbers: Message) -> Iterator[Mismatch]:
        name = f"the message {message.tag!r}"
        if index in self.run.plain_messages:
            same = message.rows.shape == numbers.rows.shape
            if not same or not torch.allclose(message.rows.double(), numbers.rows.double()):
                why = "is not one number per parameter and depends on them"
                yield Mismatch(f"{name} {why}", index)
        elif numbers.rows.shape[1] != self.width:
            yield Mismatch(f"{name} is not one number per parameter", index)
        elif not self._agrees(message.rows, numbers.rows):
            yield Mismatch(f"{name} is not linear in gradients, models and noise", index)

    def _agrees(self, coefficients: Tensor, numbers: Tensor) -> bool:
        values = self.numbers[: coefficients.shape[1]]
        if not bool(numbers.isfinite().all()):
            return False
        wrong = (coefficients @ values - numbers.double()).abs()
        allowed = RELATIVE * (coefficients.abs() @ values.abs()) + ABSOLUTE * self.largest
        return bool((wrong <= allowed).all())


def outline(message: Message) -> tuple[object, ...]:
    """All of a message but its numbers."""
    target = None if message.target is None else message.target.tolist()
    return message.tick, message.verb, message.tag, message.source.tolist(), target
