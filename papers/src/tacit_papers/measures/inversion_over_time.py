"""Measures of reconstruction at several iterations of one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import Question
from tacit.config.sections import Config
from tacit_papers.framework.cells import (
    FieldDescription,
    MeasureContext,
    Values,
    describe_config,
    rounded,
)
from tacit_papers.measures.inversion_search import (
    InversionSearch,
    invert_evidence,
    invert_observations,
)
from tacit_papers.measures.model_snapshots import ModelSnapshots
from tacit_papers.measures.observations import (
    VictimObservations,
    joint_observation,
    separate_observations,
)
from tacit_papers.measures.recorded_run import nearest_clients


@dataclass(frozen=True)
class InversionOverTime(FieldDescription):
    """SSIM from gradients or differences over the iterations, its deviation over the victims."""

    label = ("inverting over time", "question")
    config: Config
    question: Question  # gradient or difference
    search: InversionSearch
    iterations: tuple[int, ...]
    victims: int = 4

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        snapshots = ModelSnapshots.record(self.config, self.iterations, seed, context)
        truth = Truth(snapshots.task, seed)

        def attack(iteration: int) -> Values:
            evidence = [
                snapshots.evidence([victim], self.question, iteration)
                for victim in range(self.victims)
            ]
            return invert_evidence(truth, evidence, self.search, context)

        return _attack_over_time(self.iterations, attack)


@dataclass(frozen=True)
class SumInversionOverTime:
    """SSIM of all samples of a component from the sum of gradients, with or without differences."""

    config: Config
    honest: int
    differences: bool
    search: InversionSearch
    iterations: tuple[int, ...]
    victims: int = 4

    def describe(self) -> dict[str, Any]:
        return {
            "inverting over time": "sum and changes" if self.differences else "sum",
            "config": describe_config(self.config),
            "search": asdict(self.search),
            "honest": self.honest,
            "iterations": list(self.iterations),
            "victims": self.victims,
        }

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        snapshots = ModelSnapshots.record(self.config, self.iterations, seed, context)
        truth = Truth(snapshots.task, seed)

        def attack(iteration: int) -> Values:
            observations = self._observations(snapshots, iteration, context)
            return invert_observations(truth, observations, self.search, context)

        return _attack_over_time(self.iterations, attack)

    def _observations(
        self, snapshots: ModelSnapshots, iteration: int, context: MeasureContext
    ) -> list[VictimObservations]:
        components = [
            nearest_clients(snapshots.graph, victim, self.honest) for victim in range(self.victims)
        ]
        sums = [snapshots.evidence(clients, "sum", iteration) for clients in components]
        if not self.differences:
            return separate_observations(snapshots.task, sums, context)
        differences = [
            [snapshots.evidence([client], "difference", iteration) for client in clients]
            for clients in components
        ]
        both = list(zip(differences, sums, strict=True))
        return [joint_observation(snapshots.task, both, context)]


def _attack_over_time(iterations: Sequence[int], attack: Callable[[int], Values]) -> Values:
    found = [attack(iteration) for iteration in iterations]
    ssim = [values["ssim"] for values in found]
    return {
        "ssim": rounded(statistics.fmean(ssim)),
        "first": ssim[0],
        "last": ssim[-1],
        "curve": {
            "iteration": list(iterations),
            "ssim": ssim,
            "deviation": [rounded(statistics.pstdev(one["ssim_per_victim"])) for one in found],
            "rounding": [values["rounding"] for values in found],
        },
        "pictures_over_time": [values["pictures"] for values in found],
    }
