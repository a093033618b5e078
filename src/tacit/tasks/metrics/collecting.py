"""Collects what metrics need while a test set is evaluated batch by batch."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.tasks.criteria import Criterion
from tacit.tasks.metrics.batch import ClassBatch, read_classes, read_numbers
from tacit.tasks.metrics.class_counts import ClassCounts, count_classes, empty_table
from tacit.tasks.metrics.metric import CLASS_SUMS, NUMBER_SUMS, Metric, Totals


class Collector:
    """What metrics of `models` models need, of a test set in so many `batches`.

    Threads may add batches in any order: counts are whole numbers, and other sums are added in the
    order of the batches. Nothing is read from a GPU before the end.
    """

    def __init__(
        self, criterion: Criterion, metrics: Sequence[Metric], models: int, batches: int
    ) -> None:
        self._criterion, self._metrics, self._models = criterion, metrics, models
        names = dict.fromkeys(name for metric in metrics for name in metric.sums)
        self._sums = {name: _slots(models, batches) for name in names}
        keeps_outputs = any(metric.needs_outputs for metric in metrics)
        self._outputs = _slots(models, batches) if keeps_outputs else []
        self._counts: Tensor | None = None
        self._lock = threading.Lock()

    def add(self, row: int, number: int, output: Tensor, targets: Tensor) -> ClassBatch | None:
        """Add batch `number` of model `row`; return its predictions if they are classes."""
        if self._outputs:
            # Copied, because outputs of several models may share memory.
            self._outputs[row][number] = output.clone()
        batch = read_classes(self._criterion, output, targets)
        if batch is None:
            if self._sums:
                numbers = read_numbers(output, targets)
                for name, slots in self._sums.items():
                    slots[row][number] = NUMBER_SUMS[name](numbers).sum(0)
            return None
        counts = count_classes(batch)
        with self._lock:
            if self._counts is None:
                self._counts = empty_table(batch.classes, self._models, output.device)
            self._counts[row] += counts
        if self._sums:
            pieces = [
                {
                    name: torch.where(piece.in_range, CLASS_SUMS[name](piece), 0).sum()
                    for name in self._sums
                }
                for piece in batch.pieces()
            ]
            for name, slots in self._sums.items():
                slots[row][number] = torch.stack([sums[name] for sums in pieces]).sum()
        return batch

    def finish(self, targets: Tensor) -> tuple[dict[str, Tensor], ClassCounts | None]:
        """The metrics of all models by name, and the counts of their predictions, on the CPU."""
        counts = None if self._counts is None else ClassCounts.from_table(self._counts.cpu())
        sums = {
            name: torch.stack([torch.stack(batches).sum(0) for batches in slots]).cpu()
            for name, slots in self._sums.items()
        }
        outputs = [torch.cat(batches) for batches in self._outputs]
        totals = Totals(self._criterion, targets, outputs, sums, counts)
        computed = {metric.name: metric.compute(totals).cpu() for metric in self._metrics}
        return computed, counts


def _slots(models: int, batches: int) -> list[list[Tensor]]:
    return [[torch.empty(0)] * batches for _ in range(models)]
