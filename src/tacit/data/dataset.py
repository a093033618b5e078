"""A loaded dataset: two splits of tensors and what describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tacit.core.errors import Misuse


@dataclass(frozen=True, eq=False)
class Split:
    """Samples and their classes: x is float32 [n, C, H, W] in [0, 1] or [n, F]; y is int64 [n]."""

    x: torch.Tensor
    y: torch.Tensor

    def __post_init__(self) -> None:
        if self.y.dtype != torch.int64 or self.y.ndim != 1:
            raise Misuse(
                f"labels are {self.y.dtype} with shape {tuple(self.y.shape)}.",
                "Give one int64 class number per sample, shape [n].",
            )
        if len(self.x) != len(self.y):
            raise Misuse(
                f"a split has {len(self.x):,} samples but {len(self.y):,} labels.",
                "Give exactly one label per sample.",
            )

    def __len__(self) -> int:
        return len(self.y)

    def parts(self, indices: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The samples of each client for a task: `split.parts(iid(len(split), 5).indices)`."""
        return [(self.x[own], self.y[own]) for own in indices]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set and a test set; `note` is printed with results, such as "RCV1 (subset)"."""

    name: str
    train: Split
    test: Split
    classes: int
    class_names: tuple[str, ...] = ()
    note: str = ""
