"""What a node has spent of a promised guarantee, for its status and its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.fresh_keys import FreshKeys
from tacit.privacy.guarantee import Budget


@dataclass(frozen=True, eq=False)
class SpentBudget:
    """A budget, and the records of the sums that were paid from it."""

    budget: Budget
    records: FreshKeys

    def as_dict(self) -> dict[str, Any]:
        """Sums, ε spent, and the ε and δ promised."""
        sums = self.records.sums
        return {
            "sums": sums,
            "epsilon_spent": _spent(self.budget, sums),
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
        }

    def show_in(self, metrics: Metrics) -> None:
        """Let the metrics have these numbers whenever they are read."""
        for key in self.as_dict():
            metrics.set_function(f"tacit_privacy_{key}", partial(self._number, key))

    def _number(self, key: str) -> float:
        return float(self.as_dict()[key])


# Accounting takes milliseconds, and the status may be queried more often than sums are sent.
@lru_cache(maxsize=16)
def _spent(budget: Budget, sums: int) -> float:
    return budget.spent(sums)
