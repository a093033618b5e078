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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.dense_execution import DenseExecution, UnroundedClients
from tacit.auditing.symbolic.linear_knowledge import LinearKnowledge
from tacit.auditing.symbolic.random_clients import RELATIVE, RandomClients, WatchedNoise
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.randomness import Philox
from tacit.engines.setting import Setting
from tacit.graph import Graph, World
from tacit.record.transcript import Keep, Message, Transcript
from tacit.record.unknowns import EVERY_CLIENT, Unknown, client_unknowns

WIDTH = 6  # numbers in a row
SIZES = (1.0, 1e-3, 1e4)  # of gradients and first models, one run each
MOST_NUMBERS = 2e7  # in one run on numbers
MOST_CLIENTS = 30  # whose states are examined
# Difference allowed relative to the largest number in the run, beside `RELATIVE`.
ABSOLUTE = 1e-11


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
    # As wide as the model, as far as memory allows.
    widest = min(width, max(WIDTH, int(MOST_NUMBERS / max(1, len(run.unknowns)))))
    on_numbers = partial(_Replay, algorithm, graph, run)
    runs = []
    for seed, size in enumerate(sizes):
        try:
            runs.append(on_numbers(seed, size, WIDTH if seed else widest))
        except Exception:
            # Some non-linear steps need all numbers.
            if not seed:
                raise
            runs.append(on_numbers(seed, size, widest))
    # The same initial models and noise with other gradients.
    other = on_numbers(0, sizes[0], widest, gradients=1)
    mismatches = (
        *(mismatch for replayed in runs for mismatch in replayed.mismatches()),
        *_hidden_inputs(runs[0].clients, other.clients),
        *_unheard_rows(algorithm, graph, min(run.steps, 2)),
    )
    # The first of each kind.
    return list({mismatch.what: mismatch for mismatch in reversed(mismatches)}.values())[::-1]


def checked_run(setting: Setting, iterations: int) -> tuple[SymbolicRun, list[Mismatch]]:
    """A run on symbols with all its messages, and what it computes otherwise on numbers."""
    algorithm, world = setting.algorithm, setting.world
    run = run_on_symbols(algorithm, world, iterations, common_start=setting.start_alike)
    return run, replay(algorithm, world, run, width=setting.task.parameters)


def _hidden_inputs(clients: RandomClients, others: RandomClients) -> Iterator[Mismatch]:
    """Steps that give different results for equal rows: they use something that is not declared.

    Args:
        clients: What clients did in a run.
        others: The same in a run with other gradients.
    """
    for key in clients.steps.keys() & others.steps.keys():
        applied, again = clients.steps[key], others.steps[key]
        hidden = False
        if applied.step.deterministic:
            # The other run's step with the rows of this one.
            result = again.step(*(rows.clone() for rows in applied.arguments))
            hidden = not torch.allclose(
                result, applied.result, rtol=RELATIVE, atol=0, equal_nan=True
            )
        pairs = zip(applied.arguments, again.arguments, strict=True)
        alike = torch.stack([(x == y).all(dim=1) for x, y in pairs]).all(dim=0)
        if hidden or not torch.equal(applied.result[alike], again.result[alike]):
            name = f"the non-linear step {applied.step.tag!r}"
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
            held = [k for k, owner in enumerate(owners) if owner == client]
            if held and not knowledge.exact(np.stack([knowledge.pad(rows[k]) for k in held])).all():
                yield Mismatch(f"clients have parts of others in {name!r} that were never sent")
                return


def without(run: SymbolicRun, mismatches: list[Mismatch]) -> SymbolicRun:
    """The run with messages that mismatch left unread."""
    messages = run.transcript.messages
    if any(mismatch.message is None for mismatch in mismatches):
        return replace(run, plain_messages=set(range(len(messages))))
    tags = {messages[m.message].tag for m in mismatches if m.message is not None}
    unread = {k for k, message in enumerate(messages) if message.tag in tags}
    return replace(run, plain_messages=run.plain_messages | unread)


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
        execution = DenseExecution(algorithm, World.of(graph), self.transcript)
        hood, recorder = execution.neighbourhood, execution.recorder
        common = any(unknown.client == EVERY_CLIENT for unknown in run.unknowns)
        self.clients = clients = RandomClients(
            hood.ids, recorder, seed, size, common, width, gradients
        )
        noise = WatchedNoise(Philox(seed, width, torch.float64), clients)
        here = recorder.wrap(
            UnroundedClients(
                hood, recorder, clients, noise, algorithm.gradients_per_step, clients.apply
            )
        )
        states = execution.states(here, range(run.steps))
        self.states = [tensors_of(state) for state, _ in states]
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
        for (tick, tag), applied in self.clients.steps.items():
            unknowns = client_unknowns("nonlinear", tick, self.clients.ids, tag)
            for unknown, *arguments in zip(unknowns, *applied.arguments, strict=True):
                step = run.nonlinear_steps.get(unknown)
                inputs = () if step is None else step.inputs
                if len(inputs) != len(arguments) or not all(
                    self._agrees(symbolic[None], row[None])
                    for symbolic, row in zip(inputs, arguments, strict=True)
                ):
                    yield Mismatch(f"the input of the non-linear step {tag!r} is not linear")

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
