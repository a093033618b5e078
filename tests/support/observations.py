"""Observations of differences and of sums of gradients."""

import torch

from tacit.auditing.attacks.observation import Observation


def difference(later, earlier, values):
    """Of two gradients of one batch: models and values [V, P]."""
    return Observation.single(
        torch.stack((later, earlier), 1), later.new_tensor([1, -1]), values, True
    )


def total(weights, values):
    """Of the gradients of K clients: models [V, K, P], values [V, P]."""
    return Observation.single(weights, weights.new_ones(weights.shape[1]), values, False)
