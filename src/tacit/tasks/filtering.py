"""Adaptive filtering: learning a filter from a stream of its noisy outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.core.randomness import key_of
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
    """Client k sees d = xᵀwₖᵒ + v with x ~ N(0, σ²ₓₖ I) and v ~ N(0, σ²ᵥₖ), and minimises ½ (d − xᵀw)².

    Dual-protection paper, section 5.1: wₖᵒ ~ N(0, I), one for all if `homogeneous`, and both variances uniform in
    (0, 1), drawn by `seed`, unless `targets` [N, width], `variances` [N] or `noise_variances` [N] are given. The
    samples are drawn by the seed of the run and never repeat. From batch `flip_at` on (iteration t takes batch t + 1),
    all wₖᵒ have the other sign. With `exact`, gradients are those of the expected loss. The optimum is
    w* = (Σ Rₖ)⁻¹ Σ Rₖ wₖᵒ with Rₖ = σ²ₓₖ I.

        task = tacit.adaptive_filtering(clients=5, flip_at=2000)
    """
    for name, value in (("clients", clients), ("width", width)):
        check_count(name, value)
    ids = torch.arange(clients)

    def key(what: str) -> int:
        return key_of(seed, "adaptive filtering", what)

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
        power=lambda e, variance: variance * e.square().sum(),
        shape=(powers,),
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
