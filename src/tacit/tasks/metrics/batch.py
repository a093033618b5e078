"""What the outputs of one batch say about its targets: classes, or numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.tasks.criteria import BinaryLoss, Criterion, TokenLoss, ignored_class

Kind = Literal["classes", "tokens", "numbers", "other"]

# Outputs that are converted to double precision at a time.
PIECE = 1 << 22


@dataclass(frozen=True, eq=False)
class ClassBatch:
    """Predictions of classes.

    Attributes:
        logits: One per class, [m, C], or one for two classes, [m].
        actual: The right classes [m].
        counted: Which of them count [m]: losses ignore some.
        classes: Number of classes C.
    """

    logits: Tensor
    actual: Tensor
    counted: Tensor
    classes: int

    @cached_property
    def predicted(self) -> Tensor:
        """The most probable classes [m]."""
        return (self.logits > 0).long() if self.logits.ndim == 1 else self.logits.argmax(-1)

    @cached_property
    def in_range(self) -> Tensor:
        """Which classes count and are ones that the model has, [m]."""
        return self.counted & (self.actual >= 0) & (self.actual < self.classes)

    @cached_property
    def log_probabilities(self) -> Tensor:
        """Logarithm of p of each class [m, C], in double precision."""
        logits = self.logits.double()
        if logits.ndim == 1:
            return functional.logsigmoid(torch.stack((-logits, logits), 1))
        return functional.log_softmax(logits, -1)

    @cached_property
    def log_likelihood(self) -> Tensor:
        """Logarithm of p of the right class [m]."""
        classes = torch.where(self.in_range, self.actual, 0)
        return self.log_probabilities.gather(1, classes[:, None])[:, 0]

    def pieces(self) -> Iterator[ClassBatch]:
        """This batch in parts that bound the memory of double precision."""
        step = max(1, PIECE // self.classes)
        for low in range(0, len(self.actual), step):
            rows = slice(low, low + step)
            parts = self.logits[rows], self.actual[rows], self.counted[rows]
            yield ClassBatch(*parts, self.classes)


@dataclass(frozen=True, eq=False)
class NumberBatch:
    """Predictions of numbers: values and targets [m, d], in double precision."""

    values: Tensor
    targets: Tensor


def read_classes(criterion: Criterion, output: Tensor, targets: Tensor) -> ClassBatch | None:
    """The predictions of a batch if it is a classification, else None."""
    if isinstance(criterion, BinaryLoss):
        actual = (targets.flatten() > 0.5).long()
        return ClassBatch(output.flatten(), actual, torch.ones_like(actual, dtype=torch.bool), 2)
    tokens = isinstance(criterion, TokenLoss)
    if not tokens and not (output.ndim == 2 and output.shape[1] > 1 and targets.ndim == 1):
        return None
    if targets.is_floating_point():
        return None
    actual = targets.flatten()
    counted = actual != ignored_class(criterion)
    return ClassBatch(output.flatten(0, -2), actual, counted, output.shape[-1])


def read_numbers(output: Tensor, targets: Tensor) -> NumberBatch:
    """The predictions of a regression: one row per sample."""
    pair = (x.double().reshape(len(x), -1) for x in (output, targets))
    return NumberBatch(*pair)


def kind_of(criterion: Criterion, output: Tensor, targets: Tensor) -> Kind:
    """What a model predicts."""
    if read_classes(criterion, output, targets) is not None:
        return "tokens" if isinstance(criterion, TokenLoss) else "classes"
    inner = getattr(criterion, "original", criterion)
    names_classes = isinstance(inner, nn.CrossEntropyLoss | nn.BCEWithLogitsLoss | nn.BCELoss)
    names_classes |= inner in (
        functional.cross_entropy,
        functional.binary_cross_entropy_with_logits,
        functional.binary_cross_entropy,
    )
    if names_classes or len(output) != len(targets) or output.numel() != targets.numel():
        return "other"
    return "numbers"
