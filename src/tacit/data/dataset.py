"""What a loaded dataset is: two splits of tensors and the words that describe them."""

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
        """The samples of each client, e.g. `split.parts(iid(len(split), 5).indices)`, as tasks take them."""
        return [(self.x[mine], self.y[mine]) for mine in indices]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named task: what to train on, what to test on, and what the class numbers mean."""

    name: str
    train: Split
    test: Split
    classes: int
    class_names: tuple[str, ...]
    note: str
    """What a reader of the results must know, e.g. "RCV1 (23,727-document subset)"."""
