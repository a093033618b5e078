"""Inverting what is known of an honest component at several iterations: the sum of its gradients, and their changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tacit.config.sections import Config
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.inverting_over_time import attacked_over_time
from tacit_papers.measures.later_evidence import LaterEvidence
from tacit_papers.measures.observed import Observed, changes_and_sum, each_alone
from tacit_papers.measures.overheard import component
from tacit_papers.measures.search import Search, found_in


@dataclass(frozen=True)
class CombiningOverTime:
    """SSIM over the iterations of all samples of a component: from the sum alone, or with all changes known too."""

    config: Config
    honest: int
    changes: bool
    search: Search
    iterations: tuple[int, ...]
    victims: int = 4

    def describe(self) -> dict[str, Any]:
        """Configuration, attack, adversary and when."""
        return {
            "inverting over time": "sum and changes" if self.changes else "sum",
            "config": self.config.as_dict(),
            "search": asdict(self.search),
            "honest": self.honest,
            "iterations": list(self.iterations),
            "victims": self.victims,
        }

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Train, and attack at each of the iterations."""
        later = LaterEvidence.of(self.config, self.iterations, seed, place)
        return attacked_over_time(
            self.iterations,
            lambda iteration: found_in(
                later.task, seed, self._known(later, iteration, place), self.search, place
            ),
        )

    def _known(self, later: LaterEvidence, iteration: int, place: MeasureContext) -> list[Observed]:
        near = [component(later.graph, victim, self.honest) for victim in range(self.victims)]
        sums = [later.held(clients, "sum", iteration) for clients in near]
        if not self.changes:
            return each_alone(later.task, sums, place)
        changes = [
            [later.held([client], "difference", iteration) for client in clients]
            for clients in near
        ]
        return [changes_and_sum(later.task, list(zip(changes, sums, strict=True)), place)]
