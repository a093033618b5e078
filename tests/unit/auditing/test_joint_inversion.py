"""Inversion of several values that are known together: changes of gradients and their sum."""

import torch
from torch import nn
from torch.func import grad
from torch.nn import functional

from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.gradient_matching import L2
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.observation import Observation
from tacit.tasks.flat import FlatModule, ModuleLoss

SHAPE, CLASSES, VICTIMS, CLIENTS, BATCH = (1, 3, 3), 3, 2, 2, 2
NETWORK = nn.Sequential(
    nn.Flatten(), nn.Linear(9, 16), nn.Sigmoid(), nn.Linear(16, CLASSES)
).double()
LOSS = ModuleLoss(FlatModule(NETWORK), functional.cross_entropy)


def weights(name):
    """[V, K, P], another for each client."""
    drawn = [LOSS.flat.random_weights(name, place) for place in range(VICTIMS * CLIENTS)]
    return 2 * torch.stack(drawn).view(VICTIMS, CLIENTS, -1)


def truth():
    draw = torch.Generator().manual_seed(5)
    x = torch.rand(VICTIMS, CLIENTS, BATCH, *SHAPE, generator=draw, dtype=torch.float64)
    return x, torch.randint(CLASSES, x.shape[:3], generator=draw)


def gradients(theta, x, y):
    """One by one: [V, K, P]."""
    rows = [
        torch.stack([grad(LOSS)(*each) for each in zip(*row, strict=True)])
        for row in zip(theta, x, y, strict=True)
    ]
    return torch.stack(rows)


def seen():
    later, earlier, (x, y) = weights("later"), weights("earlier"), truth()
    before = gradients(earlier, x, y)
    values = torch.cat((gradients(later, x, y) - before, before.sum(1, keepdim=True)), 1)
    rows = before.new_tensor([[1, 0, -1, 0], [0, 1, 0, -1], [0, 0, 1, 1]])
    return Observation(torch.cat((later, earlier), 1), rows, values, (0, 1, 0, 1))


SPEC = DataSpec(SHAPE, BATCH, CLASSES)


def test_the_truth_matches_and_is_found():
    x, y = truth()
    search = {"matching_loss": L2(relative=True), "optimiser": LBFGS(300)}
    found = invert(LOSS, seen(), SPEC, labels=y, restarts=2, **search)
    assert found.inputs.shape == x.shape
    assert "3 values known together, of 4 gradients of 2 batches" in found.assumptions
    either = (found.inputs, found.inputs.flip(2))  # two samples of one label may change places
    off = torch.stack([(one - x).square().flatten(2).mean(2) for one in either]).amin(0)
    assert float(off.max()) < 1e-4


def test_a_joint_observation_of_one_value():
    """A joint observation of one gradient is an observation of that gradient."""
    theta, (x, y) = weights("later")[:, :1], truth()
    value = gradients(theta, x[:, :1], y[:, :1])
    seen = Observation(theta, theta.new_ones(1, 1), value, (0,))
    joint = invert(LOSS, seen, SPEC, labels=y[:, 0], restarts=1)
    seen = Observation.gradient(theta[:, 0], value[:, 0])
    plain = invert(LOSS, seen, SPEC, labels=y[:, 0], restarts=1)
    torch.testing.assert_close(joint.inputs, plain.inputs, rtol=1e-3, atol=1e-4)


def test_labels_are_searched_where_they_are_not_given():
    found = invert(LOSS, seen(), SPEC, restarts=1, optimiser=LBFGS(2))
    assert found.labels.shape == (VICTIMS, CLIENTS, BATCH)
