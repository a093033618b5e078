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
    """Looks at every state; what it saw stays on the device until somebody asks."""

    def __init__(self, crew: Crew | None = None) -> None:
        self._crew = crew or Crew(1)
        # Iteration, field, and [n] that are finite where the rows are.
        self._seen: list[tuple[int, str, Tensor]] = []
        self._found: Finding | None = None

    def look(self, iteration: int, tensors: dict[str, Tensor]) -> None:
        """Look at the rows of all fields of a state."""
        self._seen += [(iteration, name, self._sizes(rows)) for name, rows in tensors.items()]

    def _sizes(self, rows: Tensor) -> Tensor:
        """[n] numbers of which one is finite if and only if all of its row is."""
        if native.available(rows):
            bad = torch.empty(len(rows), dtype=torch.bool)
            self._crew.each(lambda part: native.not_finite(rows, bad, part), self._crew.cut(len(rows)))
            return torch.where(bad, torch.inf, 0.0)
        largest: Tensor = torch.linalg.vector_norm(rows, torch.inf, dim=1)
        return largest

    def finding(self) -> Finding | None:
        """What was seen first, if anything; this waits for the device."""
        if self._found is None and self._seen:
            bad = ~torch.isfinite(torch.cat([sizes for _, _, sizes in self._seen]).cpu())
            if bad.any():
                row = int(bad.int().argmax())
                for iteration, field, sizes in self._seen:
                    if row < len(sizes):
                        self._found = Finding(iteration, field, row)
                        break
                    row -= len(sizes)
        self._seen = []
        return self._found
