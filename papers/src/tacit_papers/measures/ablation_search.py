"""How near one setting comes to a published ablation: an algorithm, and the same without a part."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tacit.config.sections import Config
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded
from tacit_papers.measures.membership import first_round
from tacit_papers.measures.simulated_training import SimulatedTraining

NEAR = 3.0  # tolerances within which further seeds are run
SEEDS = 3
WHOLE, ABLATED, ROUNDS = "whole", "ablated", "rounds"


@dataclass(frozen=True)
class PublishedAblation:
    """Published numbers by name, the tolerance of each, and the accuracy that rounds count to."""

    numbers: Mapping[str, float]
    tolerances: Mapping[str, float]
    target: float

    def off(self, found: Mapping[str, float | None]) -> float | None:
        """The largest distance of the numbers found, in tolerances; None if one is missing."""
        known = {name: value for name, value in found.items() if value is not None}
        if self.numbers.keys() - known.keys():
            return None
        return max(
            abs(known[name] - paper) / self.tolerances[name] for name, paper in self.numbers.items()
        )


@dataclass(frozen=True)
class AblationSearch(FieldDescription):
    """Accuracy of both and rounds to the target of the whole one, with deviations where near.

    A setting within `NEAR` tolerances of the published numbers is run with `SEEDS` seeds, and any
    other with one. An accuracy that is not reached counts as reached one round after the last.
    """

    label = ("ablation", "whole")
    whole: Config
    ablated: Config
    paper: PublishedAblation
    seeds: int = field(default=SEEDS)

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        runs = [self._run(seed, context)]
        if (off := self._off(runs)) is not None and off <= NEAR:
            runs += [self._run(seed + more, context) for more in range(1, self.seeds)]
        return {
            **{name: rounded(_mean(one[name] for one in runs)) for name in runs[0]["numbers"]},
            "off": rounded(self._off(runs)),
            "seeds": len(runs),
            "each": [one["numbers"] for one in runs],
            "parameters": runs[0]["parameters"],
            "curves": runs[0]["curves"],
        }

    def _run(self, seed: int, context: MeasureContext) -> Values:
        whole = SimulatedTraining(self.whole)(seed, context)
        ablated = SimulatedTraining(self.ablated)(seed, context)
        reached = first_round(whole["curve"], self.paper.target)
        curve = [one for one in ablated["curve"]["accuracy"] if one is not None]
        numbers = {
            WHOLE: whole["accuracy"],
            ABLATED: ablated["accuracy"],
            "ablated_best": max(curve),
            ROUNDS: self.whole.run.rounds + 1 if reached is None else reached,
        }
        curves = {
            "round": whole["curve"]["round"],
            WHOLE: whole["curve"]["accuracy"],
            ABLATED: ablated["curve"]["accuracy"],
        }
        return {**numbers, "numbers": numbers, "curves": curves, "parameters": whole["parameters"]}

    def _off(self, runs: list[Values]) -> float | None:
        return self.paper.off(
            {name: _mean(one[name] for one in runs) for name in runs[0]["numbers"]}
        )


def _mean(values: Iterable[float | None]) -> float | None:
    """None if a value is missing."""
    found = list(values)
    known = [value for value in found if value is not None]
    return statistics.fmean(known) if len(known) == len(found) else None
