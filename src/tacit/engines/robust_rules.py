"""Rules that combine a client's own row with those of its neighbours, some of which may lie.

A rule has a *breakdown point*: the number of lying neighbours up to which what they send, whatever
it is, changes the result by a bounded amount. dᵢ is the number of client i's neighbours, and b the
number of liars that the rule is set to.

| rule | needs | with at most b liars | with b + 1 liars |
| --- | --- | --- | --- |
| centred clipping | b < dᵢ | at most Σ wᵢⱼ D from the own row | unbounded |
| trimmed mean | 2b ≤ dᵢ | every coordinate lies between two honest values | unbounded |

D is the largest distance from the own row to an honest neighbour's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def centred_clipping(
    own: Tensor, others: Sequence[Tensor], weights: Sequence[Tensor], liars: int
) -> Tensor:
    """xᵢ + Σ wᵢⱼ (xⱼ − xᵢ) min(1, τᵢ/‖xⱼ − xᵢ‖).

    Args:
        own: Own rows [n, P].
        others: Rows of the k-th neighbours, [n, P] each.
        weights: Their weights [n, 1] each; zero where a client has fewer neighbours.
        liars: b; τᵢ is the distance that b neighbours exceed, or 0 if there are no more than b.
    """
    distances = torch.cat(
        [
            torch.linalg.vector_norm(row - own, dim=1, keepdim=True, dtype=torch.float64)
            for row in others
        ],
        1,
    )
    # What is not a number is farther away than everything else.
    distances = torch.where(distances.isnan(), torch.inf, distances)
    present = torch.cat(list(weights), 1) > 0
    ordered = torch.where(present, distances, -torch.inf).sort(1, descending=True).values
    radius = ordered[:, liars : liars + 1] if liars < len(others) else ordered[:, :0]
    radius = radius.clamp(min=0) if radius.shape[1] else torch.zeros_like(ordered[:, :1])
    out = own
    for row, weight, distance in zip(others, weights, distances.unbind(1), strict=True):
        distance = distance[:, None]
        share = torch.where(distance > radius, radius / distance, 1.0)
        move = torch.where(distance.isfinite(), row - own, 0.0)
        out = out + (weight.to(own.dtype) * share.to(own.dtype)) * move
    return out


def trimmed_mean(
    own: Tensor, others: Sequence[Tensor], present: Sequence[Tensor], liars: int
) -> Tensor:
    """The mean over own and received values without the b largest and smallest, per coordinate.

    Args:
        own: Own rows [n, P].
        others: Rows of the k-th neighbours, [n, P] each.
        present: Whether a client has a k-th neighbour, [n, 1] each.
        liars: b.
    """
    beyond = [
        torch.where(there & ~row.isnan(), row, torch.inf)
        for row, there in zip(others, present, strict=True)
    ]
    ordered = torch.stack([own, *beyond]).sort(0).values
    count = 1 + torch.stack([there.to(torch.int64) for there in present]).sum(0)
    total, kept = torch.zeros_like(own), count - 2 * liars
    for rank, values in enumerate(ordered):
        inside = (rank >= liars) & (rank < count - liars)
        total = total + torch.where(inside, values, 0.0)
    return torch.where(kept > 0, total / kept.clamp(min=1).to(own.dtype), own)
