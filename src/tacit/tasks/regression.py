"""Streams of linear measurements d = xᵀwᵒ + v, and their expected losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key
from tacit.tasks.evaluation import ExpectedLoss
from tacit.tasks.parts import Part
from tacit.tasks.stream import Stream, uniforms
from tacit.tasks.task import Task


def squared_error(w: Tensor, x: Tensor, d: Tensor) -> Tensor:
    """½ (d − xᵀw)², mean over the batch."""
    return 0.5 * (d - x @ w).square().mean()


def streaming_regression(
    regressors: Callable[..., Tensor],
    expected_square: Callable[..., Tensor],
    constants: Part,
    targets: Tensor,
    noise_variances: Tensor,
    optimum: Tensor,
    *,
    batch_size: int = 1,
    exact: bool = False,
    flip_at: int | None = None,
) -> Task:
    """Client k measures d = xᵀwᵒ + v with Gaussian v, and minimises ½ (d − xᵀw)².

    The first estimates are uniform in [−1, 1], different for each client.

    Args:
        regressors: `(normals [k, batch, P], *constants)` → x [k, batch, P] of k clients.
        expected_square: `(e, *constants)` → eᵀRe of one client with R = E xxᵀ.
        constants: Arrays [N, ...] that describe the clients' regressors.
        targets: wᵒ of each client, [N, P].
        noise_variances: Variance of v of each client, [N].
        optimum: The minimiser [P] of the sum of the expected losses.
        batch_size: Measurements per gradient.
        exact: Gradients are those of the expected loss ½ (w − wᵒ)ᵀR(w − wᵒ) + ½ E v².
        flip_at: From this batch on, wᵒ and the optimum have the opposite sign.
    """
    check_count("batch_size", batch_size)
    if flip_at is not None:
        check_count("flip_at", flip_at, at_least=0)
    width, dtype = targets.shape[1], targets.dtype

    def sign(number: int) -> int:
        return 1 if flip_at is None or number < flip_at else -1

    def samples(
        number: int, normals: Tensor, targets: Tensor, noise_variances: Tensor, *constants: Tensor
    ) -> Part:
        drawn = normals.to(dtype).view(-1, batch_size, width + 1)
        x = regressors(drawn[..., :width], *constants)
        v = noise_variances.sqrt()[:, None] * drawn[..., width]
        return x, sign(number) * (x @ targets[:, :, None]).squeeze(2) + v

    def expectation(
        number: int, normals: Tensor, targets: Tensor, noise_variances: Tensor, *constants: Tensor
    ) -> Part:
        return sign(number) * targets, noise_variances, *constants

    def expected_error(
        w: Tensor, target: Tensor, noise_variance: Tensor, *constants: Tensor
    ) -> Tensor:
        return 0.5 * (expected_square(w - target, *constants) + noise_variance)

    def initial(seed: int, clients: Sequence[int]) -> Tensor:
        drawn = uniforms(derive_key(seed, "first estimates"), 0, torch.tensor(list(clients)), width)
        return (2 * drawn - 1).to(dtype)

    all_constants = (targets, noise_variances, *constants)
    expected = Stream(all_constants, 0, expectation)
    return Task(
        loss=expected_error if exact else squared_error,
        parts=expected if exact else Stream(all_constants, batch_size * (width + 1), samples),
        batch_size=None if exact else batch_size,
        initial=initial,
        parameters=width,
        dtype=dtype,
        evaluation=ExpectedLoss(expected_error, expected),
        optimum=optimum if flip_at is None else lambda number: sign(number) * optimum,
    )


def as_array(name: str, values: Tensor | Sequence[Any], dtype: torch.dtype) -> Tensor:
    """Finite numbers as a tensor of `dtype`; raises Misuse for anything else, e.g. ragged lists."""
    if dtype not in (torch.float32, torch.float64):
        raise Misuse(f"dtype is {dtype}.", "Give torch.float32 or torch.float64.")
    try:
        array = torch.as_tensor(values, dtype=dtype)
    except (TypeError, ValueError) as problem:
        raise Misuse(
            f"{name} is no array of numbers: {problem}.", "Give lists of one length."
        ) from None
    if not bool(torch.isfinite(array).all()):
        raise Misuse(f"{name} holds a number that is not finite.", "Give finite numbers.")
    return array
