"""What clients give an algorithm that runs on symbols: unit rows over the unknowns of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.algorithm import tensors_of
from tacit.auditing.symbolic.dense_execution import UnroundedClients
from tacit.auditing.symbolic.symbolic_run import NonlinearStep, SymbolicRun
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.core.fixed_point import FixedPoint, Mask
from tacit.core.here import Nonlinear
from tacit.core.hosted_clients import Sampling
from tacit.core.noise import Noise
from tacit.core.rows import NoiseRows
from tacit.core.schedules import Rate, rate_at
from tacit.record.transcript import TranscriptRecorder
from tacit.record.unknowns import Kind, Unknown, client_unknowns, first_models, noise_unknowns

# What the library computes from the iteration: an algorithm that calls it does not read it.
READS_THE_ITERATION = frozenset({"grad", "sampled_sum", "minimise", "with_network"})


class SymbolicClients:
    """Objective, randomness and non-linear steps of the clients in a run on symbols.

    They assign columns to unknowns in the order of their first use, in rows of a fixed width, and
    note in the run what the algorithm does.
    """

    def __init__(
        self,
        run: SymbolicRun,
        width: int,
        ids: Tensor,
        common_start: bool,
        recorder: TranscriptRecorder,
    ) -> None:
        self.run, self.width = run, width
        self._ids, self._common_start, self._recorder = ids, common_start, recorder
        self._columns: dict[Unknown, int] = {}
        self._used: set[tuple[int, str]] = set()
        self._recorded_messages = 0

    def unit_rows(self, unknowns: list[Unknown]) -> Tensor:
        """Unit rows [n, width]; new unknowns get the next columns."""
        columns = [self._columns.setdefault(unknown, len(self._columns)) for unknown in unknowns]
        rows = torch.zeros(len(unknowns), self.width, dtype=torch.float64)
        # Rows that are too narrow only count the unknowns.
        if self.width >= len(self._columns):
            rows[torch.arange(len(rows)), torch.tensor(columns, dtype=torch.int64)] = 1.0
        return rows

    def _trimmed(self, rows: Tensor) -> Tensor:
        """A copy without the columns that are not assigned yet: they are still zero."""
        return rows[:, : len(self._columns)].clone()

    def record(self, state: Any) -> None:
        """Keep a state, and the messages since the last one, without unused columns."""
        run, fields = self.run, tensors_of(state)
        run.unknowns = list(self._columns)
        run.plain_fields |= {name for name, rows in fields.items() if rows.shape[1] != self.width}
        run.states.append({name: self._trimmed(rows) for name, rows in fields.items()})
        messages = run.transcript.messages
        for index in range(self._recorded_messages, len(messages)):
            message = messages[index]
            if message.rows.shape[1] == self.width:
                messages[index] = replace(message, rows=self._trimmed(message.rows))
            else:
                run.plain_messages.add(index)
        self._recorded_messages = len(messages)

    def theta0(self) -> Tensor:
        return self.unit_rows(first_models(self._ids, self._common_start))

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        self._check_first_use(
            f"a gradient on batch {number}", "Declare gradients_per_step to take several."
        )
        if number in self.run.points:
            raise Misuse(
                f"Two gradients are taken on batch {number}, in different iterations.",
                "Take only gradient 0 in `start`.",
            )
        self.run.points[number] = self._trimmed(theta)
        self.run.messages_before[number] = len(self.run.transcript.messages)
        return self.unit_rows(client_unknowns("gradient", number, self._ids))

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        self.run.samplings[number] = sampling
        return self.grad(theta, number)

    def relative_rounding(self, code: FixedPoint, rows: Tensor) -> float:
        """1/s over the smallest coefficient of a gradient in rows that are encoded."""
        is_gradient = [unknown.kind == "gradient" for unknown in self._columns]
        width = min(rows.shape[1], len(is_gradient))
        used = rows[:, :width][:, torch.tensor(is_gradient[:width], dtype=torch.bool)].abs()
        used = used[used > 0]
        return 1 / (code.scale * float(used.min())) if len(used) else 1 / code.scale

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        # ∇f(w) + b + cw = 0: with the gradient as an unknown, w is linear in it.
        w = -(self.grad(linear, number) + linear) / curvature
        self.run.points[number] = self._trimmed(w)
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
        laws, is_zero = self.run.laws, law.variance == 0
        if not is_zero:
            if any(laws.get(unknown, law) != law for unknown in unknowns[:1]):
                raise Misuse(
                    f"The noise {tag!r} has two distributions in one iteration.",
                    "Give them different tags.",
                )
            if kind == "noise":
                laws.update(dict.fromkeys(unknowns, law))
            # Assign columns in this order, whatever order the rows are drawn in.
            self.unit_rows(unknowns)

        def draw(index: Tensor) -> Tensor:
            if is_zero:
                return torch.zeros(len(index), self.width, dtype=torch.float64)
            return self.unit_rows([unknowns[k] for k in index.tolist()])

        return NoiseRows(len(unknowns), self.width, torch.float64, source.device, draw)

    def masks(self, tag: str, tick: int, one: Tensor, other: Tensor) -> Tensor:
        raise Misuse("Integer masks have no symbols.", "Add them with here.fixed_point.")

    def words(
        self, tag: str, tick: int, source: Tensor, width: int, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        raise Misuse(
            f"The algorithm draws words {tag!r} outside of here.nonlinear.",
            "Draw them inside the function given to here.nonlinear: the result is not linear.",
        )

    def add_integers(
        self, tag: str, law: DiscreteGaussian, tick: int, source: Tensor, onto: Tensor
    ) -> None:
        raise Misuse(
            f"The algorithm draws integers {tag!r} outside of here.nonlinear.",
            "Draw them inside the function given to here.nonlinear.",
        )

    def nonlinear(self, step: Nonlinear, *rows: Tensor) -> Tensor:
        self._check_first_use(f"the non-linear step {step.tag!r}", "Give them different tags.")
        unknowns = client_unknowns("nonlinear", self._recorder.tick, self._ids, step.tag)
        sent = len(self.run.transcript.messages)
        inputs = zip(*map(self._trimmed, rows), strict=True)
        for unknown, of_client in zip(unknowns, inputs, strict=True):
            self.run.nonlinear_steps[unknown] = NonlinearStep(of_client, step, sent)
        return self.unit_rows(unknowns)

    def _check_first_use(self, name: str, remedy: str) -> None:
        if (self._recorder.tick, name) in self._used:
            raise Misuse(f"The algorithm takes {name} twice in one iteration.", remedy)
        self._used.add((self._recorder.tick, name))


class SymbolicHere(UnroundedClients):
    """Hosted clients that notice when an algorithm reads the iteration."""

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name in ("t", "tick"):
            self._run.uses_iteration = True
        return self._unnoticed(value) if name in READS_THE_ITERATION else value

    def _unnoticed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, which may read the iteration without being noticed."""

        @wraps(method)
        def call(*args: Any, **options: Any) -> Any:
            before = self._run.uses_iteration
            result = method(*args, **options)
            self._run.uses_iteration = before
            return result

        return call

    def rate(self, rate: Rate) -> float:
        if callable(rate):
            self._run.schedules.append(rate)
        return rate_at(rate, object.__getattribute__(self, "t"))

    def encoded_with(self, code: FixedPoint, rows: Tensor) -> None:
        rounding = self._clients.relative_rounding(code, rows)
        self._run.rounding = max(self._run.rounding, rounding)

    @property
    def _clients(self) -> SymbolicClients:
        assert isinstance(self.objective, SymbolicClients)
        return self.objective

    @property
    def _run(self) -> SymbolicRun:
        return self._clients.run

    @property
    def _tick(self) -> int:
        tick: int = object.__getattribute__(self, "tick")
        return tick
