"""What a run has spent of the guarantee that it promised, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.privacy.guarantee import Budget
from tacit.privacy.planning import epsilon_text

# What ε is given for, by unit.
PER_UNIT = {"sample": "per training sample", "client": "per client (all of its data)"}

SIMULATED = (
    "this is a simulation of the guarantee: samples and noise follow from the seed in the "
    "configuration, and whoever knows it can subtract the noise; --secret-noise draws them from a "
    "secret key"
)


@dataclass(frozen=True)
class Spending:
    """The budget of a run, and what its iterations have spent.

    Attributes:
        budget: The promise, and the noise that keeps it.
        spent: ε of the iterations that were run; infinite without a guarantee.
        steps: Iterations that were run.
        clients: The number of clients.
        simulated: Whether samples and noise follow from the seed of the configuration.
        repeated: Iterations that were computed, and paid for, twice.
    """

    budget: Budget
    spent: float
    steps: int
    clients: int
    simulated: bool = False
    repeated: int = 0

    @classmethod
    def of(cls, privacy: Mapping[str, Any], steps: int, clients: int) -> Spending:
        """From the value of "privacy" in summary.json."""
        values = dict(privacy)
        spent = values.pop("spent")
        simulated, repeated = values.pop("simulated", True), values.pop("repeated", 0)
        budget, epsilon = Budget.from_dict(values), math.inf if spent is None else spent
        return cls(budget, epsilon, steps, clients, simulated, repeated)

    @property
    def has_guarantee(self) -> bool:
        return math.isfinite(self.budget.epsilon)

    @property
    def assumption(self) -> str:
        """What the guarantee needs."""
        return self.budget.assumption(self.clients)

    def sentences(self) -> list[str]:
        """What is spent, under which assumption, and whether that ended the run."""
        budget = self.budget
        if not self.has_guarantee:
            return ["no guarantee: epsilon is inf, so the sums are masked but have no noise"]
        spent = f"ε = {epsilon_text(self.spent)} of {budget.epsilon:g} spent"
        lines = [f"{spent} at δ = {budget.delta:g} {PER_UNIT[budget.unit]}, {self.assumption}"]
        if self.simulated:
            lines.append(SIMULATED)
        if self.repeated:
            lines.append(
                f"{self.repeated:,} iterations were repeated after the run was stopped, and count "
                "twice"
            )
        if self.stopped_early:
            lines.append(
                f"the budget was spent after {self.steps:,} of {budget.steps:,} iterations, "
                "so the run stopped there"
            )
        return lines

    @property
    def stopped_early(self) -> bool:
        """Whether the run ended because another iteration would have exceeded its budget."""
        budget = self.budget
        released = self.steps + self.repeated
        return self.steps < budget.steps and min(budget.allowed_steps, budget.steps) <= released


def guarantee_text(epsilon: float | None) -> str:
    """ε of a run, or "none" if it has no guarantee."""
    return "none" if epsilon is None else epsilon_text(epsilon)
