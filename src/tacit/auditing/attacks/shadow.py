"""Shadow models, and the likelihood ratio of a sample's confidence with and without it (LiRA).

Carlini et al. 2022, "Membership inference attacks from first principles". The attacker trains S models of its own,
each on a random half of the candidates. A candidate's logit-scaled confidence at a model with logits z is

    φ = log(p_y/(1 − p_y)) = z_y − log Σ_{k≠y} exp(z_k),

nearly normal over shadows. With μ, σ² fitted per candidate over the shadows trained with it and without it,

    online   log N(φ; μ_in, σ_in²) − log N(φ; μ_out, σ_out²)
    offline  (φ − μ_out)/σ_out, monotone in the paper's one-sided test, for shadows that never held the candidate

where φ is that of the attacked model. A variance per candidate takes many shadows; with fewer than 32 on a side it is
the mean over candidates of their variances.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.auditing.attacks.membership import WORKSPACE, candidates_per_pass, check_candidates
from tacit.core.arguments import is_count, is_number
from tacit.core.errors import Misuse
from tacit.core.precision import convolutions_like_products
from tacit.core.randomness import key_of
from tacit.tasks.flat import ModuleLoss

ENOUGH = 32  # shadows on each side for a variance of the candidate's own
FLOOR = 1e-12  # of a variance


@dataclass(frozen=True, eq=False)
class Shadows:
    """Trained shadow models [S, P], and which candidates each was trained on [S, n]."""

    theta: Tensor
    held: Tensor
    steps: int
    """Steps done; fewer than asked for where the time was up."""
    finished: bool

    def never_held(self, candidates: int) -> Shadows:
        """The same models for other candidates, none of which they were trained on: for the offline attack."""
        return replace(self, held=self.held.new_zeros(len(self.held), candidates))


@convolutions_like_products()
def train_shadows(
    loss: ModuleLoss,
    x: Tensor,
    y: Tensor,
    *,
    seed: int,
    models: int = 32,
    steps: int = 500,
    lr: float = 0.1,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    batch_size: int | None = 32,
    public: tuple[Tensor, Tensor] | None = None,
    start: Tensor | None = None,
    progress: Callable[[int, int], None] | None = None,
    budget_seconds: float | None = None,
) -> Shadows:
    """Train `models` shadows, all as one batch, each on a random half of x [n, ...], y [n] and all `public` data.

    Models 2k and 2k+1 take the two halves of one split, so each candidate is in exactly half of them. Steps, rate and
    batch should be those of the attacked training as far as the attacker knows them:

        v ← momentum·v + g + weight_decay·w,   w ← w − lr·v

    They start at `start` [P], or each at weights of its own. `progress(done, steps)` is called after each step; after
    `budget_seconds` training stops where it is, and says so in `finished`.
    """
    check_candidates(x, y)
    _check_sizes(len(x), models, steps, batch_size)
    _check_numbers(lr, momentum, weight_decay, budget_seconds)
    deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
    generator = torch.Generator().manual_seed(key_of(seed, "shadow data") >> 1)
    held, rows = _halves(len(x), models, generator)
    if public is not None:
        check_candidates(*public)
        x, y = torch.cat([x, public[0].to(x)]), torch.cat([y, public[1].to(y)])
        rows = torch.cat([rows, torch.arange(held.shape[1], len(x)).expand(models, -1)], dim=1)

    if start is None:
        theta = torch.stack([loss.flat.fresh_weights(seed, "shadow", s) for s in range(models)])
    elif start.shape == (loss.flat.width,):
        theta = start.detach().repeat(models, 1)
    else:
        raise Misuse(
            f"start has shape {tuple(start.shape)}.",
            f"Give one model [{loss.flat.width}], or None.",
        )
    theta = theta.to(x.device)
    batch = rows.shape[1] if batch_size is None else min(batch_size, rows.shape[1])
    together = max(1, WORKSPACE // (4 * theta.shape[1] + 64 * batch * x[0].numel()))
    gradients = vmap(grad(loss), chunk_size=together)
    velocity = torch.zeros_like(theta)
    done, place = 0, rows.shape[1]
    while done < steps:
        if place + batch > rows.shape[1]:  # a new epoch: each model in an order of its own
            rows, place = rows.gather(1, torch.rand(rows.shape, generator=generator).argsort(1)), 0
        pick = rows[:, place : place + batch].to(x.device)
        slope = gradients(theta, x[pick], y[pick]).add_(theta, alpha=weight_decay)
        theta.sub_(velocity.mul_(momentum).add_(slope), alpha=lr)
        place, done = place + batch, done + 1
        if progress is not None:
            progress(done, steps)
        if deadline is not None and time.monotonic() > deadline:
            break
    if not theta.isfinite().all():
        raise Misuse(
            f"Shadow models diverged with lr = {lr} and momentum = {momentum}.", "Lower the rate."
        )
    return Shadows(theta, held.to(x.device), done, done == steps)


@convolutions_like_products()
def confidence(
    loss: ModuleLoss, theta: Tensor, x: Tensor, y: Tensor, *, chunk: int | None = None
) -> Tensor:
    """φ [S, n] of candidates x [n, ...], classes y [n] at models θ [S, P]; [n] at one θ [P]."""
    check_candidates(x, y)
    size = candidates_per_pass(theta, x, chunk)

    def at(one: Tensor) -> Tensor:
        pieces = (slice(low, low + size) for low in range(0, len(x), size))
        return torch.cat(
            [_logit_confidence(loss.flat(one, x[piece]), y[piece]) for piece in pieces]
        )

    with torch.no_grad():
        return at(theta) if theta.ndim == 1 else torch.stack([at(one) for one in theta])


def likelihood_ratio_score(
    loss: ModuleLoss,
    theta: Tensor,
    shadows: Shadows,
    x: Tensor,
    y: Tensor,
    *,
    variant: Literal["online", "offline"] = "online",
    variance: Literal["auto", "each", "shared"] = "auto",
    chunk: int | None = None,
) -> Tensor:
    """The log-likelihood ratio [n] of candidates x [n, ...], y [n], those of the shadows, at θ [P].

    `variance` is per candidate ("each"), their mean ("shared"), or the former from 32 shadows on each side on ("auto").
    """
    if variant not in ("online", "offline") or variance not in ("auto", "each", "shared"):
        raise Misuse(
            f"variant is {variant!r} and variance {variance!r}.",
            "Choose online or offline, and auto, each or shared.",
        )
    if theta.ndim != 1 or shadows.held.shape[1] != len(x):
        raise Misuse(
            f"theta has shape {tuple(theta.shape)}, and the shadows know {shadows.held.shape[1]:,} candidates "
            f"where {len(x):,} are given.",
            "Give one model [P] and the candidates of train_shadows; for others, shadows.never_held(len(x)).",
        )
    phi = confidence(loss, theta, x, y, chunk=chunk).double()
    shadow_phi = confidence(loss, shadows.theta, x, y, chunk=chunk).double()
    without = _fit("without", shadow_phi, ~shadows.held, variance)
    if variant == "offline":
        return (phi - without.mean) / without.variance.sqrt()
    return _fit("with", shadow_phi, shadows.held, variance).log_density(phi) - without.log_density(
        phi
    )


@dataclass(frozen=True, eq=False)
class _Normal:
    mean: Tensor
    variance: Tensor

    def log_density(self, value: Tensor) -> Tensor:
        """The log of N(value; mean, variance), but for a constant."""
        return -0.5 * ((value - self.mean) ** 2 / self.variance + self.variance.log())


def _fit(side: str, phi: Tensor, chosen: Tensor, variance: str) -> _Normal:
    """Mean and unbiased variance [n] over the chosen shadows of φ [S, n]."""
    count = chosen.sum(0)
    if int(count.min()) < 2:
        raise Misuse(
            f"Candidate {int(count.argmin())} has {int(count.min())} shadow models {side} it; a fit takes 2.",
            'Train at least 4 models; for models that never held the candidates use variant = "offline".',
        )
    mean = phi.where(chosen, 0.0).sum(0) / count
    own = (phi - mean).where(chosen, 0.0).square().sum(0) / (count - 1)
    shared = variance == "shared" or (variance == "auto" and int(count.min()) < ENOUGH)
    return _Normal(mean, (own.mean().expand_as(own) if shared else own).clamp(min=FLOOR))


def _logit_confidence(logits: Tensor, y: Tensor) -> Tensor:
    if logits.ndim != 2 or logits.shape[1] < 2 or y.ndim != 1 or y.is_floating_point():
        raise Misuse(
            f"The model gives outputs {tuple(logits.shape)} for targets {tuple(y.shape)} of {y.dtype}.",
            "The likelihood ratio needs class logits [n, K], K ≥ 2, and class numbers [n]; else take loss_score.",
        )
    own = y[:, None]
    others = logits.scatter(1, own, -torch.inf).logsumexp(1)
    return logits.gather(1, own)[:, 0] - others


def _halves(count: int, models: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Who holds what [S, n], and the same as rows of numbers [S, ⌈n/2⌉]; of an odd count one half repeats a sample."""
    size = -(-count // 2)
    order = torch.rand(models // 2, count, generator=generator).argsort(1)
    first, second = order[:, :size], order[:, size:]
    if count % 2:
        second = torch.cat([second, second[:, :1]], dim=1)
    rows = torch.stack([first, second], dim=1).flatten(0, 1)
    return torch.zeros(models, count, dtype=torch.bool).scatter_(1, rows, True), rows


def _check_sizes(count: int, models: int, steps: int, batch_size: int | None) -> None:
    if not is_count(models, 2) or models % 2 or count < 4:
        raise Misuse(
            f"models is {models!r} for {count} candidates.",
            "Give an even number, at least 4 and better 64, and at least 4 candidates: models come in pairs.",
        )
    if not is_count(steps) or not (batch_size is None or is_count(batch_size)):
        raise Misuse(
            f"steps is {steps!r} and batch_size {batch_size!r}.",
            "Give a number of steps, and a batch size or None for whole halves.",
        )


def _check_numbers(
    lr: float, momentum: float, weight_decay: float, budget_seconds: float | None
) -> None:
    if not (is_number(lr) and lr > 0 and is_number(momentum) and 0 <= momentum < 1):
        raise Misuse(
            f"lr is {lr!r} and momentum {momentum!r}.",
            "Give a positive rate and momentum in [0, 1).",
        )
    if not (is_number(weight_decay) and weight_decay >= 0):
        raise Misuse(f"weight_decay is {weight_decay!r}.", "Give zero or a positive number.")
    if budget_seconds is not None and not (is_number(budget_seconds) and budget_seconds > 0):
        raise Misuse(
            f"budget_seconds is {budget_seconds!r}.", "Give a positive number of seconds, or None."
        )
