"""Runs an algorithm on symbols: every row holds coefficients over the unknowns of the run.

The unknowns are first models, gradients, noise and results of declared non-linear steps. The
algorithm receives them as unit rows and combines them with its own code, so each message it sends
is recorded as coefficients. Nothing in this module is specific to one algorithm.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.auditing.symbolic.dense_execution import DenseExecution
from tacit.auditing.symbolic.symbolic_clients import SymbolicClients, SymbolicHere
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.graph import Graph, World
from tacit.record.transcript import Keep, Transcript
from tacit.record.unknowns import NO_CLIENT, Unknown, client_unknowns

# Width of rows while unknowns are counted: not zero, so that a text whose widths are fixed fails at
# the line that fixes them.
NARROW = 7
MAX_BYTES = 6e9  # of coefficients in one run


def run_on_symbols(
    algorithm: Algorithm,
    graph: Graph | World,
    steps: int,
    keep: Keep | None = None,
    *,
    common_start: bool = False,
) -> SymbolicRun:
    """Run `steps` iterations of an algorithm on unknowns and record the messages that `keep` names.

    The algorithm runs twice: first with narrow rows to count the unknowns, then with rows of that
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
    return _wide_enough(
        partial(_Recording, algorithm, world, keep or Keep(), common_start), range(steps)
    )


def step_on_symbols(
    algorithm: Algorithm, graph: Graph, t: int, *, steps: int = 1, keep: Keep | None = None
) -> SymbolicRun:
    """Run iteration t alone, or `steps` from there, from a state of unknowns of kind "theta0"."""
    recording = partial(_Recording, algorithm, World(graph), keep or Keep(), False)
    return _wide_enough(recording, range(t, t + steps), from_unknowns=True)


def _wide_enough(
    recording: partial[_Recording], iterations: range, *, from_unknowns: bool = False
) -> SymbolicRun:
    """A run with as many coefficients as there are unknowns, which are counted first."""
    counted = recording(NARROW).run(iterations, from_unknowns)
    unknowns, steps = len(counted.unknowns), len(iterations)
    size = 8.0 * unknowns * counted.transcript.row_count
    if size > MAX_BYTES:
        raise Misuse(
            f"{steps} iterations of {counted.clients} clients have {unknowns:,} unknowns: the "
            f"coefficients of all messages would take {size / 1e9:.0f} GB.",
            f"Audit fewer iterations: about {max(1, int(steps * (MAX_BYTES / size) ** 0.5))} fit.",
        )
    # One more column than unknowns, so that no message of one number per client is as wide.
    return recording(unknowns + 1).run(iterations, from_unknowns)


class _Recording:
    """All clients on rows of one width, with their messages and states recorded."""

    def __init__(
        self, algorithm: Algorithm, world: World, keep: Keep, common_start: bool, width: int
    ) -> None:
        self._run = SymbolicRun(Transcript(keep), gradients_per_step=algorithm.gradients_per_step)
        self._execution = execution = DenseExecution(algorithm, world, self._run.transcript)
        graph, recorder = execution.neighbourhood, execution.recorder
        self._clients = clients = SymbolicClients(
            self._run, width, graph.ids, common_start, recorder
        )
        self._here = SymbolicHere(
            graph, recorder, clients, clients, algorithm.gradients_per_step, clients.nonlinear
        )
        self._start = partial(_Recording, algorithm, world, Keep(), False, NARROW)

    def run(self, iterations: range, from_unknowns: bool) -> SymbolicRun:
        """Iterations from the algorithm's own start, or from a state of unknowns."""
        run, points = self._run, 0
        begin = self._unknown_state() if from_unknowns else None
        for state, moment in self._execution.states(self._here, iterations, begin):
            if moment.present is not None:
                absent = torch.as_tensor(np.flatnonzero(~moment.present))
                for batch in list(run.points)[points:]:
                    run.unused.update(client_unknowns("gradient", batch, absent))
            points = len(run.points)
            self._clients.record(state)
        return run

    def _unknown_state(self) -> Any:
        """A state as after `start`, each row of which is an unknown."""
        other = self._start()
        start, _ = next(other._execution.states(other._here, ()))
        unknowns = {
            name: [Unknown("theta0", 0, row, NO_CLIENT, name) for row in range(len(rows))]
            for name, rows in tensors_of(start).items()
        }
        rows = {name: self._clients.unit_rows(names) for name, names in unknowns.items()}
        return type(start)(**rows)
