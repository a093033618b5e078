"""Adaptive filtering: learning a filter from a stream of its noisy outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key
from tacit.tasks.regression import as_array, streaming_regression
from tacit.tasks.stream import normals, uniforms
from tacit.tasks.task import Task


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
) -> Task:
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
        Task(5 clients, 5 parameters, batches of 1)
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
    powers = _array("variances", variances, (clients,), dtype)
    noise = _array("noise_variances", noise_variances, (clients,), dtype)
    local = _array("targets", targets, (clients, width), dtype)
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
    return task.with_proximal(_expected_minimiser) if exact else task


def _expected_minimiser(
    b: Tensor, c: Tensor, target: Tensor, noise: Tensor, variance: Tensor
) -> Tensor:
    """The argmin of ½σ²‖w − wᵒ‖² + bᵀw + c/2 ‖w‖²."""
    return (variance * target - b) / (variance + c)


def _array(
    name: str,
    values: Tensor | Sequence[float] | Sequence[Sequence[float]],
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> Tensor:
    array = as_array(name, values, dtype)
    if array.shape != shape:
        raise Misuse(f"{name} has shape {tuple(array.shape)}.", f"Give numbers of shape {shape}.")
    return array
