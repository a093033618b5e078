"""Was this sample trained on? Scores of candidate samples (x, y), a higher one for a likelier member.

    loss             −L(θ; x, y)                            (Yeom et al. 2018)
    gradient norm    −‖∇L(θ; x, y)‖
    gradient cosine  cos(∇L(θᵗ; x, y), gᵗ) with evidence gᵗ: a gradient of the victim's at θᵗ, the mean of its batch's
    likelihood ratio see `shadow`

A batch gradient of b samples is the mean of theirs, so that where samples' gradients are nearly orthogonal, as in
wide models, a member's cosine is about 1/√b and a non-member's about 0. In small ones a sample's class moves its cosine
as well: members are best compared with non-members of their own class. An attacker knows θ, the candidates and what
it saw; who the members are is known to the scorer alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.core.arguments import is_count
from tacit.core.errors import Misuse
from tacit.core.precision import convolutions_like_products
from tacit.tasks.flat import Loss

WORKSPACE = 1 << 26  # numbers one pass may take, roughly
TINY = 1e-150  # as a norm: zero


def loss_score(
    loss: Loss, theta: Tensor, x: Tensor, y: Tensor, *, chunk: int | None = None
) -> Tensor:
    """−loss [n] of each candidate x [n, ...], y [n] at θ [P]; `chunk` candidates at a time."""
    check_candidates(x, y)
    _check_model(theta)
    with torch.no_grad():
        return _per_sample(lambda a, b: -loss(theta, a, b), theta, x, y, chunk)


def gradient_norm_score(
    loss: Loss, theta: Tensor, x: Tensor, y: Tensor, *, chunk: int | None = None
) -> Tensor:
    """−‖∇L‖ [n] of each candidate x [n, ...], y [n] at θ [P]."""
    check_candidates(x, y)
    _check_model(theta)
    return _per_sample(lambda a, b: -grad(loss)(theta, a, b).double().norm(), theta, x, y, chunk)


def gradient_cosine_score(
    loss: Loss,
    theta: Tensor,
    observed: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    before: Tensor | None = None,
    over: Literal["mean", "max"] = "mean",
    chunk: int | None = None,
) -> Tensor:
    """The cosine [n] of each candidate's gradient with evidence, mean or max over its iterations.

    `observed` is [P] or [T, P], and `theta`, the model each was taken at, of the same shape or [P] for all. With
    `before`, likewise, the evidence are differences of gradients and so are the candidates':
    ∇L(θᵗ; x, y) − ∇L(before[t]; x, y). A zero vector has cosine 0 with everything.
    """
    check_candidates(x, y)
    if over not in ("mean", "max"):
        raise Misuse(f"over is {over!r}.", "Choose one of: mean, max.")
    seen = observed.detach().reshape(-1, observed.shape[-1])
    if not (observed.ndim <= 2 and len(seen) and seen.isfinite().all()):
        raise Misuse(
            f"The observed gradient has shape {tuple(observed.shape)}, or values that are not finite.",
            "Give one as [P] or T of them as [T, P].",
        )
    # In float64, where the squares of a fitted model's gradients do not vanish.
    direction = seen.double() / seen.double().norm(dim=1, keepdim=True).clamp(min=TINY)
    at = _models("theta", theta, seen)
    earlier = None if before is None else _models("before", before, seen)

    def cosines(t: int) -> Tensor:
        def cosine(a: Tensor, b: Tensor) -> Tensor:
            own: Tensor = grad(loss)(at[t], a, b)
            if earlier is not None:
                own = own - grad(loss)(earlier[t], a, b)
            own = own.double()
            alike: Tensor = own @ direction[t] / own.norm().clamp(min=TINY)
            return alike

        return _per_sample(cosine, at[t], x, y, chunk)

    total = cosines(0)
    for t in range(1, len(seen)):
        total = torch.maximum(total, cosines(t)) if over == "max" else total + cosines(t)
    return total if over == "max" else total / len(seen)


def check_candidates(x: Tensor, y: Tensor) -> None:
    """Refuse candidates that are not n samples with n targets."""
    if x.ndim < 1 or y.ndim < 1 or len(x) != len(y) or len(x) == 0:
        raise Misuse(
            f"The candidates have inputs {tuple(x.shape)} and targets {tuple(y.shape)}.",
            "Give x [n, ...] and y [n], one target per sample and at least one sample.",
        )


def candidates_per_pass(theta: Tensor, x: Tensor, chunk: int | None) -> int:
    """How many candidates to take at a time: as told, or so that gradients and activations stay bounded."""
    if chunk is None:
        return max(1, WORKSPACE // (4 * theta.shape[-1] + 64 * x[0].numel()))
    if not is_count(chunk):
        raise Misuse(
            f"chunk is {chunk!r}.", "Give the number of samples to take at a time, or None."
        )
    return chunk


@convolutions_like_products()
def _per_sample(
    score: Callable[[Tensor, Tensor], Tensor],
    theta: Tensor,
    x: Tensor,
    y: Tensor,
    chunk: int | None,
) -> Tensor:
    """`score` of each sample as a batch of one: [n]."""
    each = vmap(
        lambda a, b: score(a[None], b[None]), chunk_size=candidates_per_pass(theta, x, chunk)
    )
    scores: Tensor = each(x, y)
    return scores.detach()


def _check_model(theta: Tensor) -> None:
    if theta.ndim != 1:
        raise Misuse(f"theta has shape {tuple(theta.shape)}.", "Give one model [P].")


def _models(name: str, given: Tensor, seen: Tensor) -> Tensor:
    if given.shape not in (seen.shape, seen.shape[1:]):
        raise Misuse(
            f"{name} has shape {tuple(given.shape)} for {len(seen)} observed gradients of {seen.shape[1]} numbers.",
            "Give the model each gradient was taken at, [T, P], or one for all, [P].",
        )
    return given.detach().expand_as(seen)
