"""Tasks with known optima: quadratics and linear least squares."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.errors import Misuse
from tacit.tasks.task import Task


def quadratic(A: Tensor, b: Tensor, theta0: Tensor | None = None) -> Task:
    """Client i minimises ½ θᵀAᵢθ − bᵢᵀθ with A [N, P, P] symmetric and b [N, P].

    The sum's optimum is (ΣAᵢ)⁻¹ Σbᵢ: `task.optimum`. Starts at zero unless `theta0` [P] or [N, P] is given.
    """
    if A.ndim != 3 or A.shape[1] != A.shape[2] or b.shape != A.shape[:2]:
        raise Misuse(
            f"A has shape {tuple(A.shape)}, b {tuple(b.shape)}.", "Give A [N, P, P] and b [N, P]."
        )
    if not torch.allclose(A, A.mT):
        raise Misuse("A is not symmetric.", "Give (A + Aᵀ)/2: it has the same values of θᵀAθ.")

    def loss(theta: Tensor, A: Tensor, b: Tensor) -> Tensor:
        return 0.5 * theta @ (A @ theta) - b @ theta

    def proximal(linear: Tensor, curvature: Tensor, A: Tensor, b: Tensor) -> Tensor:
        return _solve(A, curvature, b - linear)

    task = Task.from_loss(loss, list(zip(A, b, strict=True)), theta0=_start(theta0, b[0]))
    return task.with_optimum(_minimiser(A.sum(0), b.sum(0))).with_proximal(proximal)


def least_squares(
    x: Sequence[Tensor] | Tensor,
    y: Sequence[Tensor] | Tensor,
    theta0: Tensor | None = None,
    batch_size: int | None = None,
) -> Task:
    """Client i minimises ½ mean((xᵢθ − yᵢ)²) with xᵢ [nᵢ, P] and yᵢ [nᵢ]; `task.optimum` solves the sum."""
    parts = list(zip(x, y, strict=True))
    bad = (
        u.ndim != 2 or not len(u) or v.shape != u.shape[:1] or u.shape[1:] != x[0].shape[1:]
        for u, v in parts
    )
    if not parts or any(bad):
        raise Misuse(
            "least_squares got other shapes.", "Give x as matrices [nᵢ, P] and y as vectors [nᵢ]."
        )

    def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (x @ theta - y).square().mean()

    def proximal(linear: Tensor, curvature: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return _solve(x.T @ x / len(x), curvature, x.T @ y / len(x) - linear)

    task = Task.from_loss(loss, parts, theta0=_start(theta0, parts[0][0][0]), batch_size=batch_size)
    normal = sum((u.T @ u / len(u) for u, _ in parts), start=torch.zeros(()))
    right = sum((u.T @ v / len(u) for u, v in parts), start=torch.zeros(()))
    return task.with_optimum(_minimiser(normal, right)).with_proximal(proximal)


def _solve(hessian: Tensor, curvature: Tensor, right: Tensor) -> Tensor:
    """(hessian + curvature · I)⁻¹ right."""
    identity = torch.eye(len(right), dtype=right.dtype, device=right.device)
    solution: Tensor = torch.linalg.solve(hessian + curvature * identity, right)
    return solution


def _minimiser(hessian: Tensor, right: Tensor) -> Tensor:
    """The smallest θ with hessian · θ = right."""
    solution: Tensor = torch.linalg.pinv(hessian.double(), hermitian=True) @ right.double()
    return solution


def _start(theta0: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if theta0 is None else theta0
