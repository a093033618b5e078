"""Evaluation of each client's model on the client's own test set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.core.workers import WorkerPool
from tacit.tasks.evaluation import Evaluation, ModelScores, TestSet


@dataclass(frozen=True, eq=False)
class ClientTests(Evaluation):
    """Evaluates each model on its client's own test set.

    Attributes:
        sets: One per client; None for a client that has no test data, whose scores are NaN.
    """

    sets: tuple[TestSet | None, ...]

    @classmethod
    def of(cls, common: TestSet, tests: Sequence[tuple[Any, Tensor] | None]) -> ClientTests:
        """Evaluation on inputs and targets of each client, in all else as on the common data."""
        sets: list[TestSet | None] = []
        for test in tests:
            if test is None:
                sets.append(None)
                continue
            inputs, targets = test
            arrays = inputs if isinstance(inputs, tuple | list) else (inputs,)
            x, y, *further = (one.to(common.x.device) for one in (arrays[0], targets, *arrays[1:]))
            sets.append(replace(common, x=x, y=y, further=tuple(further)))
        return cls(tuple(sets))

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

    @property
    def metric_names(self) -> tuple[str, ...]:
        return next((one.metric_names for one in self.sets if one is not None), ())

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
