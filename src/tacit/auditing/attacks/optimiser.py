"""The protocol of optimisers that solve many independent problems at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

ValueAndGrad = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""`f(x [A, n], which [A]) -> (values [A], gradients [A, n])`: row i is the problem number which[i].

Optimisers evaluate only problems that still run, so finished ones cost nothing.
"""

Callback = Callable[[int, Tensor], bool]
"""`callback(iteration, values [B]) -> bool`: gets the best values so far; True ends the search."""

Project = Callable[[Tensor], Tensor]
"""Points [A, n] ↦ the nearest allowed points [A, n]."""


@dataclass(frozen=True, eq=False)
class Minimum:
    """The best points of B problems, their values and costs."""

    x: Tensor  # [B, n]
    values: Tensor  # [B]; infinite if not even the start had a finite value
    iterations: Tensor  # [B]
    evaluations: Tensor  # [B]

    @classmethod
    def concatenate(cls, parts: Sequence[Minimum]) -> Minimum:
        """The minima of several groups of problems, one after the other."""
        names = ("x", "values", "iterations", "evaluations")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


class Optimiser(Protocol):
    """Minimises B independent problems at once."""

    @property
    def iterations(self) -> int:
        """Maximum number of iterations of a problem."""
        ...

    def workspace(self, n: int) -> int:
        """About how many numbers it stores for a problem of n unknowns."""
        ...

    def minimise(
        self,
        start: Tensor,
        value_and_grad: ValueAndGrad,
        *,
        project: Project | None = None,
        callback: Callback | None = None,
    ) -> Minimum:
        """The best points found from `start` [B, n]."""
        ...
