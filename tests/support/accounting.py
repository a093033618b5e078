"""Second ways to compute guarantees, to compare those of the library with."""

import math

import numpy as np
from scipy import special

from tacit.privacy.accounting.laplace import sum_pair, sum_pure_epsilon
from tacit.privacy.accounting.loss_distribution import PrivacyLoss, grid_step, spread_atoms
from tacit.privacy.correlated_noise import precision


def sum_delta(epsilon, ratio, k):
    """δ(ε) of one release with k unknown Laplace(β) terms, with r = Δ/β."""
    pure = sum_pure_epsilon(ratio, k)
    if pure == math.inf:
        return 1.0
    return sum_pair(ratio, k).delta(epsilon) if epsilon < pure else 0.0


def response_loss(epsilon, step=None):
    """The privacy loss of one sign kept with probability e^ε/(1 + e^ε): +ε or −ε."""
    step = grid_step(epsilon / 64 if step is None else step)
    losses = epsilon * np.array([1.0, -1.0])
    first, at = spread_atoms(losses, special.expit([epsilon, -epsilon]), step)
    return PrivacyLoss(first, step, at, pure=epsilon)


def masked_mu(clip, edges, clients, sigma, sigma_cor):
    """μᵢ = 2C √[(σ²I + σ_cor² L)⁻¹]ᵢᵢ of one release with Gaussian masks and own noise.

    Exactly the divergence of two Gaussians whose means differ by 2C in the victim's message.
    """
    return 2 * clip * np.sqrt(np.diagonal(precision(edges, clients, sigma, sigma_cor)))
