"""How gradients change, from three successive messages of differential PDMM: eq. 28, 33 and 36."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from tacit.record.transcript import Message


def gradient_differences(
    messages: Sequence[Message],
    nodes: int,
    rho: float,
    mu: float,
    solver: Literal["gradient", "quadratic"],
) -> Tensor:
    """∇fᵢ(wᵢᵏ⁺¹) − ∇fᵢ(wᵢᵏ) [n, P] in float64.

    With Δ = wᵏ⁺¹ − wᵏ and Δ⁺ = wᵏ⁺² − wᵏ⁺¹ by eq. 33, and h = Σⱼ Bᵢⱼ Δzᵢ|ⱼ received in between:

        gradient step    −h − Δ⁺/μ − (ρd − 1/μ) Δ        (eq. 36)
        quadratic        −h − (1/μ + ρd) Δ⁺ + Δ/μ

    Args:
        messages: Of iterations k, k + 1 and k + 2, counted from 1.
        nodes: n.
        rho: ρ of PDMM.
        mu: μ of the solver.
        solver: How nodes solve their local problems.
    """
    first, second, third = (message.rows.cpu().double() for message in messages)
    source, target = messages[0].source.cpu(), messages[0].target
    assert target is not None  # messages along edges have one
    target = target.cpu()
    sign = torch.where(source < target, 1.0, -1.0).to(first)[:, None]
    # Edges are in the order of (i, j): these are the positions of (j, i).
    back = (target * nodes + source).argsort()
    degree = torch.bincount(source, minlength=nodes).to(first)[:, None]

    def total(rows: Tensor) -> Tensor:
        """Over the neighbours of each node."""
        return rows.new_zeros(nodes, rows.shape[1]).index_add_(0, source, rows)

    before, after = (
        total((later - earlier[back]) * sign) / (2 * rho * degree)
        for earlier, later in ((first, second), (second, third))
    )
    received = total(sign * second[back])
    if solver == "gradient":
        return -received - after / mu - (rho * degree - 1 / mu) * before
    return -received - (1 / mu + rho * degree) * after + before / mu
