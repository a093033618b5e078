"""Which guess is meant for which sample: a batch has no order, so the scorer finds the kindest one.

    π = argmin over permutations of Σⱼ MSE(guess[π(j)], truth[j])

by the Hungarian assignment (Kuhn 1955; here scipy's). The attacker never sees π.
"""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from tacit.core.errors import Misuse


def pairwise_mse(guess: Tensor, truth: Tensor) -> Tensor:
    """MSE [V, b, b] of every guess (rows) against every true sample (columns), for samples [V, b, *shape]."""
    check_batches(guess, truth)
    rows, columns = (x.detach().double().flatten(2) for x in (guess, truth.to(guess.device)))
    # Not by ‖g‖² + ‖t‖² − 2⟨g, t⟩, which is rounding where a guess is nearly exact.
    distance = torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square() / rows.shape[2]


def match(guess: Tensor, truth: Tensor) -> Tensor:
    """π [V, b] for batches [V, b, *shape]: guess π[v, j] belongs to true sample j of victim v."""
    cost = (
        pairwise_mse(guess, truth).mT.cpu().numpy()
    )  # true samples are the rows: the columns found are π
    order = [torch.from_numpy(linear_sum_assignment(victim)[1]) for victim in cost]
    return torch.stack(order).to(guess.device)


def rearranged(values: Tensor, order: Tensor) -> Tensor:
    """The values [V, b, ...] of each victim in the order π [V, b]."""
    victims = torch.arange(len(order), device=order.device)[:, None]
    return values[victims, order]


def check_batches(guess: Tensor, truth: Tensor) -> None:
    """Refuse guesses that are not one batch per victim of the truth's shape, or not numbers."""
    if guess.shape != truth.shape or guess.ndim < 3 or 0 in guess.shape:
        raise Misuse(
            f"The guess has shape {tuple(guess.shape)}, the truth {tuple(truth.shape)}.",
            "Give both as [victims, batch, *shape], nothing empty.",
        )
    for name, x in (("guess", guess), ("truth", truth)):
        if bad := torch.nonzero(~x.isfinite().flatten(1).all(1)).flatten().tolist():
            raise Misuse(
                f"The {name} for victim {bad[0]} has NaN or infinite values.",
                "Let the attack hand over its best finite candidate.",
            )
