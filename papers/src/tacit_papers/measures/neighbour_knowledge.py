"""The measure of what single neighbours know of each other in a configuration, proved by linear algebra."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.findings import Findings, Question
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.config.build import build
from tacit.config.sections import Config
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.overheard import seeded
from tacit_papers.measures.training import rounded

ASKED: tuple[Question, ...] = ("gradient", "difference", "sum")
AHEAD = 6  # iterations that may tell of an earlier one


@dataclass(frozen=True)
class NeighboursKnowledge:
    """Of all pairs of a client and one that hears it, the share in which the latter computes something exactly.

    That is asked for the first `iterations` gradients, differences and honest sums: of each the share of all pairs and
    iterations. `*_noise`: the deviation that is left in a coordinate of the first one, the median over the pairs in
    which all can be estimated and none is exact, and `*_noise_later` that of the last one; none if there are no such.
    """

    config: Config
    iterations: int = 5

    def describe(self) -> dict[str, Any]:
        """Configuration and iterations."""
        return {"neighbours' knowledge": self.config.as_dict(), "iterations": self.iterations}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """On the graph that is drawn by the seed."""
        config = seeded(self.config, seed, place)
        made = build(config, dataset=place.dataset(config))
        run = run_on_symbols(made.algorithm, made.graph, self.iterations + AHEAD)
        pairs = [
            (source, target) for source, target in made.graph.edges.tolist() if source != target
        ]
        found = [
            Findings(Knowledge(run, Adversary.curious(curious)), victim)
            for victim, curious in pairs
        ]
        values: Values = {"pairs": len(pairs)}
        for question in ASKED:
            variances = [one.of(question).variances[: self.iterations].tolist() for one in found]
            known = [variance == 0 for row in variances for variance in row]
            values[f"{question}_exact"] = sum(known) / len(known)
            noisy = [row for row in variances if all(0 < variance < math.inf for variance in row)]
            for name, when in ((f"{question}_noise", 0), (f"{question}_noise_later", -1)):
                deviations = [math.sqrt(row[when]) for row in noisy]
                values[name] = rounded(statistics.median(deviations)) if noisy else None
        return values
