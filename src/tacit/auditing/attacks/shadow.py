"""Shadow models, and the likelihood ratio of a sample's confidence with and without it (LiRA).

Carlini et al. 2022, "Membership inference attacks from first principles". The attacker trains S
models, each on a random half of the candidates. A candidate's logit-scaled confidence at a model
with logits z is

    φ = log(p_y/(1 − p_y)) = z_y − log Σ_{k≠y} exp(z_k),

nearly normal over shadow models. With μ, σ² fitted per candidate over the shadow models trained
with it and without it, and φ of the attacked model, the score of the paper's online attack is

    log N(φ; μ_in, σ_in²) − log N(φ; μ_out, σ_out²).

A variance per candidate needs many shadow models. With fewer than 32 on a side, all candidates
share the mean of their variances.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.auditing.attacks.membership_scores import (
    WORKSPACE,
    candidates_per_pass,
    check_candidates,
)
from tacit.core.checks import check_count, check_positive, is_count
from tacit.core.devices import consistent_tf32
from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key
from tacit.tasks.flat import ModuleLoss

MIN_SHADOWS = 32  # shadow models on each side for a variance per candidate
MIN_VARIANCE = 1e-12


@dataclass(frozen=True, eq=False)
class ShadowModels:
    """Trained shadow models, and which candidates each was trained on."""

    theta: Tensor  # [S, P]
    held: Tensor  # bool [S, n]
    steps: int  # done; fewer than requested if the budget ended training
    finished: bool


@consistent_tf32()
def train_shadow_models(
    loss: ModuleLoss,
    x: Tensor,
    y: Tensor,
    *,
    seed: int,
    models: int = 32,
    steps: int = 500,
    lr: float = 0.1,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
    budget_seconds: float | None = None,
) -> ShadowModels:
    """Train shadow models by plain descent, all as one batch, each on half of the candidates.

    Models 2k and 2k+1 take the two halves of one random split, so each candidate is in exactly
    half of them. Steps, rate and batch should be those of the attacked training as far as the
    attacker knows them.

    Args:
        loss: The loss of the attacked model.
        x: Inputs of the candidates, [n, ...].
        y: Targets of the candidates, [n].
        seed: Draws halves, batches and first weights.
        models: Number of shadow models S; even.
        steps: Steps of training.
        lr: Step size.
        batch_size: Samples per step.
        progress: Called with the steps done and the steps in all.
        budget_seconds: Time after which training stops; see `finished`.
    """
    check_candidates(x, y)
    if not is_count(models, 2) or models % 2 or len(x) < 4:
        raise Misuse(
            f"models is {models!r} for {len(x)} candidates.",
            "Give an even number, at least 4 and better 64, and at least 4 candidates: models come "
            "in pairs.",
        )
    check_count("steps", steps)
    check_count("batch_size", batch_size)
    check_positive("lr", lr)
    if budget_seconds is not None:
        check_positive("budget_seconds", budget_seconds)
    deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
    generator = torch.Generator().manual_seed(derive_key(seed, "shadow data") >> 1)
    held, rows = _halves(len(x), models, generator)
    theta = torch.stack([loss.flat.random_weights(seed, "shadow", s) for s in range(models)])
    theta = theta.to(x.device)
    batch = min(batch_size, rows.shape[1])
    chunk = max(1, WORKSPACE // (4 * theta.shape[1] + 64 * batch * x[0].numel()))
    gradients = vmap(grad(loss), chunk_size=chunk)
    done, first = 0, rows.shape[1]
    while done < steps:
        if first + batch > rows.shape[1]:
            # A new epoch, in a different order for each model.
            rows, first = rows.gather(1, torch.rand(rows.shape, generator=generator).argsort(1)), 0
        pick = rows[:, first : first + batch].to(x.device)
        theta.sub_(gradients(theta, x[pick], y[pick]), alpha=lr)
        first, done = first + batch, done + 1
        if progress is not None:
            progress(done, steps)
        if deadline is not None and time.monotonic() > deadline:
            break
    if not theta.isfinite().all():
        raise Misuse(f"Shadow models diverged with lr = {lr}.", "Lower the rate.")
    return ShadowModels(theta, held.to(x.device), done, done == steps)


@consistent_tf32()
def confidence(loss: ModuleLoss, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Logit-scaled confidence φ [S, n] of candidates at models [S, P]; [n] at one model [P]."""
    check_candidates(x, y)
    size = candidates_per_pass(theta, x)

    def at(one: Tensor) -> Tensor:
        batches = zip(torch.split(x, size), torch.split(y, size), strict=True)
        return torch.cat([_logit_confidence(loss.flat(one, a), b) for a, b in batches])

    with torch.no_grad():
        return at(theta) if theta.ndim == 1 else torch.stack([at(one) for one in theta])


def likelihood_ratio_score(
    loss: ModuleLoss, theta: Tensor, shadows: ShadowModels, x: Tensor, y: Tensor
) -> Tensor:
    """The log-likelihood ratio [n] of each candidate.

    Args:
        loss: The loss of the attacked model.
        theta: The attacked model [P].
        shadows: Shadow models that were trained for these candidates.
        x: Inputs of the candidates, [n, ...].
        y: Classes of the candidates, [n].
    """
    if theta.ndim != 1 or shadows.held.shape[1] != len(x):
        raise Misuse(
            f"theta has shape {tuple(theta.shape)}, and the shadow models have "
            f"{shadows.held.shape[1]:,} candidates where {len(x):,} are given.",
            "Give one model [P] and the candidates of train_shadow_models.",
        )
    phi = confidence(loss, theta, x, y).double()
    shadow_phi = confidence(loss, shadows.theta, x, y).double()
    without = _fit("without", shadow_phi, ~shadows.held)
    inside = _fit("with", shadow_phi, shadows.held)
    return _log_density(phi, *inside) - _log_density(phi, *without)


def _log_density(value: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """The logarithm of the normal density, up to a constant."""
    return -0.5 * ((value - mean) ** 2 / variance + variance.log())


def _fit(side: str, phi: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance [n] of φ [S, n] over the chosen shadow models."""
    count = chosen.sum(0)
    least = int(count.min())
    if least < 2:
        raise Misuse(
            f"Candidate {int(count.argmin())} has {least} shadow models {side} it; a fit needs 2.",
            "Train at least 4 models.",
        )
    mean = phi.where(chosen, 0.0).sum(0) / count
    own = (phi - mean).where(chosen, 0.0).square().sum(0) / (count - 1)
    shared = own.mean().expand_as(own)
    return mean, (shared if least < MIN_SHADOWS else own).clamp(min=MIN_VARIANCE)


def _logit_confidence(logits: Tensor, y: Tensor) -> Tensor:
    if logits.ndim != 2 or logits.shape[1] < 2 or y.ndim != 1 or y.is_floating_point():
        raise Misuse(
            f"The model gives outputs {tuple(logits.shape)} for targets {tuple(y.shape)} of "
            f"{y.dtype}.",
            "The likelihood ratio needs class logits [n, K], K ≥ 2, and class numbers [n]; for "
            "other models use loss_score.",
        )
    own = y[:, None]
    others = logits.scatter(1, own, -torch.inf).logsumexp(1)
    return logits.gather(1, own)[:, 0] - others


def _halves(count: int, models: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Which candidates each model holds, as a mask [S, n] and as indices [S, ⌈n/2⌉].

    If the count is odd, every second row repeats an index.
    """
    size = -(-count // 2)
    order = torch.rand(models // 2, count, generator=generator).argsort(1)
    first, second = order[:, :size], order[:, size:]
    if count % 2:
        second = torch.cat([second, second[:, :1]], dim=1)
    rows = torch.stack([first, second], dim=1).flatten(0, 1)
    return torch.zeros(models, count, dtype=torch.bool).scatter_(1, rows, True), rows
