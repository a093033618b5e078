"""Membership scores of candidate samples (x, y); a higher score means a likelier member.

    loss             −L(θ; x, y)                          (Yeom et al. 2018)
    gradient norm    −‖∇L(θ; x, y)‖
    gradient cosine  cos(∇L(θᵗ; x, y), gᵗ) with a gradient gᵗ of the victim at θᵗ, the mean over
                     its batch
    likelihood ratio, RMIA   see `confidence_scores`
    least squares            see `sample_weights`

A batch gradient of b samples is the mean of theirs. If samples' gradients are nearly orthogonal, as
in wide models, a member's cosine is about 1/√b and a non-member's about 0. In small models a
sample's class changes its cosine as well, so compare members with non-members of their own class.
An attacker knows θ, the candidates and the evidence. Only the scorer knows the members.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.core.devices import float32_products
from tacit.tasks.flat import Loss

WORKSPACE = 1 << 26  # numbers one pass may take, roughly
TINY = 1e-150  # norms below this count as zero


def loss_score(loss: Loss, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """−loss [n] of each candidate, x [n, ...] and y [n], at a model [P]."""
    with torch.no_grad():
        return _per_sample(lambda a, b: -loss(theta, a, b), theta, x, y)


def gradient_norm_score(loss: Loss, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """−‖∇L‖ [n] of each candidate, x [n, ...] and y [n], at a model [P]."""
    return _per_sample(lambda a, b: -grad(loss)(theta, a, b).double().norm(), theta, x, y)


def gradient_cosine_score(
    loss: Loss,
    theta: Tensor,
    observed: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    over: Literal["mean", "max"] = "mean",
) -> Tensor:
    """The cosine [n] of each candidate's gradient with observed gradients.

    A zero vector has cosine 0 with everything.

    Args:
        loss: The loss of a batch at a model.
        theta: Models at which the gradients were taken, [T, P], or one for all, [P].
        observed: Observed gradients, [T, P] or [P].
        x: Inputs of the candidates, [n, ...].
        y: Targets of the candidates, [n].
        over: Mean or maximum over the T observations.
    """
    seen = observed.detach().reshape(-1, observed.shape[-1])
    # In float64, because the squares of a fitted model's gradients vanish in float32.
    direction = seen.double() / seen.double().norm(dim=1, keepdim=True).clamp(min=TINY)
    models = theta.detach().expand_as(seen)

    def cosines(t: int) -> Tensor:
        def cosine(a: Tensor, b: Tensor) -> Tensor:
            gradient: Tensor = grad(loss)(models[t], a, b).double()
            alike: Tensor = gradient @ direction[t] / gradient.norm().clamp(min=TINY)
            return alike

        return _per_sample(cosine, models[t], x, y)

    each = map(cosines, range(len(seen)))
    if over == "max":
        return reduce(torch.maximum, each)
    return reduce(torch.add, each) / len(seen)


def candidates_per_pass(theta: Tensor, x: Tensor) -> int:
    """A number that bounds the memory of gradients and activations."""
    return max(1, WORKSPACE // (4 * theta.shape[-1] + 64 * x[0].numel()))


@float32_products()
def _per_sample(
    score: Callable[[Tensor, Tensor], Tensor], theta: Tensor, x: Tensor, y: Tensor
) -> Tensor:
    """`score` of each sample as a batch of one: [n]."""
    size = candidates_per_pass(theta, x)
    scores: Tensor = vmap(lambda a, b: score(a[None], b[None]), chunk_size=size)(x, y)
    return scores.detach()
