"""What clients give an algorithm that runs on symbols: unit rows over the unknowns of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from tacit.auditing.symbolic.unrounded import UnroundedClients
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.core.fixed_point import FixedPoint, Mask
from tacit.core.here import Network, Nonlinear
from tacit.core.hosted_clients import Sampling, SamplingRule
from tacit.core.noise import Noise
from tacit.core.rows import NoiseRows
from tacit.core.schedules import Rate, Schedule, rate_at
from tacit.record.transcript import Transcript
from tacit.record.unknowns import Kind, Unknown, client_unknowns, first_models, noise_unknowns


@dataclass(frozen=True, eq=False)
class NonlinearStep:
    """A declared non-linear step, its inputs [U'], and how many messages were sent before it."""

    inputs: tuple[Tensor, ...]
    declared: Nonlinear
    messages_before: int = 0

    @property
    def epsilon(self) -> float | None:
        return self.declared.epsilon


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
        unknowns = client_unknowns("nonlinear", self.tick, self._ids, step.tag)
        inputs = zip(*(self._table.trim(one) for one in rows), strict=True)
        for unknown, own in zip(unknowns, inputs, strict=True):
            self.nonlinear_steps[unknown] = NonlinearStep(own, step, len(self._transcript.messages))
        return self._table.rows(unknowns)

    def _check_first_use(self, name: str, remedy: str) -> None:
        if name in self._used:
            raise Misuse(f"The algorithm takes {name} twice in one iteration.", remedy)
        self._used.add(name)


class SymbolicHere(UnroundedClients):
    """Hosted clients that notice when an algorithm reads the iteration."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("t", "tick"):
            object.__getattribute__(self, "objective").uses_iteration = True
        return object.__getattribute__(self, name)

    def rate(self, rate: Rate) -> float:
        if callable(rate):
            self._clients.schedules.append(rate)
        return rate_at(rate, object.__getattribute__(self, "t"))

    def grad(self, theta: Tensor, local: int = 0) -> Tensor:
        with self._unnoticed():
            return super().grad(theta, local)

    def sampled_sum(self, theta: Tensor, rule: SamplingRule, local: int) -> Tensor:
        with self._unnoticed():
            return super().sampled_sum(theta, rule, local)

    def minimise(self, linear: Tensor, curvature: Tensor) -> Tensor:
        with self._unnoticed():
            return super().minimise(linear, curvature)

    def with_network(self, net: Network) -> Self:
        with self._unnoticed():
            return super().with_network(net)

    @contextmanager
    def _unnoticed(self) -> Iterator[None]:
        """Read the iteration where it is not the algorithm that asks."""
        used = self._clients.uses_iteration
        yield
        self._clients.uses_iteration = used

    def encoded_with(self, code: FixedPoint, rows: Tensor) -> None:
        clients = self._clients
        clients.rounding = max(clients.rounding, clients.relative_rounding(code, rows))

    @property
    def _clients(self) -> SymbolicClients:
        clients: SymbolicClients = object.__getattribute__(self, "objective")
        return clients

    @property
    def _tick(self) -> int:
        tick: int = object.__getattribute__(self, "tick")
        return tick
