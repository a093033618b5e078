import pytest
import torch
from torch import nn
from torch.func import grad
from torch.nn import functional

from support.overfitted import MEMBERS, candidates, fitted_to_members, roc_of
from tacit.auditing.attacks import membership_scores
from tacit.auditing.attacks.membership_scores import (
    gradient_cosine_score,
    gradient_norm_score,
    loss_score,
)
from tacit.auditing.scoring.roc import Roc
from tacit.tasks.flat import FlatModule, ModuleLoss


def small(dtype=torch.float64):
    """A small convolutional net and nine candidates for it."""
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(18, 3)).to(dtype)
    loss = ModuleLoss(FlatModule(module), functional.cross_entropy)
    x = torch.randn(9, 1, 5, 5, dtype=dtype, generator=generator)
    return loss, loss.flat.random_weights(1), x, torch.arange(9) % 3


def gradients(loss, theta, x, y):
    """One sample after the other, by plain autograd."""
    rows = []
    for k in range(len(x)):
        point = theta.clone().requires_grad_()
        rows.append(torch.autograd.grad(loss(point, x[k : k + 1], y[k : k + 1]), point)[0])
    return torch.stack(rows)


def cosines(rows, observed):
    return functional.cosine_similarity(rows, observed[None], dim=1)


@pytest.fixture
def digits():
    return candidates()


@pytest.fixture
def overfitted():
    return fitted_to_members()


@pytest.mark.parametrize("workspace", [membership_scores.WORKSPACE, 1, 8000])
def test_scores_are_those_of_one_sample_after_the_other(workspace, monkeypatch):
    monkeypatch.setattr(membership_scores, "WORKSPACE", workspace)  # all at once, one, four
    loss, theta, x, y = small()
    rows = gradients(loss, theta, x, y)
    losses = torch.stack([loss(theta, x[k : k + 1], y[k : k + 1]) for k in range(9)])
    assert torch.allclose(loss_score(loss, theta, x, y), -losses, rtol=1e-12)
    norms = rows.norm(dim=1)
    assert torch.allclose(gradient_norm_score(loss, theta, x, y), -norms, rtol=1e-12)
    observed = rows[:4].mean(0)
    found = gradient_cosine_score(loss, theta, observed, x, y)
    assert torch.allclose(found, cosines(rows, observed), rtol=1e-12)


@pytest.mark.parametrize("over", ["mean", "max"])
@pytest.mark.parametrize("one_model", [False, True])
def test_the_cosine_over_several_iterations(over, one_model):
    loss, _, x, y = small()
    theta = torch.stack([loss.flat.random_weights(t) for t in range(3)])
    observed = torch.stack(
        [gradients(loss, row, x[t : t + 3], y[t : t + 3]).mean(0) for t, row in enumerate(theta)]
    )
    at = theta[:1].expand(3, -1) if one_model else theta
    each = torch.stack([cosines(gradients(loss, at[t], x, y), observed[t]) for t in range(3)])
    expected = each.mean(0) if over == "mean" else each.amax(0)
    found = gradient_cosine_score(loss, theta[0] if one_model else theta, observed, x, y, over=over)
    assert torch.allclose(found, expected, rtol=1e-12)


def test_vanishing_and_zero_gradients():
    """In float32 the square of 1e-25 is zero; the cosine of such a gradient is still a cosine."""
    loss, theta, x, y = small(torch.float32)
    faint = ModuleLoss(
        loss.flat, lambda logits, target: 1e-25 * functional.cross_entropy(logits, target)
    )
    observed = gradients(loss, theta, x[:1], y[:1])[0]
    found = gradient_cosine_score(faint, theta, 1e-25 * observed, x, y)
    assert torch.allclose(found, gradient_cosine_score(loss, theta, observed, x, y), atol=1e-4)
    assert (gradient_norm_score(faint, theta, x, y) < 0).all()
    assert (gradient_cosine_score(loss, theta, torch.zeros_like(theta), x, y) == 0).all()
    flat = ModuleLoss(
        loss.flat, lambda logits, target: 0.0 * functional.cross_entropy(logits, target)
    )
    assert (gradient_cosine_score(flat, theta, observed, x, y) == 0).all()


@pytest.mark.parametrize("score", [loss_score, gradient_norm_score])
def test_an_overfitted_model_reveals_its_members(digits, overfitted, score):
    loss, x, y = digits
    roc = roc_of(score(loss, overfitted, x, y))
    assert roc.interval[0] > 0.5
    assert roc.auc > 0.6


@pytest.mark.parametrize("score", [loss_score, gradient_norm_score])
def test_an_untrained_model_reveals_nothing(digits, score):
    """For any half of the candidates as members, the interval holds ½ in about 19 of 20 cases."""
    loss, x, y = digits
    scores = score(loss, loss.flat.random_weights(0), x, y)
    assert len(scores.unique()) > MEMBERS  # they distinguish samples, but not members
    generator = torch.Generator().manual_seed(0)
    found = [
        roc_of(scores[torch.randperm(len(x), generator=generator)]).interval for _ in range(100)
    ]
    assert sum(low < 0.5 < high for low, high in found) >= 86  # fewer once in ten thousand


def test_a_batch_gradient_reveals_its_samples(digits):
    """Even for an untrained model, where loss and norm fail; more batches reveal more."""
    loss, x, y = digits
    theta = torch.stack([loss.flat.random_weights(0)] * 5)
    batches = torch.arange(MEMBERS).view(5, 40)
    observed = torch.stack([grad(loss)(theta[t], x[own], y[own]) for t, own in enumerate(batches)])
    alone = gradient_cosine_score(loss, theta[0], observed[0], x, y)
    roc = Roc.from_scores(alone[:40], alone[MEMBERS:])
    assert roc.interval[0] > 0.5
    assert roc.auc > 0.6
    best = roc_of(gradient_cosine_score(loss, theta, observed, x, y, over="max"))
    assert best.interval[0] > 0.5
