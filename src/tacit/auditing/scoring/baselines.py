"""Baseline guesses from a public pool, without any data of the victim.

prior mean   the mean of the pool
same class   a random sample of the pool of each true class
class mean   the mean of the pool's samples of each true class: the best guess in MSE that uses the
             classes only
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core.errors import Misuse


@dataclass(frozen=True, eq=False)
class PublicPool:
    """Public samples x [n, *shape], float64, and their classes y [n]."""

    x: Tensor
    y: Tensor

    def prior_mean(self, labels: Tensor) -> Tensor:
        """The pool's mean for every label [V, b]: [V, b, *shape]."""
        return self.x.mean(0).expand(*labels.shape, *self.x.shape[1:])

    def class_means(self, labels: Tensor) -> Tensor:
        """The mean of its class for every label [V, b]: [V, b, *shape]."""
        out = self.prior_mean(labels).clone()
        for label in torch.unique(labels):
            out[labels == label] = self.x[self.y == label].mean(0)
        return out

    def same_class(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """A random sample of its class for every label [V, b]: [V, b, *shape]."""
        out = self.prior_mean(labels).clone()
        for label in torch.unique(labels):
            alike, wanted = torch.nonzero(self.y == label).flatten(), labels == label
            drawn = torch.randint(len(alike), (int(wanted.sum()),), generator=generator)
            out[wanted] = self.x[alike[drawn]]
        return out

    def count(self, truth: Tensor) -> int:
        """How many of the true samples [V, b, *shape] are in the pool, bit by bit."""
        known = {row.contiguous().numpy().tobytes() for row in self.x}
        return sum(row.contiguous().numpy().tobytes() in known for row in truth.flatten(0, 1))


def public_pool(
    truth: Tensor, labels: Tensor | None, x: Tensor, y: Tensor | None
) -> tuple[PublicPool, Tensor]:
    """The pool and the labels [V, b], checked against the truth [V, b, *shape].

    Without labels all samples are of one class.
    """
    if (labels is None) != (y is None):
        raise Misuse(
            "Only one of the true labels and the pool's labels is given.", "Give both or neither."
        )
    if labels is None or y is None:
        labels, y = torch.zeros(truth.shape[:2]), torch.zeros(len(x))
    labels, y = labels.cpu(), y.cpu()
    if labels.shape != truth.shape[:2] or y.shape != x.shape[:1] or x.shape[1:] != truth.shape[2:]:
        raise Misuse(
            f"The truth is {tuple(truth.shape)} with labels {tuple(labels.shape)}, "
            f"the pool {tuple(x.shape)} with labels {tuple(y.shape)}.",
            "Give labels [victims, batch], and a pool [n, *shape] of samples of the same shape "
            "with labels [n].",
        )
    if missing := sorted(set(labels.flatten().tolist()) - set(y.tolist())):
        raise Misuse(
            f"The public pool has no sample of class {missing[0]}.",
            "Give a pool with every class of the victims, or no labels if targets are not classes.",
        )
    if not x.isfinite().all():
        raise Misuse("The public pool has NaN or infinite values.", "Give numbers.")
    return PublicPool(x.detach().double().cpu(), y), labels
