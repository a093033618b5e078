"""Measure of what randomized response of ε₀ per coordinate guarantees for vectors and runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.privacy.accounting import response_epsilon, response_method, response_pure_epsilon
from tacit_papers.framework.cells import MeasureContext, Values


@dataclass(frozen=True)
class ResponseBudget:
    """The ε of all signs that a client reveals: `coordinates` in each of `iterations`."""

    coordinate_epsilon: float  # ε₀ of one sign
    coordinates: int
    iterations: int
    delta: float  # 0: pure

    def describe(self) -> dict[str, Any]:
        uses = self.coordinates * self.iterations
        return {"budget": vars(self), "method": response_method(uses) if self.delta else "pure"}

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        """Computed, not measured: the seed does not matter."""
        coordinate, uses = self.coordinate_epsilon, self.coordinates * self.iterations
        epsilon = response_pure_epsilon(coordinate, self.coordinates, self.iterations)
        if self.delta:
            epsilon = min(response_epsilon(self.delta, coordinate, uses), epsilon)
        return {"epsilon": epsilon, "times": epsilon / coordinate}
