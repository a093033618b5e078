"""Shadow models trained by plain descent, each on half of the candidates.

The likelihood ratio (`likelihood_ratio`) and RMIA (`rmia`) compare the attacked model with them.
`shadow_federations` trains better ones: by the algorithm of the run. These are for runs that
cannot be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.auditing.attacks.membership_scores import WORKSPACE, check_candidates
from tacit.core.checks import check_count, check_positive, is_count
from tacit.core.devices import float32_products
from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key
from tacit.tasks.flat import ModuleLoss


@dataclass(frozen=True, eq=False)
class ShadowModels:
    """Trained shadow models, and which candidates each was trained on."""

    theta: Tensor  # [S, P]
    held: Tensor  # bool [S, n]
    steps: int  # done; fewer than requested if the budget ended training
    finished: bool


@float32_products()
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
    held, rows = random_halves(len(x), models, generator)
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


def random_halves(count: int, models: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
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
