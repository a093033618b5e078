"""Candidates of membership inference: samples of the victim, and as many of others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.tasks.parts import Part

MAX_MEMBERS = 400
MIN_MEMBERS = 20
MAX_POPULATION = 200
Samples = tuple[Tensor, Tensor]  # inputs [n, ...] and classes [n]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Samples that may be the victim's; only the scorer uses `members`."""

    x: Tensor
    y: Tensor
    members: Tensor  # bool [n]
    public: tuple[Tensor, Tensor]  # the others that are not candidates

    @classmethod
    def of(
        cls, held: Part | None, others: tuple[Tensor, Tensor] | None, seed: int
    ) -> Candidates | None:
        """Members from `held` and as many others of the same classes; None if there are too few."""
        if held is None or others is None or len(held) != 2 or held[1].is_floating_point():
            return None
        generator = torch.Generator().manual_seed(seed)
        inside, outside = [], []
        for label in sorted(set(held[1].tolist())):
            (a,), (b,) = torch.where(held[1] == label), torch.where(others[1] == label)
            count = min(len(a), len(b), max(1, MAX_MEMBERS * len(a) // len(held[1])))
            inside.append(a[torch.randperm(len(a), generator=generator)[:count]])
            outside.append(b[torch.randperm(len(b), generator=generator)[:count]])
        a, b = torch.cat(inside), torch.cat(outside)
        if len(a) < MIN_MEMBERS:
            return None
        x, y = torch.cat((held[0][a], others[0][b])), torch.cat((held[1][a], others[1][b]))
        rest = torch.ones(len(others[1]), dtype=torch.bool).index_fill_(0, b, False)
        public = others[0][rest], others[1][rest]
        return cls(x, y, torch.arange(len(x)) < len(a), public)

    def split_public(self, seed: int) -> tuple[Samples, Samples]:
        """Public data to train on, and a population on which no model is trained."""
        x, y = self.public
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        count = min(MAX_POPULATION, len(x) // 2)
        population, rest = order[:count], order[count:]
        return (x[rest], y[rest]), (x[population], y[population])

    def to(self, device: torch.device | str) -> tuple[Tensor, Tensor]:
        return self.x.to(device), self.y.to(device)


def distinct(batches: list[Part]) -> Part | None:
    """The samples of batches of inputs and targets, each once; None if there are none."""
    if not batches:
        return None
    x, y = (torch.cat(arrays) for arrays in zip(*batches, strict=True))
    _, which = torch.unique(x.flatten(1), dim=0, return_inverse=True)
    first = torch.full((int(which.max()) + 1,), len(which))
    first = first.scatter_reduce(0, which, torch.arange(len(which)), "amin").sort().values
    return x[first], y[first]
