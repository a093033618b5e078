"""What an algorithm does on symbols: its messages and states as coefficients."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tacit.core.here import Nonlinear
from tacit.core.hosted_clients import Sampling
from tacit.core.noise import Noise
from tacit.core.schedules import Schedule
from tacit.record.transcript import Transcript
from tacit.record.unknowns import Unknown


@dataclass(frozen=True, eq=False)
class NonlinearStep:
    """A declared non-linear step, its inputs [U'], and how many messages were sent before it."""

    inputs: tuple[Tensor, ...]
    declared: Nonlinear
    messages_before: int = 0

    @property
    def epsilon(self) -> float | None:
        return self.declared.epsilon


# Not frozen: clients fill it in while the algorithm runs.
@dataclass(eq=False)
class SymbolicRun:
    """The messages of a run as coefficients [k, U'] over its first U' unknowns.

    Unknowns are numbered in the order of their first use, so early rows are shorter.

    Attributes:
        transcript: The messages.
        unknowns: What the columns stand for.
        laws: The distribution of each noise unknown.
        states: After 0, 1, … iterations: the rows of each field [·, U'].
        points: Where the gradients on batch 0, 1, … were taken [n, U'].
        messages_before: How many messages were sent before these gradients.
        nonlinear_steps: The declared steps, by the unknowns that are their results.
        gradients_per_step: How many gradients an iteration has.
        samplings: How the sums of clipped gradients on batch 0, 1, … are sampled; others are plain
            gradients.
        rounding: What rounding to integers changes in a coordinate, in units of gradients; 0
            without integers.
        plain_messages: Those that are not rows of coefficients, such as a counter: they carry no
            symbols.
        plain_fields: Fields of the state that are not one number per parameter.
        uses_iteration: Whether the algorithm reads `here.t`, not only step sizes.
        schedules: Step sizes and scales that change over time.
        unused: Gradients of clients that did not take part.
    """

    transcript: Transcript
    unknowns: list[Unknown] = field(default_factory=list)
    laws: dict[Unknown, Noise] = field(default_factory=dict)
    states: list[dict[str, Tensor]] = field(default_factory=list)
    points: dict[int, Tensor] = field(default_factory=dict)
    messages_before: dict[int, int] = field(default_factory=dict)
    nonlinear_steps: dict[Unknown, NonlinearStep] = field(default_factory=dict)
    gradients_per_step: int = 1
    samplings: dict[int, Sampling] = field(default_factory=dict)
    rounding: float = 0.0
    plain_messages: set[int] = field(default_factory=set)
    plain_fields: set[str] = field(default_factory=set)
    uses_iteration: bool = False
    schedules: list[Schedule] = field(default_factory=list)
    unused: set[Unknown] = field(default_factory=set)

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
        taken = (Unknown("gradient", batch, client) for batch in sorted(self.points))
        return [u for u in taken if u in self.columns and u not in self.unused]
