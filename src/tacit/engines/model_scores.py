"""Scores of the clients' models, which several processes may evaluate together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core.rows import is_shared, shared
from tacit.engines.group import Hosted
from tacit.record.history import Spread
from tacit.record.predictions import Predictions
from tacit.tasks.evaluation import Evaluation, ModelScores, TestSet
from tacit.tasks.metrics.class_counts import MAX_CONFUSION_CLASSES

# What is measured beside loss, accuracy and further metrics, one row each.
_COUNTED = ("has_accuracy", "classes", "majority", "baseline", "favourite", "favourite_share")


@dataclass(frozen=True, eq=False)
class CommonScores:
    """Scores on what all clients are evaluated on.

    Rows are [evaluated + 1]; the last number is the average model's.
    """

    rows: Mapping[str, Tensor]
    metrics: tuple[str, ...]
    confusion: Tensor | None

    @classmethod
    def measure(
        cls,
        theta: Tensor,
        average: Tensor,
        evaluation: Evaluation,
        hosted: Hosted,
        evaluated: Sequence[int],
    ) -> CommonScores:
        """Evaluate the models of some clients and the average model.

        Each process evaluates the clients it hosts. The process of client 0 also evaluates the
        average model.

        Args:
            theta: The models of the hosted clients, [n, P].
            average: The average model [P].
            evaluation: How models are evaluated.
            hosted: Which clients this process hosts.
            evaluated: The clients to evaluate.
        """
        columns, rows = _evaluated_here(theta, hosted, evaluated)
        table = _Table(evaluation.metric_names, len(evaluated) + 1)
        confusion = None
        if columns:
            scores = evaluation.models(rows, [evaluated[column] for column in columns])
            table.enter(columns, scores)
            if scores.counts is not None and scores.counts.confusion is not None:
                confusion = scores.counts.confusion.sum(0)
        if 0 in hosted.ids:
            table.enter([len(evaluated)], evaluation.average(average))
        measured = table.total(hosted)
        classes = int(measured["classes"][-1])
        if 0 < classes <= MAX_CONFUSION_CLASSES:
            zeros = torch.zeros(classes, classes)
            confusion = hosted.group.total(zeros if confusion is None else confusion)
        return cls(measured, evaluation.metric_names, confusion)

    @property
    def has_accuracy(self) -> bool:
        return bool(self.rows["has_accuracy"].all())

    @property
    def classes(self) -> int:
        """Number of classes; 0 if the task is not a classification."""
        return int(self.rows["classes"][-1])

    @property
    def baseline(self) -> float | None:
        return float(self.rows["baseline"][-1]) if self.classes else None

    @property
    def clients(self) -> dict[str, Sequence[float]]:
        names = ("accuracy", "loss") if self.has_accuracy else ("loss",)
        return {name: self.rows[name][:-1].tolist() for name in (*names, *self.metrics)}

    @property
    def predictions(self) -> Predictions | None:
        if not self.classes:
            return None
        favourites = self.rows["favourite"][:-1].tolist(), self.rows["favourite_share"].tolist()
        matrix = None if self.confusion is None else self.confusion.long().tolist()
        return Predictions(
            int(self.rows["majority"][-1]),
            tuple((int(number), share) for number, share in zip(*favourites, strict=False)),
            None if matrix is None else tuple(map(tuple, matrix)),
        )

    def spread(self, name: str) -> Spread:
        scores = self.rows[name]
        each = scores[:-1]
        return Spread(float(each.mean()), float(each.min()), float(each.max()), float(scores[-1]))


@dataclass(frozen=True, eq=False)
class OwnScores:
    """Scores on clients' own test sets, [evaluated] each: of own models and of the average model.

    NaN where a client has no test set, or a metric is not defined on it.
    """

    own: Mapping[str, Tensor]
    average: Mapping[str, Tensor]
    names: tuple[str, ...]

    @classmethod
    def measure(
        cls,
        theta: Tensor,
        average: Tensor,
        tests: Sequence[TestSet | None],
        hosted: Hosted,
        evaluated: Sequence[int],
    ) -> OwnScores:
        """Evaluate as `CommonScores` does, each process on the test sets of its clients."""
        names = next((test.metric_names for test in tests if test is not None), ())
        own, of_average = (_Table(names, len(evaluated)) for _ in range(2))
        for column, row in zip(*_evaluated_here(theta, hosted, evaluated), strict=True):
            test = tests[evaluated[column]]
            for table, model in ((own, row), (of_average, average)):
                table.enter([column], None if test is None else test.models(model[None], []))
        measured = own.total(hosted)
        if bool((measured["has_accuracy"] == 1).any()):
            names = ("accuracy", "baseline", *names)
        return cls(measured, of_average.total(hosted), ("loss", *names))

    @property
    def spreads(self) -> dict[str, Spread]:
        return {name: _defined_spread(self.own[name], self.average[name]) for name in self.names}

    @property
    def clients(self) -> dict[str, Sequence[float]]:
        return {f"own_test.{name}": self.own[name].tolist() for name in self.names}


class _Table:
    """Scores of models by name, [width] each: zeros for those that other processes evaluate."""

    def __init__(self, metrics: Sequence[str], width: int) -> None:
        names = ("loss", "accuracy", *_COUNTED, *metrics)
        self._rows = {name: torch.zeros(width, dtype=torch.float64) for name in names}

    def enter(self, columns: list[int], scores: ModelScores | None) -> None:
        """Write the scores of the models of these columns; NaN if there are none."""
        if scores is None:
            for row in self._rows.values():
                row[columns] = math.nan
            return
        self._rows["loss"][columns] = scores.loss.double().cpu()
        for name, values in scores.metrics.items():
            self._rows[name][columns] = values.double().cpu()
        if scores.accuracy is not None:
            self._rows["accuracy"][columns] = scores.accuracy.double().cpu()
            self._rows["has_accuracy"][columns] = 1.0
        if scores.counts is not None:
            baseline, majority = scores.counts.majority
            share, favourite = scores.counts.favourite
            classes = torch.full((len(columns),), scores.counts.actual.shape[1])
            counted = (classes, majority, baseline, favourite, share)
            for name, values in zip(_COUNTED[1:], counted, strict=True):
                self._rows[name][columns] = values.double()

    def total(self, hosted: Hosted) -> dict[str, Tensor]:
        """The rows of all processes."""
        rows = hosted.group.total(torch.stack(list(self._rows.values())))
        return dict(zip(self._rows, rows, strict=True))


def _evaluated_here(
    theta: Tensor, hosted: Hosted, evaluated: Sequence[int]
) -> tuple[list[int], Tensor]:
    """The evaluated clients of this process: their columns and their models."""
    row_of = {client: row for row, client in enumerate(hosted.ids.tolist())}
    columns = [column for column, client in enumerate(evaluated) if client in row_of]
    if is_shared(theta):
        return columns, shared(theta[:1], len(columns))
    return columns, theta[[row_of[evaluated[column]] for column in columns]]


def _defined_spread(own: Tensor, average: Tensor) -> Spread:
    """The spread over the clients for which a metric is defined; NaN if there are none."""
    known, other = own[~own.isnan()], average[~average.isnan()]
    if not len(known):
        return Spread(math.nan, math.nan, math.nan, math.nan)
    ends = float(known.min()), float(known.max())
    return Spread(float(known.mean()), *ends, float(other.mean()))
