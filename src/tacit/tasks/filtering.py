"""Streams of linear measurements d = xᵀwᵒ + v with their expected losses: adaptive filtering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key
from tacit.tasks.evaluation import ExpectedLoss
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Part
from tacit.tasks.stream import Stream, normals, uniforms


def adaptive_filtering(
    clients: int = 5,
    width: int = 5,
    *,
    seed: int = 0,
    homogeneous: bool = False,
    flip_at: int | None = None,
    exact: bool = False,
    batch_size: int = 1,
    variances: Tensor | Sequence[float] | None = None,
    noise_variances: Tensor | Sequence[float] | None = None,
    targets: Tensor | Sequence[Sequence[float]] | None = None,
    dtype: torch.dtype = torch.float64,
) -> Objective:
    """Client k measures d = xᵀwₖᵒ + v, and minimises ½ (d − xᵀw)².

    The problem of the dual-protection paper, section 5.1: x ~ N(0, σ²ₓₖ I) and v ~ N(0, σ²ᵥₖ).
    The seed of the run draws the samples, which never repeat.

    Args:
        clients: Number of clients N.
        width: Length of the filters.
        seed: Draws `variances`, `noise_variances` and `targets` if they are not given.
        homogeneous: All clients have the same target.
        flip_at: From this batch on all targets have the opposite sign. Iteration t takes batch
            t + 1.
        exact: Gradients are those of the expected loss.
        batch_size: Measurements per gradient.
        variances: σ²ₓ of each client, [N]; by default uniform in (0, 1).
        noise_variances: σ²ᵥ of each client, [N]; by default uniform in (0, 1).
        targets: wᵒ of each client, [N, width]; by default standard normal.
        dtype: torch.float32 or torch.float64.

    Returns:
        A task whose `optimum` is (Σ Rₖ)⁻¹ Σ Rₖ wₖᵒ with Rₖ = σ²ₓₖ I.

    Raises:
        Misuse: If sizes, shapes or variances are not valid.

    Example:
        >>> import tacit
        >>> tacit.adaptive_filtering(clients=5, flip_at=2000)
        Objective(5 clients, 5 parameters, batches of 1)
    """
    check_count("clients", clients)
    check_count("width", width)
    ids = torch.arange(clients)

    def key(quantity: str) -> int:
        return derive_key(seed, "adaptive filtering", quantity)

    if variances is None:
        variances = uniforms(key("variances"), 0, ids, 1)[:, 0]
    if noise_variances is None:
        noise_variances = uniforms(key("noise variances"), 0, ids, 1)[:, 0]
    if targets is None:
        targets = normals(key("targets"), 0, torch.zeros_like(ids) if homogeneous else ids, width)
    powers = as_array("variances", variances, dtype, (clients,))
    noise = as_array("noise_variances", noise_variances, dtype, (clients,))
    local = as_array("targets", targets, dtype, (clients, width))
    if not bool((powers > 0).all()) or not bool((noise >= 0).all()):
        raise Misuse("A variance is negative, or one of x is zero.", "Give positive variances.")
    task = streaming_regression(
        regressors=lambda normals, variances: variances.sqrt()[:, None, None] * normals,
        expected_square=lambda e, variance: variance * e.square().sum(),
        constants=(powers,),
        targets=local,
        noise_variances=noise,
        optimum=(powers[:, None] * local).sum(0) / powers.sum(),
        batch_size=batch_size,
        exact=exact,
        flip_at=flip_at,
    )
    if not exact:
        return task
    # The argmin of ½σ²‖w − wᵒ‖² + bᵀw + c/2 ‖w‖².
    return task.with_proximal(lambda b, c, target, noise, s: (s * target - b) / (s + c))


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
) -> Objective:
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
    return Objective(
        loss=expected_error if exact else squared_error,
        parts=expected if exact else Stream(all_constants, batch_size * (width + 1), samples),
        batch_size=None if exact else batch_size,
        initial=initial,
        parameters=width,
        dtype=dtype,
        evaluation=ExpectedLoss(expected_error, expected),
        optimum=optimum if flip_at is None else lambda number: sign(number) * optimum,
    )


def as_array(
    name: str, values: Tensor | Sequence[Any], dtype: torch.dtype, shape: tuple[int, ...] = ()
) -> Tensor:
    """Finite numbers as a tensor of `dtype`, and of `shape` if given.

    Raises Misuse for anything else, e.g. ragged lists.
    """
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
    if shape and array.shape != shape:
        raise Misuse(f"{name} has shape {tuple(array.shape)}.", f"Give numbers of shape {shape}.")
    return array
