"""What an optimiser of many independent problems is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

ValueAndGrad = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""`f(x [A, n], which [A]) -> (values [A], gradients [A, n])`: row i is the problem number which[i].

Only problems that still run are asked for, so that finished ones cost nothing.
"""

Watch = Callable[[int, Tensor], bool]
"""`watch(iteration, values [B]) -> bool`: called with the best values so far; True ends the search."""

Project = Callable[[Tensor], Tensor]
"""Points [A, n] ↦ the nearest allowed points [A, n]."""


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where B problems ended: the best point of each, its value, and what was spent on it."""

    x: Tensor  # [B, n]
    values: Tensor  # [B]; infinite where not even the start had a finite value
    iterations: Tensor  # [B]
    evaluations: Tensor  # [B]

    @classmethod
    def joined(cls, parts: Sequence[Minimum]) -> Minimum:
        """Those of several groups of problems, one after the other."""
        names = ("x", "values", "iterations", "evaluations")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


class Optimiser(Protocol):
    """Minimises B independent problems at once."""

    @property
    def iterations(self) -> int:
        """The most iterations any problem gets."""
        ...

    def workspace(self, n: int) -> int:
        """About how many numbers it keeps for a problem of n unknowns."""
        ...

    def minimise(
        self,
        start: Tensor,
        value_and_grad: ValueAndGrad,
        *,
        project: Project | None = None,
        watch: Watch | None = None,
    ) -> Minimum:
        """The best points found from `start` [B, n]."""
        ...
