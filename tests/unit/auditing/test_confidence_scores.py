"""The likelihood ratio and RMIA by their definitions, and on models that overfit."""

import pytest
import torch
from scipy.stats import norm
from torch import nn
from torch.nn import functional

from support.overfitted import STEPS, candidates, fitted_to_members, roc_of
from tacit.auditing.attacks import membership_scores
from tacit.auditing.attacks.confidence_scores import (
    choose_interpolation,
    confidence,
    likelihood_ratio_score,
    rmia_score,
)
from tacit.auditing.attacks.membership_scores import loss_score
from tacit.auditing.attacks.shadow_models import train_plain_models
from tacit.tasks.flat import FlatModule, ModuleLoss

DRAW = torch.Generator().manual_seed(0)
COUNT, SAMPLES, MODELS = 12, 30, 6
PHI, Z = torch.randn(COUNT, generator=DRAW), torch.randn(SAMPLES, generator=DRAW)
SHADOW_PHI = torch.randn(MODELS, COUNT, generator=DRAW)
SHADOW_Z = torch.randn(MODELS, SAMPLES, generator=DRAW)
HELD = torch.rand(MODELS, COUNT, generator=DRAW) < 0.5
HELD[0], HELD[1] = True, False


@pytest.fixture(scope="module")
def digits():
    return candidates()


@pytest.fixture(scope="module")
def shadows(digits):
    """φ of the candidates at shadow models, and what these hold."""
    loss, x, y = digits
    theta, held, _ = train_plain_models(loss, x, y, seed=5, models=8, steps=STEPS, lr=1.0)
    return confidence(loss, theta, x, y), held


@pytest.mark.parametrize("workspace", [membership_scores.WORKSPACE, 1500])
def test_confidence_is_the_logit_of_the_probability(workspace, monkeypatch):
    monkeypatch.setattr(membership_scores, "WORKSPACE", workspace)  # all at once, or three
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    loss = ModuleLoss(FlatModule(module), functional.cross_entropy)
    x = torch.randn(10, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(10) % 3
    theta = torch.stack([loss.flat.random_weights(s) for s in range(3)])
    found = confidence(loss, theta, x, y)
    for s in range(3):
        p = loss.flat(theta[s], x).softmax(1)[torch.arange(10), y]
        assert torch.allclose(found[s], torch.log(p / (1 - p)), rtol=1e-9)
        assert torch.equal(found[s], confidence(loss, theta[s], x, y))


def test_confidence_does_not_saturate():
    y = torch.arange(6) % 3
    sharp = ModuleLoss(FlatModule(nn.Linear(3, 3, bias=False).double()), functional.cross_entropy)
    logits = 1e4 * functional.one_hot(y, 3).double()
    found = confidence(sharp, torch.eye(3, dtype=torch.float64).flatten(), logits, y)
    assert torch.allclose(
        found, torch.full((6,), 1e4, dtype=torch.float64) - torch.log(torch.tensor(2.0))
    )


@pytest.mark.parametrize("count", [8, 64])
def test_the_likelihood_ratio_by_the_definition(count):
    draw = torch.Generator().manual_seed(2)
    others = torch.randn(count, COUNT, generator=draw, dtype=torch.float64)
    held = (torch.arange(count)[:, None] + torch.arange(COUNT)) % 2 == 0
    sides = [[others[chosen[:, j], j] for j in range(COUNT)] for chosen in (held, ~held)]
    each = [[float(values.var()) for values in side] for side in sides]
    if count == 8:  # too few for a variance per candidate
        each = [[sum(side) / COUNT] * COUNT for side in each]
    means = [[float(values.mean()) for values in side] for side in sides]
    expected = []
    for j in range(COUNT):
        density = [norm.logpdf(float(PHI[j]), means[k][j], each[k][j] ** 0.5) for k in range(2)]
        expected.append(density[0] - density[1])
    found = likelihood_ratio_score(PHI, others, held)
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-8, atol=1e-10)


def test_the_likelihood_ratio_beats_the_loss_on_an_overfitted_model(digits, shadows):
    loss, x, y = digits
    overfitted = fitted_to_members()
    by_loss = roc_of(loss_score(loss, overfitted, x, y))
    assert by_loss.interval[0] > 0.5
    ratios = likelihood_ratio_score(confidence(loss, overfitted, x, y), *shadows)
    assert roc_of(ratios).interval[0] > by_loss.auc


def test_the_likelihood_ratio_of_an_untrained_model_reveals_nothing(digits, shadows):
    """For this split; test_roc covers that the interval fails for one in twenty splits."""
    loss, x, y = digits
    phi = confidence(loss, loss.flat.random_weights(0), x, y)
    roc = roc_of(likelihood_ratio_score(phi, *shadows))
    assert roc.interval[0] < 0.5 < roc.interval[1]


@pytest.mark.parametrize(("a", "gamma"), [(0.3, 1.0), (1.0, 2.0), (0.0, 0.7)])
def test_rmia_by_the_definition(a, gamma):
    def ratio(phi, out):
        p = 1 / (1 + torch.exp(-phi.double()))
        return p / (0.5 * ((1 + a) * out + 1 - a))

    expected = []
    others = ratio(Z, SHADOW_Z.double().sigmoid().mean(0))
    for k in range(COUNT):
        out = SHADOW_PHI[~HELD[:, k], k].double().sigmoid().mean()
        expected.append(float((ratio(PHI[k], out) / others >= gamma).double().mean()))
    found = rmia_score(PHI, Z, SHADOW_PHI, SHADOW_Z, HELD, a=a, gamma=gamma)
    assert found.tolist() == pytest.approx(expected)
    assert len(set(expected)) > 3


def test_a_is_chosen_where_members_of_shadow_models_are_found_best():
    """If samples differ in difficulty, calibrating with the shadow models helps: a = 0 loses."""
    draw = torch.Generator().manual_seed(1)
    hardness = 3 * torch.randn(200, generator=draw)
    held = torch.zeros(8, 200, dtype=torch.bool)
    for pair in range(4):
        half = torch.rand(200, generator=draw) < 0.5
        held[2 * pair], held[2 * pair + 1] = half, ~half
    phi = hardness + 1.0 * held + 0.3 * torch.randn(8, 200, generator=draw)
    z = 3 * torch.randn(100, generator=draw) + 0.3 * torch.randn(8, 100, generator=draw)
    a = choose_interpolation(phi, z, held)
    assert a > 0
