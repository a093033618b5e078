"""What randomized response of ε₀ per coordinate guarantees for a vector and for a run, by the accountant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.privacy.accounting import response_epsilon, response_method, response_pure_epsilon
from tacit_papers.framework.artifact import MeasureContext, Values


@dataclass(frozen=True)
class ResponseBudget:
    """The ε of all signs that a client tells: `coordinates` of them in each of `iterations`."""

    coordinate_epsilon: float  # ε₀, of one sign
    coordinates: int
    iterations: int
    delta: float  # 0: pure

    def describe(self) -> dict[str, Any]:
        """What it is computed from, and how."""
        uses = self.coordinates * self.iterations
        return {"budget": vars(self), "method": response_method(uses) if self.delta else "pure"}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Computed, not measured: the seed decides nothing."""
        pure = response_pure_epsilon(self.coordinate_epsilon, self.coordinates, self.iterations)
        uses = self.coordinates * self.iterations
        with_delta = (
            response_epsilon(self.delta, self.coordinate_epsilon, uses) if self.delta else pure
        )
        return {
            "epsilon": min(with_delta, pure),
            "times": min(with_delta, pure) / self.coordinate_epsilon,
        }
