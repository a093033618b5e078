"""Noticing the first number that is not finite, without waiting for a GPU at every iteration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import native
from tacit.crew import Crew


@dataclass(frozen=True)
class Finding:
    """Where a state first stopped being finite."""

    iteration: int
    field: str
    row: int


class Watchdog:
    """Looks at every state; what it saw first stays on the device until somebody asks."""

    def __init__(self, device: torch.device, crew: Crew | None = None) -> None:
        self._crew = crew or Crew(1)
        self._seen = torch.full((3,), -1, dtype=torch.int64, device=device)  # iteration, field, row
        self._row = torch.tensor((0, 0, 1), device=device)
        self._fields: list[str] = []

    def look(self, iteration: int, tensors: dict[str, Tensor]) -> None:
        """Look at the rows of all fields of a state."""
        self._fields = list(tensors)
        for number, rows in enumerate(tensors.values()):
            bad = self._not_finite(rows)
            place = torch.tensor((iteration, number, 0), device=bad.device) + bad.int().argmax() * self._row
            self._seen = torch.where((self._seen[0] < 0) & bad.any(), place, self._seen)

    def _not_finite(self, rows: Tensor) -> Tensor:
        """[n] whether a row has a number that is not finite."""
        if native.available(rows):
            bad = torch.empty(len(rows), dtype=torch.bool)
            self._crew.each(lambda part: native.not_finite(rows, bad, part), self._crew.cut(len(rows)))
            return bad
        # Both pass NaN on, so they are finite if and only if all of the row is.
        return ~(torch.isfinite(rows.amax(1)) & torch.isfinite(rows.amin(1)))

    def finding(self) -> Finding | None:
        """What was seen first, if anything; this waits for the device."""
        iteration, field, row = self._seen.tolist()
        return Finding(iteration, self._fields[field], row) if iteration >= 0 else None
