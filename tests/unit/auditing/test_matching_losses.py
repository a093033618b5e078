"""Every matching loss against plain loops, and its gradient against finite differences."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from support.observations import difference, total
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.gradient_matching import (
    L2,
    CosineDistance,
    MatchingProblems,
    total_variation,
)
from tacit.auditing.attacks.guesses import GuessLayout
from tacit.auditing.attacks.observation import Observation
from tacit.core.errors import Misuse
from tacit.models.networks import sigmoid_cnn
from tacit.tasks.flat import FlatModule, ModuleLoss

SHAPE, CLASSES, BATCH = (1, 4, 4), 3, 2
DENSE = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Sigmoid(), nn.Linear(6, CLASSES))
CONVOLUTIONS = sigmoid_cnn(SHAPE, CLASSES, filters=2, uniform=0.5)
MATCHING_LOSSES = [
    L2(),
    L2(relative=True),
    L2(total_variation=0.1),
    CosineDistance(),
    CosineDistance(total_variation=0.1),
]
KINDS = ["gradient", "difference", "total", "joint"]


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def observation(kind, flat):
    """What is seen of two victims; the values are anything, as if noisy."""
    a, b, c = (
        torch.stack([flat.random_weights(which, victim) for victim in range(2)]) for which in "abc"
    )
    values = 0.3 * normal(2, flat.width, seed=1)
    # Two values of three gradients, of two batches.
    rows = torch.tensor([[1.0, 0.0, -1.0], [0.5, 1.0, 0.0]], dtype=torch.float64)
    several = 0.3 * normal(2, 2, flat.width, seed=1)
    return {
        "gradient": lambda: Observation.gradient(a, values),
        "difference": lambda: difference(a, b, values),
        "total": lambda: total(torch.stack((a, b, c), 1), values),
        "joint": lambda: Observation(torch.stack((a, b, c), 1), rows, several, (0, 1, 0)),
    }[kind]()


def problem(kind, matching_loss, soft, guesses, module=DENSE):
    flat = FlatModule(module.double())
    loss, seen = ModuleLoss(flat, functional.cross_entropy), observation(kind, flat)
    layout = GuessLayout(seen.batches, DataSpec(SHAPE, BATCH, CLASSES), soft)
    labels = torch.arange(seen.batches * BATCH).remainder(CLASSES).view(1, 1, seen.batches, BATCH)
    labels = None if soft else labels.expand(2, guesses, -1, -1)
    return (
        seen,
        layout,
        MatchingProblems(
            loss, seen, matching_loss, layout, labels, torch.arange(2 * guesses), guesses
        ),
    )


def check_by_differences(kind, matching_loss, soft, module=DENSE):
    """All central differences of one guess in one evaluation, for the second victim."""
    _, layout, _ = problem(kind, matching_loss, soft, 1, module)
    n, step = layout.width, 1e-5
    assert n == layout.batches * BATCH * (16 + 3 * soft)
    _, _, matching = problem(kind, matching_loss, soft, 2 * n + 1, module)
    row = torch.rand(n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    shifts = step * torch.eye(n, dtype=torch.float64)
    rows = torch.cat((row[None], row + shifts, row - shifts))
    values, slopes = matching(rows, torch.arange(2 * n + 1, 4 * n + 2))
    numerical = (values[1 : n + 1] - values[n + 1 :]) / (2 * step)
    torch.testing.assert_close(slopes[0], numerical, atol=1e-8, rtol=1e-6)
    assert slopes[0].abs().amin() > 0  # everything that is searched matters


@pytest.mark.parametrize("soft", [False, True], ids=["given", "optimised"])
@pytest.mark.parametrize("matching_loss", MATCHING_LOSSES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_against_finite_differences(kind, matching_loss, soft):
    check_by_differences(kind, matching_loss, soft)


def test_gradients_through_convolutions():
    check_by_differences("difference", CosineDistance(total_variation=0.1), True, CONVOLUTIONS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("soft", [False, True])
def test_values_against_plain_loops(kind, soft):
    """Σₖ cₖ∇L with torch.autograd and one gradient after another."""
    seen, layout, _ = problem(kind, L2(), soft, 1)
    flat = FlatModule(DENSE.double())
    loss = ModuleLoss(flat, functional.cross_entropy)
    rows = torch.rand(
        2, layout.width, generator=torch.Generator().manual_seed(6), dtype=torch.float64
    )
    pixels = layout.batches * BATCH * 16
    for victim in range(2):
        gradients = []
        for k, batch in enumerate(seen.data):
            theta = seen.weights[victim, k].clone().requires_grad_()
            x = rows[victim, :pixels].view(-1, BATCH, *SHAPE)[batch]
            y = torch.arange(layout.batches * BATCH).remainder(CLASSES).view(-1, BATCH)[batch]
            if soft:
                y = rows[victim, pixels:].view(-1, BATCH, CLASSES)[batch].softmax(1)
            gradients.append(torch.autograd.grad(loss(theta, x, y), theta)[0])
        combinations = seen.coefficients.double() @ torch.stack(gradients)
        tv = total_variation(rows[victim, :pixels].view(-1, *SHAPE))
        each = []
        for combination, v in zip(combinations, seen.values[victim], strict=True):
            square = (combination - v).square().sum()
            cosine = 1 - functional.cosine_similarity(combination, v, dim=0)
            relative = square / v.square().sum()
            each.append([square, relative, square + 0.1 * tv, cosine, cosine + 0.1 * tv])
        # The mean over all values that are known together.
        expected = torch.tensor(each).mean(0)
        for matching_loss, value in zip(MATCHING_LOSSES, expected, strict=True):
            found, _ = problem(kind, matching_loss, soft, 1)[2](
                rows[victim][None], torch.tensor([victim])
            )
            torch.testing.assert_close(found[0], value.to(found), atol=1e-6, rtol=1e-5)


def test_total_variation_by_hand():
    image = torch.tensor([[[[0.0, 1.0], [1.0, 3.0], [1.0, 0.0]]]])
    across, down = (1 + 2 + 1) / 3, (1 + 2 + 0 + 3) / 4
    assert total_variation(image).item() == pytest.approx(across + down)
    assert total_variation(torch.cat((image, torch.zeros_like(image)))).item() == pytest.approx(
        (across + down) / 2
    )


def test_the_cosine_does_not_see_scale_and_the_distance_does():
    a, b, x = normal(5, seed=2), normal(5, seed=3), torch.zeros(1, 1, 4, 4)
    torch.testing.assert_close(CosineDistance()(7 * a, b, x), CosineDistance()(a, b, x))
    assert CosineDistance()(3 * a, a, x).abs() < 1e-12
    torch.testing.assert_close(
        L2(relative=True)(3 * a, a, x), torch.tensor(4.0, dtype=torch.float64)
    )
    assert bool(CosineDistance()(0 * a, b, x).isfinite())
    assert bool(L2(relative=True)(a, 0 * b, x).isfinite())


@pytest.mark.parametrize("shape", [(2, 16), (2, 1, 1, 16)])
def test_total_variation_of_no_image_is_refused(shape):
    with pytest.raises(Misuse, match="for images"):
        L2(total_variation=1.0)(normal(3), normal(3), torch.zeros(shape))


@pytest.mark.parametrize("alpha", [-1.0, "much", float("nan")])
@pytest.mark.parametrize("kind", [L2, CosineDistance])
def test_a_bad_weight_of_the_prior_is_refused(kind, alpha):
    with pytest.raises(Misuse, match="total_variation is"):
        kind(total_variation=alpha)
