"""Rows that are computed when taken, so that a row per edge never has to exist all at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LazyRows:
    """`count` rows of `width` numbers; `draw(index)` computes the rows asked for, always the same ones."""

    count: int
    width: int
    dtype: torch.dtype
    device: torch.device
    draw: Callable[[Tensor], Tensor]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Tensor) -> Tensor:
        """The rows at `index` [k] as a tensor [k, width]."""
        return self.draw(index)

    def tensor(self) -> Tensor:
        """All rows at once: [count, width]."""
        return self.draw(torch.arange(self.count, device=self.device))


Rows = Tensor | LazyRows
