"""Membership scores that compare a model's confidence in a sample with that of shadow models.

A candidate's logit-scaled confidence at a model with logits z is

    φ = log(p_y/(1 − p_y)) = z_y − log Σ_{k≠y} exp(z_k).

**Likelihood ratio** (LiRA; Carlini et al. 2022, "Membership inference attacks from first
principles"). φ is nearly normal over shadow models. With μ, σ² fitted per candidate over the shadow
models trained with it and without it, the score of the paper's online attack is

    log N(φ; μ_in, σ_in²) − log N(φ; μ_out, σ_out²).

A variance per candidate needs many shadow models. With fewer than 32 on a side, all candidates
share the mean of their variances.

**RMIA** (Zarifzadeh, Liu & Shokri 2024, "Low-cost high-power membership inference attacks"): is the
model surer of a sample than of others, compared with shadow models? With p(x|θ) the probability of
the label of x, and p(x) its mean over models that were or were not trained on x,

    LR(x, z) = [p(x|θ)/p(x)] / [p(z|θ)/p(z)],   score(x) = share of z with LR(x, z) ≥ γ

over samples z of the population, on which no model was trained. The offline form takes only
shadow models that were not trained on x, and interpolates between their mean and certainty:

    p(x) = ½ ((1 + a) p_out(x) + 1 − a).

The attacker chooses a by attacking its own shadow models, whose members it knows.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tacit.auditing.attacks.membership_scores import candidates_per_pass
from tacit.auditing.scoring.roc import Roc
from tacit.core.devices import float32_products
from tacit.tasks.flat import ModuleLoss

MIN_SHADOWS = 32  # shadow models on each side for a variance per candidate
MIN_VARIANCE = 1e-12
GAMMA = 1.0
INTERPOLATIONS = tuple(k / 10 for k in range(11))
TARGETS = 4  # shadow models that are attacked to choose a


@float32_products()
def confidence(loss: ModuleLoss, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Logit-scaled confidence φ [S, n] of candidates at models [S, P]; [n] at one model [P]."""
    size = candidates_per_pass(theta, x)

    def at(model: Tensor) -> Tensor:
        batches = zip(torch.split(x, size), torch.split(y, size), strict=True)
        return torch.cat([_logit_confidence(loss.flat(model, a), b) for a, b in batches])

    with torch.no_grad():
        return at(theta) if theta.ndim == 1 else torch.stack([at(model) for model in theta])


def _logit_confidence(logits: Tensor, y: Tensor) -> Tensor:
    label = y[:, None]
    others = logits.scatter(1, label, -torch.inf).logsumexp(1)
    return logits.gather(1, label)[:, 0] - others


def likelihood_ratio_score(phi: Tensor, shadow_phi: Tensor, held: Tensor) -> Tensor:
    """The log-likelihood ratio [n] of each candidate.

    Args:
        phi: Confidence of the candidates at the attacked model, [n].
        shadow_phi: Their confidence at the shadow models, [S, n].
        held: Which candidates each shadow model was trained on, bool [S, n]; each candidate is in
            two of them at least, and not in two.
    """
    phi, shadow_phi = phi.double(), shadow_phi.double()
    return _log_density(phi, *_fit(shadow_phi, held)) - _log_density(phi, *_fit(shadow_phi, ~held))


def _log_density(value: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """The logarithm of the normal density, up to a constant."""
    return -0.5 * ((value - mean) ** 2 / variance + variance.log())


def _fit(phi: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance [n] of φ [S, n] over the chosen shadow models."""
    count = chosen.sum(0)
    mean = phi.where(chosen, 0.0).sum(0) / count
    each = (phi - mean).where(chosen, 0.0).square().sum(0) / (count - 1)
    if int(count.min()) < MIN_SHADOWS:
        each = each.mean().expand_as(each)
    return mean, each.clamp(min=MIN_VARIANCE)


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
        shadow_phi: Confidence of the candidates at shadow models, [S, n].
        shadow_population: That of the population, [S, m].
        held: Which candidates each shadow model was trained on, bool [S, n]; none is in all.
        a: Interpolation between certainty, 0, and the shadow models, 1.
        gamma: Ratio from which a candidate exceeds a sample of the population.
    """
    weight = (~held).double()
    out = (shadow_phi.double().sigmoid() * weight).sum(0) / weight.sum(0)
    ratios = _log_ratio(phi, out, a)
    others = _log_ratio(population, shadow_population.double().sigmoid().mean(0), a)
    threshold = torch.tensor(gamma, dtype=ratios.dtype).log()
    # For each candidate, the samples z with log ratio at most its own less log γ.
    below = torch.searchsorted(others.sort().values, ratios - threshold, right=True)
    return below.double() / len(others)


def choose_interpolation(shadow_phi: Tensor, shadow_population: Tensor, held: Tensor) -> float:
    """The a with the largest mean AUC on the attacker's own shadow models."""
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
    """Of φ: log p(x|θ)/p(x), with the mean of shadow models."""
    mean = 0.5 * ((1 + a) * out + 1 - a)
    return logsigmoid(phi.double()) - mean.clamp_min(1e-300).log()
