"""Noticing the first number that is not finite, without waiting for a GPU at every iteration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core import native
from tacit.core.workers import WorkerPool


@dataclass(frozen=True)
class Finding:
    """Where a state first stopped being finite."""

    iteration: int
    field: str
    row: int


class Watchdog:
    """Looks at every state; what it saw stays on the device until somebody asks."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        self._pool = pool or WorkerPool(1)
        # Iteration, the number of rows of each field, and numbers that are finite where the rows are, field by field.
        self._seen: list[tuple[int, dict[str, int], Tensor]] = []
        self._found: Finding | None = None

    def look(self, iteration: int, tensors: dict[str, Tensor]) -> None:
        """Look at the rows of all fields of a state."""
        for name, rows in tensors.items():
            self.saw(iteration, {name: len(rows)}, self.sizes(rows))

    def saw(self, iteration: int, rows: dict[str, int], sizes: Tensor) -> None:
        """Take note of the sizes of a state's rows, so many of each field."""
        self._seen.append((iteration, rows, sizes))

    def sizes(self, rows: Tensor) -> Tensor:
        """[n] numbers of which one is finite if and only if all of its row is."""
        if native.supports(rows):
            bad = torch.empty(len(rows), dtype=torch.bool)
            self._pool.run(
                lambda part: native.not_finite(rows, bad, part), self._pool.split(len(rows))
            )
            return torch.where(bad, torch.inf, 0.0)
        largest: Tensor = torch.linalg.vector_norm(rows, torch.inf, dim=1)
        return largest

    def forget(self) -> None:
        """Drop what was seen: nobody will ask."""
        self._seen = []

    def finding(self) -> Finding | None:
        """What was seen first, if anything; this waits for the device."""
        if self._found is None and self._seen:
            bad = ~torch.isfinite(torch.cat([sizes for _, _, sizes in self._seen]).cpu())
            if bad.any():
                self._found = self._at(int(bad.int().argmax()))
        self._seen = []
        return self._found

    def _at(self, row: int) -> Finding:
        """Which row of all that were seen this is."""
        for iteration, fields, _ in self._seen:
            for field, count in fields.items():
                if row < count:
                    return Finding(iteration, field, row)
                row -= count
        raise IndexError(row)
