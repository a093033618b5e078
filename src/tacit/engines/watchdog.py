"""Finds the first number that is not finite, without waiting for a GPU at every iteration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core import native
from tacit.core.rows import is_shared
from tacit.core.workers import WorkerPool


@dataclass(frozen=True)
class NonFiniteRow:
    """Where a state first stopped being finite."""

    iteration: int
    field: str
    row: int


class Watchdog:
    """Checks every state; the results stay on the device until `first_found` reads them."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        self._pool = pool or WorkerPool(1)
        # Per check: the iteration, the number of rows of each field, and the rows' magnitudes.
        self._checked: list[tuple[int, dict[str, int], Tensor]] = []
        self._found: NonFiniteRow | None = None

    def check(self, iteration: int, tensors: dict[str, Tensor]) -> None:
        """Check the rows of all fields of a state."""
        for name, rows in tensors.items():
            self.record(iteration, {name: len(rows)}, self.magnitudes(rows))

    def record(self, iteration: int, rows: dict[str, int], magnitudes: Tensor) -> None:
        """Record the magnitudes of a state's rows; `rows` has the number of rows of each field."""
        self._checked.append((iteration, rows, magnitudes))

    def magnitudes(self, rows: Tensor) -> Tensor:
        """Numbers [n], each finite if and only if its whole row is."""
        if is_shared(rows) and len(rows) > 1:
            return self.magnitudes(rows[:1]).expand(len(rows))
        if native.supports(rows):
            bad = torch.empty(len(rows), dtype=torch.bool)
            self._pool.run(
                lambda part: native.not_finite(rows, bad, part), self._pool.split(len(rows))
            )
            return torch.where(bad, torch.inf, 0.0)
        largest: Tensor = torch.linalg.vector_norm(rows, torch.inf, dim=1)
        return largest

    def clear(self) -> None:
        """Drop the checks that were not read yet."""
        self._checked = []

    def first_found(self) -> NonFiniteRow | None:
        """The first row that was not finite, if any. Waits for the device."""
        if self._found is None and self._checked:
            bad = ~torch.isfinite(
                torch.cat([magnitudes for _, _, magnitudes in self._checked]).cpu()
            )
            if bad.any():
                self._found = self._at(int(bad.int().argmax()))
        self._checked = []
        return self._found

    def _at(self, row: int) -> NonFiniteRow:
        """The row at this position among all checked rows."""
        for iteration, fields, _ in self._checked:
            for field, count in fields.items():
                if row < count:
                    return NonFiniteRow(iteration, field, row)
                row -= count
        raise IndexError(row)
