import time

import pytest
import torch
from scipy.stats import norm
from torch import nn
from torch.nn import functional

from support.overfitted import STEPS, candidates, fitted_to_members, roc_of
from tacit.auditing.attacks import membership_scores
from tacit.auditing.attacks.likelihood_ratio import confidence, likelihood_ratio_score
from tacit.auditing.attacks.membership_scores import loss_score
from tacit.auditing.attacks.shadow import train_shadow_models
from tacit.core.errors import Misuse
from tacit.tasks.flat import FlatModule, ModuleLoss


def small(count=10, classes=3):
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, classes)).double()
    loss = ModuleLoss(FlatModule(module), functional.cross_entropy)
    x = torch.randn(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return loss, x, torch.arange(count) % classes


def counting(count):
    """A loss whose gradient counts how often each candidate was in a batch."""
    module = nn.Linear(count, 1, bias=False).double()
    loss = ModuleLoss(FlatModule(module), lambda out, target: out.sum())
    return loss, torch.eye(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)


@pytest.fixture(scope="module")
def digits():
    return candidates()


@pytest.fixture(scope="module")
def shadows(digits):
    loss, x, y = digits
    return train_shadow_models(loss, x, y, seed=5, models=8, steps=STEPS, lr=1.0)


def ratios(loss, theta, shadows, x, y):
    phi = [confidence(loss, model, x, y) for model in (theta, shadows.theta)]
    return likelihood_ratio_score(*phi, shadows.held)


@pytest.mark.parametrize("count", [10, 11])
def test_each_candidate_is_in_half_of_the_models(count):
    loss, x, y = small(count)
    held = train_shadow_models(loss, x, y, seed=0, models=6, steps=1).held
    assert held.sum(0).tolist() == [3] * count
    assert (held[0::2] ^ held[1::2]).all()  # the two halves of one split
    assert set(held.sum(1).tolist()) <= {count // 2, count - count // 2}
    assert len({tuple(row.tolist()) for row in held}) > 2


def counts(count, **options):
    """How often each of four models was trained on each candidate, and which it holds."""
    loss, x, y = counting(count)
    start = torch.stack([loss.flat.random_weights(0, "shadow", s) for s in range(4)])
    shadows = train_shadow_models(loss, x, y, seed=0, models=4, lr=1.0, **options)
    trained = start - shadows.theta
    torch.testing.assert_close(trained, trained.round())
    return trained.round(), shadows.held.double()


@pytest.mark.parametrize("batch_size", [4, 8, 100])
def test_an_epoch_takes_what_is_held_once(batch_size):
    steps = 2 if batch_size == 4 else 1
    once, held = counts(16, steps=steps, batch_size=batch_size)
    assert torch.equal(once, held)
    often, held = counts(16, steps=3 * steps, batch_size=batch_size)
    assert torch.equal(often, 3 * held)


def test_orders_differ_between_models_and_epochs():
    after = [counts(40, steps=steps, batch_size=5)[0] for steps in (1, 4, 5)]
    first, again = after[0], after[2] - after[1]  # the first batches of two epochs
    assert (first.sum(1) == 5).all()
    assert (first != again).any(1).all()


def test_training_is_that_of_torch_model_by_model():
    loss, x, y = small(12)
    shadows = train_shadow_models(loss, x, y, seed=4, models=4, steps=7, lr=0.3, batch_size=12)
    for s in range(4):
        theta = loss.flat.random_weights(4, "shadow", s).requires_grad_()
        optimiser = torch.optim.SGD([theta], lr=0.3)
        for _ in range(7):
            optimiser.zero_grad()
            loss(theta, x[shadows.held[s]], y[shadows.held[s]]).backward()
            optimiser.step()
        assert torch.allclose(shadows.theta[s], theta.detach(), rtol=1e-10)


def test_training_is_keyed_and_leaves_the_global_stream_alone():
    loss, x, y = small()
    before = torch.get_rng_state()
    one, again, other = (
        train_shadow_models(loss, x, y, seed=seed, models=4, steps=3, batch_size=2)
        for seed in (1, 1, 2)
    )
    assert torch.equal(one.theta, again.theta)
    assert not torch.equal(one.held, other.held)
    assert len({tuple(row.tolist()) for row in one.theta}) == 4
    assert torch.equal(before, torch.get_rng_state())


def test_progress_and_budget():
    loss, x, y = small()
    calls = []
    whole = train_shadow_models(
        loss,
        x,
        y,
        seed=1,
        models=2,
        steps=3,
        progress=lambda *at: calls.append(at),
        budget_seconds=60,
    )
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert (whole.steps, whole.finished) == (3, True)
    cut = train_shadow_models(
        loss,
        x,
        y,
        seed=1,
        models=2,
        steps=3,
        progress=lambda *_: time.sleep(0.02),
        budget_seconds=0.01,
    )
    assert (cut.steps, cut.finished) == (1, False)
    assert torch.equal(cut.theta, train_shadow_models(loss, x, y, seed=1, models=2, steps=1).theta)


@pytest.mark.parametrize("workspace", [membership_scores.WORKSPACE, 1500])
def test_confidence_is_the_logit_of_the_probability(workspace, monkeypatch):
    monkeypatch.setattr(membership_scores, "WORKSPACE", workspace)  # all at once, or three
    loss, x, y = small()
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
    loss, x, y = small()
    shadows = train_shadow_models(loss, x, y, seed=2, models=count, steps=20, lr=0.5)
    target = loss.flat.random_weights(99)
    phi, others = confidence(loss, target, x, y), confidence(loss, shadows.theta, x, y)
    sides = [
        [others[chosen[:, j], j] for j in range(10)] for chosen in (shadows.held, ~shadows.held)
    ]
    each = [[float(values.var()) for values in side] for side in sides]
    if count == 8:  # too few for a variance per candidate
        each = [[sum(side) / 10] * 10 for side in each]
    means = [[float(values.mean()) for values in side] for side in sides]
    expected = []
    for j in range(10):
        density = [norm.logpdf(float(phi[j]), means[k][j], each[k][j] ** 0.5) for k in range(2)]
        expected.append(density[0] - density[1])
    found = likelihood_ratio_score(phi, others, shadows.held)
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-8, atol=1e-10)


def test_the_likelihood_ratio_beats_the_loss_on_an_overfitted_model(digits, shadows):
    loss, x, y = digits
    overfitted = fitted_to_members()
    by_loss = roc_of(loss_score(loss, overfitted, x, y))
    assert by_loss.interval[0] > 0.5
    assert roc_of(ratios(loss, overfitted, shadows, x, y)).interval[0] > by_loss.auc


def test_the_likelihood_ratio_of_an_untrained_model_reveals_nothing(digits, shadows):
    """For this split; test_roc covers that the interval fails for one in twenty splits."""
    loss, x, y = digits
    roc = roc_of(ratios(loss, loss.flat.random_weights(0), shadows, x, y))
    assert roc.interval[0] < 0.5 < roc.interval[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": 3}, "models come in pairs"),
        ({"models": 0}, "models is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"lr": -1.0}, "lr is -1.0"),
        ({"budget_seconds": 0}, "budget_seconds is 0"),
        ({"lr": 1e308, "steps": 20}, "diverged"),
    ],
)
def test_bad_training_is_refused(change, words):
    loss, x, y = small()
    with pytest.raises(Misuse, match=words):
        train_shadow_models(loss, x, y, **({"seed": 0, "models": 2, "steps": 1} | change))


@pytest.mark.parametrize(
    ("held", "phi", "words"),
    [(1, (10,), "1 shadow models with it"), (2, (2, 10), "of the same candidates"),
     (2, (9,), "of the same candidates")],
)  # fmt: skip
def test_bad_attacks_are_refused(held, phi, words):
    mask = torch.arange(4)[:, None].expand(4, 10) < held
    with pytest.raises(Misuse, match=words):
        likelihood_ratio_score(torch.zeros(phi), torch.zeros(4, 10), mask)


def test_confidence_needs_classes():
    loss, x, _ = small()
    with pytest.raises(Misuse, match="class logits"):
        confidence(loss, loss.flat.random_weights(0), x, torch.zeros(10).double())
