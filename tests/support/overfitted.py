"""Candidates of membership inference, and a model that fits half of them perfectly."""

from functools import cache

import torch
from torch.func import grad
from torch.nn import functional

from tacit import models
from tacit.auditing.scoring.roc import Roc
from tacit.data.sources.images import read_mini
from tacit.tasks.flat import FlatModule, ModuleLoss

MEMBERS, STEPS = 200, 200  # members are the first of 400 candidates


@cache
def candidates():
    """A loss, inputs and labels of small digits."""
    raw = read_mini()
    x = functional.avg_pool2d(torch.from_numpy(raw.train.x).double() / 255, 2)
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[: 2 * MEMBERS]
    module = models.build("mlp", (1, 14, 14), 10, hidden=(32,)).double()
    loss = ModuleLoss(FlatModule(module), functional.cross_entropy)
    return loss, x[chosen], torch.from_numpy(raw.train.y)[chosen]


@cache
def fitted_to_members():
    """A model [P] that was trained on the members alone until it fits every one of them."""
    loss, x, y = candidates()
    theta, slope = loss.flat.random_weights(0), grad(loss)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        batch = torch.randint(MEMBERS, (32,), generator=generator)
        theta = theta - slope(theta, x[batch], y[batch])
    assert (loss.flat(theta, x[:MEMBERS]).argmax(1) == y[:MEMBERS]).all()
    return theta


def roc_of(scores):
    return Roc.from_scores(scores[:MEMBERS], scores[MEMBERS:])
