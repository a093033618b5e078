"""The likelihood ratio of a sample's confidence with and without it (LiRA).

Carlini et al. 2022, "Membership inference attacks from first principles". A candidate's
logit-scaled confidence at a model with logits z is

    φ = log(p_y/(1 − p_y)) = z_y − log Σ_{k≠y} exp(z_k),

nearly normal over shadow models. With μ, σ² fitted per candidate over the shadow models trained
with it and without it, and φ of the attacked model, the score of the paper's online attack is

    log N(φ; μ_in, σ_in²) − log N(φ; μ_out, σ_out²).

A variance per candidate needs many shadow models. With fewer than 32 on a side, all candidates
share the mean of their variances. If several models are attacked together, φ is the mean over them,
of shadow models as well.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.auditing.attacks.membership_scores import candidates_per_pass, check_candidates
from tacit.core.devices import float32_products
from tacit.core.errors import Misuse
from tacit.tasks.flat import ModuleLoss

MIN_SHADOWS = 32  # shadow models on each side for a variance per candidate
MIN_VARIANCE = 1e-12


@float32_products()
def confidence(loss: ModuleLoss, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Logit-scaled confidence φ [S, n] of candidates at models [S, P]; [n] at one model [P]."""
    check_candidates(x, y)
    size = candidates_per_pass(theta, x)

    def at(one: Tensor) -> Tensor:
        batches = zip(torch.split(x, size), torch.split(y, size), strict=True)
        return torch.cat([_logit_confidence(loss.flat(one, a), b) for a, b in batches])

    with torch.no_grad():
        return at(theta) if theta.ndim == 1 else torch.stack([at(one) for one in theta])


def likelihood_ratio_score(phi: Tensor, shadow_phi: Tensor, held: Tensor) -> Tensor:
    """The log-likelihood ratio [n] of each candidate.

    Args:
        phi: Confidence of the candidates at the attacked model, [n].
        shadow_phi: Their confidence at the shadow models, [S, n].
        held: Which candidates each shadow model was trained on, bool [S, n].
    """
    if phi.ndim != 1 or not shadow_phi.shape == held.shape == (len(held), len(phi)):
        raise Misuse(
            f"The confidences have shape {tuple(phi.shape)}, those of the shadow models "
            f"{tuple(shadow_phi.shape)}, and what they hold {tuple(held.shape)}.",
            "Give [n], [S, n] and [S, n], of the same candidates.",
        )
    phi, shadow_phi = phi.double(), shadow_phi.double()
    without = _fit("without", shadow_phi, ~held)
    inside = _fit("with", shadow_phi, held)
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
