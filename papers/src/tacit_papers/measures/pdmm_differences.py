"""How gradients change, from three successive messages of differential PDMM: eq. 28, 33 and 36, in all of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from tacit.record.transcript import Message


def gradient_changes(
    messages: Sequence[Message],
    nodes: int,
    rho: float,
    mu: float,
    solver: Literal["gradient", "quadratic"],
) -> Tensor:
    """∇fᵢ(wᵢᵏ⁺¹) − ∇fᵢ(wᵢᵏ) [n, P] in float64 from the messages of iterations k, k + 1 and k + 2, counted from 1.

    With Δ = wᵏ⁺¹ − wᵏ and Δ⁺ = wᵏ⁺² − wᵏ⁺¹ by eq. 33, and h = Σⱼ Bᵢⱼ Δzᵢ|ⱼ what was heard in between:

        gradient step    −h − Δ⁺/μ − (ρd − 1/μ) Δ        (eq. 36)
        quadratic        −h − (1/μ + ρd) Δ⁺ + Δ/μ
    """
    first, second, third = (
        message.rows.cpu().double() for message in messages
    )  # sums in one order
    source, target = messages[0].source.cpu(), messages[0].target
    assert target is not None  # messages along edges have one
    target = target.cpu()
    sign = torch.where(source < target, 1.0, -1.0).to(first)[:, None]
    back = (
        target * nodes + source
    ).argsort()  # edges are in the order of (i, j): here are those of (j, i)
    degree = torch.bincount(source, minlength=nodes).to(first)[:, None]

    def total(rows: Tensor) -> Tensor:
        """Over the neighbours of each node."""
        return rows.new_zeros(nodes, rows.shape[1]).index_add_(0, source, rows)

    before, after = (
        total((later - earlier[back]) * sign) / (2 * rho * degree)
        for earlier, later in ((first, second), (second, third))
    )
    heard = total(sign * second[back])
    if solver == "gradient":
        return -heard - after / mu - (rho * degree - 1 / mu) * before
    return -heard - (1 / mu + rho * degree) * after + before / mu
