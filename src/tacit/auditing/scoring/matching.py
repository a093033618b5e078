"""The assignment of guesses to samples: a batch has no order, so the scorer uses the best one.

    π = argmin over permutations of Σⱼ MSE(guess[π(j)], truth[j])

by the Hungarian method (Kuhn 1955). The attacker does not see π.
"""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from tacit.core.errors import Misuse


def pairwise_mse(guess: Tensor, truth: Tensor) -> Tensor:
    """MSE [V, b, b] of every guess (rows) and every true sample (columns), each [V, b, *shape]."""
    check_batches(guess, truth)
    rows, columns = (x.detach().double().flatten(2) for x in (guess, truth.to(guess.device)))
    # Not ‖g‖² + ‖t‖² − 2⟨g, t⟩, which is mostly rounding if a guess is nearly exact.
    distance = torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square() / rows.shape[2]


def match(guess: Tensor, truth: Tensor) -> Tensor:
    """π [V, b] for batches [V, b, *shape]: guess π[v, j] belongs to true sample j of victim v."""
    # True samples are the rows, so the assigned columns are π.
    cost = pairwise_mse(guess, truth).mT.cpu().numpy()
    order = [torch.from_numpy(linear_sum_assignment(victim)[1]) for victim in cost]
    return torch.stack(order).to(guess.device)


def reorder(values: Tensor, order: Tensor) -> Tensor:
    """The values [V, b, ...] of each victim in the order π [V, b]."""
    victims = torch.arange(len(order), device=order.device)[:, None]
    return values[victims, order]


def check_batches(guess: Tensor, truth: Tensor) -> None:
    """Require finite guesses and truths of one shape, one batch per victim."""
    if guess.shape != truth.shape or guess.ndim < 3 or 0 in guess.shape:
        raise Misuse(
            f"The guess has shape {tuple(guess.shape)}, the truth {tuple(truth.shape)}.",
            "Give both as [victims, batch, *shape], nothing empty.",
        )
    for name, x in (("guess", guess), ("truth", truth)):
        if bad := torch.nonzero(~x.isfinite().flatten(1).all(1)).flatten().tolist():
            raise Misuse(
                f"The {name} for victim {bad[0]} has NaN or infinite values.",
                "Give finite numbers: the best finite guess of the attack.",
            )
