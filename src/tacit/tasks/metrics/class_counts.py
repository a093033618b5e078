"""How often models predict each class, and how often they are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.tasks.metrics.batch import ClassBatch

# A matrix of more classes is neither kept nor drawn.
MAX_CONFUSION_CLASSES = 50


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Counts of k models on one test set, [k, C].

    Attributes:
        correct: Samples of each class that are predicted rightly.
        predicted: Samples that are predicted to be of each class.
        actual: Samples of each class.
        confusion: [k, C, C]: by class (rows) and prediction (columns); None for many classes.
    """

    correct: Tensor
    predicted: Tensor
    actual: Tensor
    confusion: Tensor | None

    @classmethod
    def from_table(cls, table: Tensor) -> ClassCounts:
        """Counts of k models from a sum of `count_classes`, [k, ...]."""
        if table.shape[-1] > MAX_CONFUSION_CLASSES:
            correct, predicted, actual = table.unbind(1)
            return cls(correct, predicted, actual, None)
        return cls(table.diagonal(0, 1, 2), table.sum(1), table.sum(2), table)

    @property
    def precision(self) -> Tensor:
        """Share of the predictions of each class that are right, 0 where there are none."""
        return _ratio(self.correct, self.predicted)

    @property
    def recall(self) -> Tensor:
        """Share of the samples of each class that are found, 0 where there are none."""
        return _ratio(self.correct, self.actual)

    @property
    def f1(self) -> Tensor:
        """Harmonic mean of precision and recall of each class."""
        return _ratio(2 * self.correct, self.predicted + self.actual)

    @property
    def balanced_accuracy(self) -> Tensor:
        """Mean recall of the classes that the test set has, [k]."""
        return _mean_where(self.recall, self.actual > 0)

    def macro(self, per_class: Tensor) -> Tensor:
        """Mean over the classes that occur, in the test set or in the predictions, [k]."""
        return _mean_where(per_class, self.predicted + self.actual > 0)

    def positive(self, per_class: Tensor) -> Tensor:
        """Of class 1 if there are two classes, else the mean of `macro`, [k]."""
        return per_class[:, 1] if per_class.shape[1] == 2 else self.macro(per_class)

    @property
    def majority(self) -> tuple[Tensor, Tensor]:
        """Percentage [k] and number [k] of the most frequent class of the test set."""
        return _largest(self.actual)

    @property
    def favourite(self) -> tuple[Tensor, Tensor]:
        """Percentage [k] and number [k] of the class that each model predicts most often."""
        return _largest(self.predicted)

    def expand(self, count: int) -> ClassCounts:
        """The counts of one model, as those of `count` equal ones."""
        matrix = self.confusion
        return ClassCounts(
            self.correct.expand(count, -1),
            self.predicted.expand(count, -1),
            self.actual.expand(count, -1),
            None if matrix is None else matrix.expand(count, -1, -1),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[ClassCounts]) -> ClassCounts:
        """The counts of all models of several."""
        matrices = [part.confusion for part in parts if part.confusion is not None]
        return cls(
            torch.cat([part.correct for part in parts]),
            torch.cat([part.predicted for part in parts]),
            torch.cat([part.actual for part in parts]),
            torch.cat(matrices) if matrices else None,
        )


def empty_table(classes: int, models: int, device: torch.device) -> Tensor:
    """Zeros to which `count_classes` is added, a block for each model."""
    rows = classes if classes <= MAX_CONFUSION_CLASSES else 3
    return torch.zeros(models, rows, classes, dtype=torch.int64, device=device)


def count_classes(batch: ClassBatch) -> Tensor:
    """The confusion matrix [C, C]; for many classes correct, predicted and actual, [3, C].

    Nothing is read from a GPU: samples that do not count go to a place of their own.
    """
    classes = batch.classes
    if classes > MAX_CONFUSION_CLASSES:
        correct = batch.in_range & (batch.predicted == batch.actual)
        return torch.stack(
            [
                _occurrences(batch.actual, correct, classes),
                _occurrences(batch.predicted, batch.in_range, classes),
                _occurrences(batch.actual, batch.in_range, classes),
            ]
        )
    pairs = batch.actual * classes + batch.predicted
    return _occurrences(pairs, batch.in_range, classes**2).view(classes, classes)


def _occurrences(values: Tensor, counted: Tensor, size: int) -> Tensor:
    places = torch.where(counted, values, size)
    counts = torch.zeros(size + 1, dtype=torch.int64, device=values.device)
    return counts.index_add_(0, places, torch.ones_like(places))[:-1]


def _largest(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Percentage and number of the largest count of each row; NaN where all are zero."""
    most = counts.double().max(1)
    # In the order in which accuracies are computed: equal shares are equal numbers.
    return 100 * (most.values / counts.sum(1)), most.indices


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    return part.double() / whole.clamp(min=1)


def _mean_where(values: Tensor, chosen: Tensor) -> Tensor:
    return (values * chosen).sum(1) / chosen.sum(1)
