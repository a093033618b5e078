"""Inverting gradients, or their differences, at several iterations of one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.auditing.symbolic.findings import Question
from tacit.config.sections import Config
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.later_evidence import LaterEvidence
from tacit_papers.measures.search import Search, inverted
from tacit_papers.measures.training import rounded


@dataclass(frozen=True)
class InvertingOverTime:
    """SSIM over the iterations, its deviation over the victims, and the mean over all iterations."""

    config: Config
    question: Question  # gradient or difference
    search: Search
    iterations: tuple[int, ...]
    victims: int = 4

    def describe(self) -> dict[str, Any]:
        """Configuration, attack and when."""
        return {
            "inverting over time": self.question,
            "config": self.config.as_dict(),
            "search": asdict(self.search),
            "iterations": list(self.iterations),
            "victims": self.victims,
        }

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Train, and attack at each of the iterations."""
        later = LaterEvidence.of(self.config, self.iterations, seed, place)

        def attack(iteration: int) -> Values:
            held = [
                later.held([victim], self.question, iteration) for victim in range(self.victims)
            ]
            return inverted(later.task, seed, held, self.search, place)

        return attacked_over_time(self.iterations, attack)


def attacked_over_time(iterations: Sequence[int], attack: Callable[[int], Values]) -> Values:
    """The numbers of an attack at each of the iterations as a curve, and their mean."""
    curve: dict[str, list[float | None]] = {
        name: [] for name in ("iteration", "ssim", "deviation", "rounding")
    }
    pictures, found = [], []
    for iteration in iterations:
        values = attack(iteration)
        found.append(values["ssim"])
        curve["iteration"].append(iteration)
        curve["ssim"].append(values["ssim"])
        curve["deviation"].append(rounded(statistics.pstdev(values["ssim_per_victim"])))
        curve["rounding"].append(values["rounding"])
        pictures.append(values["pictures"])
    return {
        "ssim": rounded(statistics.fmean(found)),
        "first": found[0],
        "last": found[-1],
        "curve": curve,
        "pictures_over_time": pictures,
    }
