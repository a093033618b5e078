"""Measure of what single neighbours know about each other, proved by linear algebra."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage, Question
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.config.sections import Config
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded
from tacit_papers.measures.evidence_inversion import AHEAD

QUESTIONS: tuple[Question, ...] = ("gradient", "difference", "sum")


@dataclass(frozen=True)
class NeighbourKnowledge(FieldDescription):
    """How often a client that receives another's messages computes something exactly.

    `*_exact` is the share of all pairs and of the first `iterations` gradients, differences and
    honest sums. `*_noise` is the deviation left in a coordinate of the first one, the median over
    the pairs in which all can be estimated and none is exact; `*_noise_later` is that of the last.
    """

    label = ("neighbours' knowledge", "config")
    config: Config
    iterations: int = 5

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        experiment = context.experiment(self.config, seed, seed_data=True)
        run = run_on_symbols(
            experiment.algorithm,
            experiment.graph,
            self.iterations + AHEAD,
            common_start=experiment.setting.start_alike,
        )
        pairs = [(i, j) for i, j in experiment.graph.edges.tolist() if i != j]
        leakages = [
            Leakage(Knowledge(run, Adversary.curious(curious)), victim) for victim, curious in pairs
        ]
        values: Values = {"pairs": len(pairs)}
        for question in QUESTIONS:
            rows = [one.of(question).variances[: self.iterations].tolist() for one in leakages]
            exact = [variance == 0 for row in rows for variance in row]
            values[f"{question}_exact"] = sum(exact) / len(exact)
            noisy = [row for row in rows if all(0 < variance < math.inf for variance in row)]
            for name, when in ((f"{question}_noise", 0), (f"{question}_noise_later", -1)):
                deviations = [math.sqrt(row[when]) for row in noisy]
                values[name] = rounded(statistics.median(deviations)) if noisy else None
        return values
