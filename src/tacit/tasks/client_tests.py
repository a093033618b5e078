"""Evaluation of each client's model on the client's own test set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.core.workers import WorkerPool
from tacit.tasks.evaluation import Evaluation, ModelScores, TestSet
from tacit.tasks.metrics.metric import Metric


@dataclass(frozen=True, eq=False)
class ClientTests(Evaluation):
    """Evaluates each model on its client's own test set.

    Attributes:
        sets: One per client; None for a client that has no test data, whose scores are NaN.
    """

    sets: tuple[TestSet | None, ...]

    def models(self, theta: Tensor, clients: Sequence[int]) -> ModelScores:
        scores = [self._own(theta[row : row + 1], client) for row, client in enumerate(clients)]
        return _joined(scores, self.metric_names)

    def average(self, theta: Tensor) -> ModelScores:
        """The scores of one model on the test set of each client."""
        clients = range(len(self.sets))
        return _joined([self._own(theta[None], i) for i in clients], self.metric_names)

    def to(self, device: torch.device | str, pool: WorkerPool | None = None) -> ClientTests:
        moved = (None if one is None else one.to(device, pool) for one in self.sets)
        return replace(self, sets=tuple(moved))

    def with_metrics(self, metrics: Sequence[Metric], key: str = "metrics") -> ClientTests:
        changed = (None if one is None else one.with_metrics(metrics, key) for one in self.sets)
        return replace(self, sets=tuple(changed))

    @property
    def metric_names(self) -> tuple[str, ...]:
        return next(one.metric_names for one in self.sets if one is not None)

    def together(self) -> TestSet:
        """The test sets of all clients as one."""
        sets = [one for one in self.sets if one is not None]
        further = zip(*(one.further for one in sets), strict=True)
        return replace(
            sets[0],
            x=torch.cat([one.x for one in sets]),
            y=torch.cat([one.y for one in sets]),
            further=tuple(torch.cat(arrays) for arrays in further),
        )

    def _own(self, theta: Tensor, client: int) -> ModelScores | None:
        test = self.sets[client]
        return None if test is None else test.models(theta, [client])


def _joined(scores: Sequence[ModelScores | None], names: Sequence[str]) -> ModelScores:
    """The scores of several models, NaN where there are none."""
    known = [one for one in scores if one is not None]
    counts = next((one.counts for one in known if one.counts is not None), None)
    nothing = torch.full((1,), math.nan, dtype=torch.float64)
    missing = ModelScores(
        nothing,
        None if counts is None else nothing,
        dict.fromkeys(names, nothing),
        None if counts is None else counts.cleared(),
    )
    return ModelScores.concatenate([missing if one is None else one for one in scores])
