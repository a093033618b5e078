"""Inversion end to end; the truth makes observations and scores, the attack never gets it."""

from dataclasses import replace

import pytest
import torch
from skimage.metrics import structural_similarity
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional

from support.observations import difference, total
from tacit import data
from tacit.auditing.attacks import inversion
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.gradient_matching import L2, CosineDistance
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.attacks.optimiser import SignedAdam
from tacit.core.errors import Misuse
from tacit.models.networks import sigmoid_cnn
from tacit.tasks.flat import FlatModule, ModuleLoss

SHAPE, CLASSES = (1, 4, 4), 3
SMALL = ModuleLoss(
    FlatModule(
        nn.Sequential(
            nn.Flatten(), nn.Linear(16, 24), nn.Sigmoid(), nn.Linear(24, CLASSES)
        ).double()
    ),
    functional.cross_entropy,
)


def weights(*key, victims=2, flat=SMALL.flat):
    """Weights [V, P], twice as large as torch draws them."""
    return 2 * torch.stack([flat.random_weights(*key, victim) for victim in range(victims)])


def truth(*lead, seed=0):
    """Inputs [*lead, 1, 4, 4] in the box and labels [*lead]."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(*lead, *SHAPE, generator=draw, dtype=torch.float64)
    return x, torch.randint(CLASSES, lead, generator=draw)


def gradients(theta, x, y):
    return vmap(grad(SMALL))(theta, x, y)


SPEC = DataSpec(SHAPE, classes=CLASSES)
SPEC_OPTIONS = {"shape", "batch", "classes", "box"}


def attack(observation, restarts=3, **options):
    given = {name: options.pop(name) for name in SPEC_OPTIONS & options.keys()}
    return invert(SMALL, observation, replace(SPEC, **given), restarts=restarts, **options)


def far(found, x):
    return (found.inputs - x).square().flatten(1).mean(1)


@pytest.mark.slow
def test_exact_gradients_of_the_sigmoid_network_reveal_the_digits():
    flat = FlatModule(sigmoid_cnn((1, 28, 28), 10, uniform=0.5))
    loss = ModuleLoss(flat, functional.cross_entropy)
    digits = data.load("mnist-mini", limit_train=3).train
    theta = torch.stack([flat.random_weights("digits", victim) for victim in range(3)])
    x, y = digits.x[:, None], digits.y[:, None]
    seen = Observation.gradient(theta, vmap(grad(loss))(theta, x, y))
    spec = DataSpec((1, 28, 28), classes=10)
    found = invert(loss, seen, spec, restarts=2, optimiser=LBFGS(iterations=150))
    assert found.inputs.shape == x.shape
    assert torch.equal(found.labels, y)
    for image, true in zip(found.inputs, x, strict=True):
        ssim = structural_similarity(image[0, 0].numpy(), true[0, 0].numpy(), data_range=1.0)
        assert ssim > 0.9
    assert "activation: Sigmoid" in found.assumptions
    assert found.iterations.max() <= 150


def test_labels_optimised_along_with_the_inputs():
    theta, (x, y) = weights("a", victims=4), truth(4, 1)
    seen = Observation.gradient(theta, gradients(theta, x, y))
    found = attack(seen, labels="optimise", restarts=6)
    assert torch.equal(found.labels, y)
    assert far(found, x).max() < 1e-4
    assert found.assumptions[0] == "labels optimised along with the inputs, as distributions"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("known", "labels known"),
        ("soft", "labels known"),
        (None, "labels optimised along with the inputs, as distributions"),
    ],
)
def test_a_difference_of_two_gradients_of_one_sample(labels, message):
    later, earlier, (x, y) = weights("a"), weights("b"), truth(2, 1)
    seen = difference(later, earlier, gradients(later, x, y) - gradients(earlier, x, y))
    known = {"known": y, "soft": functional.one_hot(y, CLASSES).double()}
    found = attack(seen, labels=known.get(labels, labels))
    assert far(found, x).max() < 1e-5
    assert found.losses.shape == (2, 3)
    assert found.assumptions[0] == message
    assert "data reused: all 2 gradients are of the same batch" in found.assumptions
    assert torch.equal(found.labels, known.get(labels, y))


def test_a_sum_over_two_clients_with_a_sample_each():
    theta = torch.stack((weights("a"), weights("b")), 1)
    x, y = truth(2, 2, 1)
    values = gradients(theta.flatten(0, 1), x.flatten(0, 1), y.flatten(0, 1)).view(2, 2, -1).sum(1)
    found = attack(total(theta, values), labels=y, restarts=4)
    assert found.inputs.shape == (2, 2, 1, *SHAPE)
    assert far(found, x).max() < 1e-4
    assert "a sum of 2 gradients, each of a batch of its own" in found.assumptions


def test_restarts_assign_recovered_labels_of_a_sum_differently():
    """At different weights, the matching loss assigns the labels to the two clients."""
    theta = torch.stack((weights("a"), weights("b")), 1)
    x, _ = truth(2, 2, 1)
    y = torch.tensor([[[0], [2]], [[1], [0]]])
    values = gradients(theta.flatten(0, 1), x.flatten(0, 1), y.flatten(0, 1)).view(2, 2, -1).sum(1)
    found = attack(total(theta, values), restarts=8)
    assert torch.equal(found.labels, y)
    assert far(found, x).max() < 1e-4
    assert "assigned to the clients at random" in found.assumptions[0]


def test_a_batch_of_two_comes_back_in_some_order():
    theta, (x, y) = weights("a"), truth(2, 2, seed=3)
    found = attack(
        Observation.gradient(theta, gradients(theta, x, y)), labels=y, batch=2, restarts=4
    )
    assert found.inputs.shape == (2, 2, *SHAPE)
    straight, crossed = far(found, x), far(found, x.flip(1))
    assert torch.minimum(straight, crossed).max() < 1e-4
    assert "batch size known: 2" in found.assumptions


@pytest.mark.slow
def test_signed_adam_on_the_cosine_with_total_variation():
    theta, (x, y) = weights("a"), truth(2, 1)
    seen = Observation.gradient(theta, gradients(theta, x, y))
    found = attack(seen, matching_loss=CosineDistance(), optimiser=SignedAdam(iterations=200))
    assert far(found, x).max() < 1e-3
    smooth = attack(
        seen,
        matching_loss=CosineDistance(total_variation=10.0),
        optimiser=SignedAdam(iterations=200),
    )
    assert smooth.inputs.diff(dim=-1).abs().mean() < 0.1 * found.inputs.diff(dim=-1).abs().mean()


def test_first_step_of_signed_adam():
    """The first step of Adam on signs is 0.1 in every coordinate; the best point is in the box."""
    start = torch.tensor([[0.5, 0.95], [0.2, 0.2]], dtype=torch.float64)

    def function(x, which):
        return -x.sum(1), -torch.ones_like(x) * torch.tensor([3.0, 1e-3])

    found = SignedAdam(iterations=1).minimise(start, function, project=lambda x: x.clamp(0, 1))
    torch.testing.assert_close(found.x, torch.tensor([[0.6, 1.0], [0.3, 0.3]], dtype=torch.float64))

    def uphill(x, which):
        return x.sum(1), -torch.ones_like(x)

    best = SignedAdam(iterations=5).minimise(start, uphill)
    assert torch.equal(best.x, start)
    assert best.iterations.tolist() == [5, 5]


def test_the_guess_with_the_lowest_loss_is_chosen():
    theta, (x, y) = weights("a", victims=3), truth(3, 1)
    seen = Observation.gradient(theta, gradients(theta, x, y))
    few = attack(seen, optimiser=LBFGS(iterations=5), restarts=5)
    assert few.losses.shape == few.iterations.shape == few.evaluations.shape == (3, 5)
    assert torch.equal(few.chosen, few.losses.argmin(1))
    assert len(set(few.losses.flatten().tolist())) == 15
    again = L2()(gradients(theta, few.inputs, few.labels)[1], seen.values[1, 0], few.inputs[1])
    torch.testing.assert_close(again, few.losses[1].min())
    assert few.inputs.min() >= 0
    assert few.inputs.max() <= 1


def test_victims_do_not_disturb_each_other_and_seeds_matter(monkeypatch):
    theta, (x, y) = weights("a", victims=3), truth(3, 1)
    values = gradients(theta, x, y)
    few = LBFGS(iterations=8)
    together = attack(Observation.gradient(theta, values), optimiser=few)
    other = values.clone()
    other[1] = 7.0
    disturbed = attack(Observation.gradient(theta, other), optimiser=few)
    for victim in (0, 2):
        torch.testing.assert_close(
            disturbed.losses[victim], together.losses[victim], rtol=1e-5, atol=0
        )
    other_seed = attack(Observation.gradient(theta, values), optimiser=few, seed=1)
    assert not torch.allclose(other_seed.losses, together.losses)
    monkeypatch.setattr(inversion, "_guesses_that_fit", lambda *_: 2)
    split = attack(Observation.gradient(theta, values), optimiser=few)
    torch.testing.assert_close(split.losses, together.losses, rtol=1e-5, atol=0)
    torch.testing.assert_close(split.inputs, together.inputs, rtol=0, atol=1e-5)


def test_only_a_box_clamps():
    theta, (x, y) = weights("a"), truth(2, 1)
    x = 4 * x - 2
    seen = Observation.gradient(theta, gradients(theta, x, y))
    found = attack(seen, box=None, restarts=5)
    assert far(found, x).max() < 1e-4
    assert "range of the inputs not used" in found.assumptions
    boxed = attack(seen, box=(0.0, 1.0))
    assert (boxed.inputs.min(), boxed.inputs.max()) == (0.0, 1.0)
    assert "inputs known to be in [0.0, 1.0]" in boxed.assumptions


def test_progress_and_the_end_of_the_budget_are_reported(monkeypatch):
    theta, (x, y) = weights("a"), truth(2, 1)
    seen, calls = Observation.gradient(theta, gradients(theta, x, y)), []
    monkeypatch.setattr(inversion, "_guesses_that_fit", lambda *_: 3)
    attack(seen, optimiser=LBFGS(iterations=6), progress=lambda *call: calls.append(call))
    monkeypatch.undo()
    assert [iteration for iteration, _, _ in calls] == [*range(6), *range(6, 12)]
    assert {total for _, total, _ in calls} == {12}
    assert all(best.shape == (2,) for _, _, best in calls)
    assert bool(calls[0][2][1].isinf())  # the second victim's turn comes later
    assert calls[5][2][0] < calls[0][2][0]
    assert calls[-1][2].isfinite().all()

    short = attack(
        seen,
        optimiser=LBFGS(
            iterations=10_000, value_tolerance=0, gradient_tolerance=0, change_tolerance=0
        ),
        budget_seconds=0.05,
    )
    assert "stopped by the budget of 0.05 s" in short.assumptions[-1]
    assert short.iterations.max() < 10_000
    assert not any("budget" in line for line in attack(seen, budget_seconds=600).assumptions)


def test_a_loss_that_is_no_modules_needs_labels_or_optimises_them():
    theta = torch.randn(2, 48, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def loss(theta, x, y):
        return functional.cross_entropy(torch.tanh(x.flatten(1)) @ theta.view(16, 3), y)

    x, y = truth(2, 1)
    seen = Observation.gradient(theta, vmap(grad(loss))(theta, x, y))
    found = invert(loss, seen, SPEC, labels=y, restarts=2)
    assert far(found, x).max() < 1e-4
    assumption = invert(loss, seen, SPEC, restarts=2).assumptions[0]
    assert "labels optimised" in assumption
    assert "not known to be a module's" in assumption


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "recovr"}, "labels is 'recovr'"),
        ({"labels": torch.zeros(2, 3, dtype=torch.long)}, "labels have shape (2, 3)"),
        ({"labels": torch.full((2, 1), 3)}, "from 3 to 3"),
        ({"classes": 2}, "but classes is 2"),
        ({"shape": ()}, "shape is ()"),
        ({"batch": 0}, "batch is 0"),
        ({"restarts": 1.5}, "restarts is 1.5"),
        ({"box": (1.0, 0.0)}, "box is (1.0, 0.0)"),
        ({"budget_seconds": 0}, "budget_seconds is 0"),
        ({"matching_loss": L2(total_variation=1.0), "shape": (16,)}, "Total variation"),
    ],
)
def test_invalid_options(options, message):
    theta = weights("a")
    values = torch.zeros_like(theta)
    values[:, -1] = -1.0  # the last class, if any
    with pytest.raises(Misuse) as refusal:
        attack(Observation.gradient(theta, values), **options)
    assert message in str(refusal.value)
    assert refusal.value.remedy


def test_another_models_observation_is_refused():
    theta = weights("a")[:, :-1]
    with pytest.raises(Misuse, match="parameters, the model"):
        attack(Observation.gradient(theta, torch.zeros_like(theta)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: Observation.gradient(w[0], w), "shape (5,)"),
        (lambda w: Observation.gradient(w, w[:1]), "values"),
        (lambda w: Observation.gradient(w, w.float()), "float32"),
        (lambda w: Observation.gradient(w, w / 0), "not finite"),
        (lambda w: total(w, w), "shape (2, 5)"),
        (lambda w: Observation.single(w[:, None], w.new_ones(2), w, True), "coefficients"),
        (lambda w: Observation(w[:, None], w.new_ones(1, 1), w[:, None], (1,)), "batches [1]"),
    ],
)
def test_observations_that_do_not_fit_are_refused(make, message):
    with pytest.raises(Misuse) as refusal:
        make(torch.ones(2, 5, dtype=torch.float64))
    assert message in refusal.value.problem
    assert refusal.value.remedy
