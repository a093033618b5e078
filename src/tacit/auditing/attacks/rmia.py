"""RMIA: is the attacked model surer of a sample than of others, compared with reference models?

Zarifzadeh, Liu & Shokri 2024, "Low-cost high-power membership inference attacks". With p(x|θ) the
probability of the label of x, and p(x) its mean over models that were or were not trained on x,

    LR(x, z) = [p(x|θ)/p(x)] / [p(z|θ)/p(z)],   score(x) = share of z with LR(x, z) ≥ γ

over samples z of the population, on which no model was trained. The offline form takes only
reference models that were not trained on x, and interpolates between their mean and certainty:

    p(x) = ½ ((1 + a) p_out(x) + 1 − a).

The attacker chooses a by attacking its own reference models, whose members it knows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.auditing.scoring.roc import Roc
from tacit.core.errors import Misuse

GAMMA = 1.0
INTERPOLATIONS = tuple(k / 10 for k in range(11))
TARGETS = 4  # reference models that are attacked to choose a


def rmia_score(
    phi: Tensor,
    population: Tensor,
    shadow_phi: Tensor,
    shadow_population: Tensor,
    held: Tensor,
    *,
    a: float,
    gamma: float = GAMMA,
) -> Tensor:
    """The share [n] of the population that each candidate exceeds.

    Args:
        phi: Logit-scaled confidence of the candidates at the attacked model, [n].
        population: That of samples of the population, [m].
        shadow_phi: Confidence of the candidates at reference models, [S, n].
        shadow_population: That of the population, [S, m].
        held: Which candidates each reference model was trained on, bool [S, n].
        a: Interpolation between certainty, 0, and the reference models, 1.
        gamma: Ratio from which a candidate exceeds a sample of the population.
    """
    if not 0 <= a <= 1 or bool(held.all(0).any()):
        raise Misuse(
            f"a is {a!r}, or a candidate has no reference model without it.",
            "Give a from 0 to 1, and reference models on halves of the candidates.",
        )
    weight = (~held).double()
    out = (shadow_phi.double().sigmoid() * weight).sum(0) / weight.sum(0)
    own = _log_ratio(phi, out, a)
    others = _log_ratio(population, shadow_population.double().sigmoid().mean(0), a)
    threshold = torch.tensor(gamma, dtype=own.dtype).log()
    # For each candidate, the samples z with log ratio at most its own less log γ.
    below = torch.searchsorted(others.sort().values, own - threshold, right=True)
    return below.double() / len(others)


def choose_interpolation(shadow_phi: Tensor, shadow_population: Tensor, held: Tensor) -> float:
    """The a with the largest mean AUC on the attacker's own reference models."""
    every = torch.arange(len(held), device=held.device)

    def area(a: float, target: int) -> float:
        others = every != target
        scores = rmia_score(
            shadow_phi[target],
            shadow_population[target],
            shadow_phi[others],
            shadow_population[others],
            held[others],
            a=a,
        )
        inside = held[target]
        return Roc.from_scores(scores[inside].cpu(), scores[~inside].cpu()).auc

    targets = range(min(TARGETS, len(held)))
    return max(INTERPOLATIONS, key=lambda a: sum(area(a, target) for target in targets))


def _log_ratio(phi: Tensor, out: Tensor, a: float) -> Tensor:
    """Of φ: log p(x|θ)/p(x), with the mean of reference models."""
    mean = 0.5 * ((1 + a) * out + 1 - a)
    return torch.nn.functional.logsigmoid(phi.double()) - mean.clamp_min(1e-300).log()
