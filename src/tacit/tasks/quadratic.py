"""Tasks with known optima: quadratics and linear least squares."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.errors import Misuse
from tacit.tasks.objective import Objective
from tacit.tasks.vector_task import vector_task


def quadratic(A: Tensor, b: Tensor, theta0: Tensor | None = None) -> Objective:
    """Client i minimises ½ θᵀAᵢθ − bᵢᵀθ.

    Args:
        A: Symmetric matrices [N, P, P].
        b: Vectors [N, P].
        theta0: Initial model, [P] for all clients or [N, P]; zero by default.

    Returns:
        A task with full gradients whose `optimum` is (ΣAᵢ)⁻¹ Σbᵢ.

    Raises:
        Misuse: If shapes do not fit or A is not symmetric.

    Example:
        >>> import torch, tacit
        >>> A = torch.eye(3, dtype=torch.float64).repeat(5, 1, 1)
        >>> tacit.quadratic(A, torch.ones(5, 3, dtype=torch.float64)).optimum
        tensor([1., 1., 1.], dtype=torch.float64)
    """
    for name, value in (("A", A), ("b", b)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise Misuse(f"{name} is a {kind}.", "Give tensors of float32 or float64.")
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

    start = torch.zeros_like(b[0]) if theta0 is None else theta0
    task = vector_task(start, list(zip(A, b, strict=True)), loss)
    return task.with_optimum(_minimiser(A.sum(0), b.sum(0))).with_proximal(proximal)


def least_squares(
    x: Sequence[Tensor] | Tensor,
    y: Sequence[Tensor] | Tensor,
    theta0: Tensor | None = None,
    batch_size: int | None = None,
) -> Objective:
    """Client i minimises ½ mean((xᵢθ − yᵢ)²).

    Args:
        x: One matrix [nᵢ, P] per client.
        y: One vector [nᵢ] per client.
        theta0: Initial model, [P] for all clients or [N, P]; zero by default.
        batch_size: Samples per gradient. None: every gradient uses all data of its client.

    Returns:
        A task whose `optimum` minimises the sum of all losses.

    Raises:
        Misuse: If shapes do not fit.

    Example:
        >>> import torch, tacit
        >>> x = torch.randn(5, 20, 3)
        >>> tacit.least_squares(x, x @ torch.ones(3), batch_size=4)
        Objective(5 clients, 3 parameters, batches of 4)
    """
    parts = list(zip(x, y, strict=True))
    bad = (
        u.ndim != 2 or not len(u) or v.shape != u.shape[:1] or u.shape[1:] != x[0].shape[1:]
        for u, v in parts
    )
    if not parts or any(bad):
        raise Misuse(
            "The shapes of x and y do not fit.", "Give x as matrices [nᵢ, P] and y as vectors [nᵢ]."
        )

    def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (x @ theta - y).square().mean()

    def proximal(linear: Tensor, curvature: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return _solve(x.T @ x / len(x), curvature, x.T @ y / len(x) - linear)

    start = torch.zeros_like(parts[0][0][0]) if theta0 is None else theta0
    task = vector_task(start, parts, loss, batch_size)
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
