"""Membership by least squares: weights of candidates in what is known of gradients."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional

from tacit.auditing.attacks import sample_weights
from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.attacks.membership_scores import gradient_cosine_score
from tacit.auditing.attacks.sample_weights import (
    NormalEquations,
    nonnegative_weights,
    normal_equations,
    sample_weight_score,
)
from tacit.auditing.scoring.roc import Roc
from tacit.record.unknowns import Unknown
from tacit.tasks.flat import FlatModule, ModuleLoss

MODULE = nn.Sequential(nn.Linear(12, 10), nn.Tanh(), nn.Linear(10, 4)).double()
LOSS = ModuleLoss(FlatModule(MODULE), functional.cross_entropy)
WIDTH, BATCH, COUNT = LOSS.flat.width, 8, 40
DRAW = torch.Generator().manual_seed(0)
X = torch.randn(COUNT, 12, generator=DRAW, dtype=torch.float64)
Y = torch.randint(4, (COUNT,), generator=DRAW)


def point(name):
    return LOSS.flat.random_weights(name)


def batch_gradient(theta, rows):
    return grad(LOSS)(theta, X[rows], Y[rows])


def value(*terms, deviation=0.0, owners=None):
    """Of (coefficient, model, batch): what is known."""
    points = torch.stack([point(name) for _, name, _ in terms])
    values = sum(c * batch_gradient(point(name), rows) for c, name, rows in terms)
    noise = torch.randn(WIDTH, generator=DRAW, dtype=torch.float64)
    coefficients = [c for c, _, _ in terms]
    return known_value(values + deviation * noise, points, coefficients, owners, deviation)


def known_value(values, points, coefficients, owners=None, deviation=0.0):
    """Evidence about client 0; by default all gradients are its own."""
    terms = [Unknown("gradient", k, client) for k, client in enumerate(owners or [0] * len(points))]
    parts = tuple(terms), tuple(coefficients), values, points, deviation
    return Evidence("combination", 0, *parts, gain=1.0, rounding=0.0)


def score(known, count=COUNT, **options):
    return sample_weight_score(LOSS, known, X[:count], Y[:count], batch=BATCH, **options)


def members(*batches):
    return torch.zeros(COUNT).index_fill(0, torch.cat(batches), 1.0)


def auc(scores, *batches):
    inside = members(*batches).bool()[: len(scores)]
    return Roc.from_scores(scores[inside], scores[~inside]).auc


FIRST, SECOND, OTHER = torch.arange(8), torch.arange(8, 16), torch.arange(30, 38)


def test_weights_of_an_exact_gradient_are_one_and_zero():
    found, used = score([value((1.0, "a", FIRST))])
    torch.testing.assert_close(found, members(FIRST).double(), rtol=0, atol=1e-4)
    assert used == 1
    cosine = gradient_cosine_score(LOSS, point("a"), batch_gradient(point("a"), FIRST), X, Y)
    assert auc(cosine, FIRST) < 1


def test_a_sample_of_one_of_several_batches_is_a_member():
    found, _ = score([value((1.0, "a", FIRST)), value((2.0, "b", SECOND))])
    torch.testing.assert_close(found, members(FIRST, SECOND).double(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("reused", [False, True])
def test_differences(reused):
    """With separate columns for the batches of both gradients, or one for a reused batch."""
    later = FIRST if reused else SECOND
    found, _ = score([value((1.0, "b", later), (-1.0, "a", FIRST))], reused=reused)
    expected = members(FIRST, later).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def test_a_sum_with_another_client():
    known = [value((1.0, "a", FIRST), (1.0, "b", OTHER), owners=[0, 1])]
    found, _ = score(known)
    torch.testing.assert_close(found, members(FIRST).double(), rtol=0, atol=1e-3)


def test_clipped_gradients_have_relative_weights():
    known = [value((1.0, "a", FIRST)), value((1.0, "b", SECOND))]
    scaled = [
        replace(each, values=each.values * factor)
        for each, factor in zip(known, (0.01, 0.3), strict=True)
    ]
    found, _ = score(scaled, clipped=True)
    torch.testing.assert_close(found, members(FIRST, SECOND).double(), rtol=0, atol=1e-4)
    # Not told, the smaller one seems to have no members.
    assert score(scaled)[0][FIRST].max() < 0.02


def test_samples_of_the_batch_that_are_no_candidates():
    batch = torch.cat((FIRST[:5], OTHER[:3]))
    found, _ = score([value((1.0, "a", batch))], count=30)
    observed = batch_gradient(point("a"), batch)
    cosine = gradient_cosine_score(LOSS, point("a"), observed, X[:30], Y[:30])
    assert auc(found, FIRST[:5]) > max(0.9, auc(cosine, FIRST[:5]))
    assert found[:5].min() > 0.5


def test_clipped_values_without_members_count_little():
    empty = value((1.0, "a", OTHER))
    found, _ = score([empty], count=30, clipped=True)
    both, _ = score([empty, value((1.0, "b", FIRST))], count=30, clipped=True)
    assert found.max() < 1
    assert auc(both, FIRST) > 0.99


def test_noisy_gradients_are_averaged():
    """Of a batch that is used again and again, more noisy values say more."""
    known = [value((1.0, f"m{k}", FIRST), deviation=0.2) for k in range(40)]
    one, many = (auc(score(known[:n], reused=True)[0], FIRST) for n in (1, 40))
    assert many > 0.97
    assert many > one


def test_the_noisier_value_counts_less():
    good, bad = value((1.0, "a", FIRST), deviation=1e-3), value((1.0, "b", SECOND), deviation=10.0)
    found, _ = score([good, bad])
    alone, _ = score([good])
    torch.testing.assert_close(found, alone, rtol=0, atol=1e-4)


def test_more_candidates_than_parameters():
    """The weights are not unique; they still explain the value, and are finite."""
    module = nn.Linear(3, 2).double()
    loss = ModuleLoss(FlatModule(module), functional.cross_entropy)
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.arange(30) % 2
    theta = loss.flat.random_weights(3)
    observed = grad(loss)(theta, x[:BATCH], y[:BATCH])
    known = known_value(observed, theta[None], (1.0,))
    equations = normal_equations(loss, known, x, y, batch=BATCH, shared=False)
    weights, _ = sample_weight_score(loss, [known], x, y, batch=BATCH)
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert equations.explained(weights) > 0.999


def test_normal_equations_in_blocks(monkeypatch):
    """Blocks smaller than the candidates give the same equations as all columns at once."""
    known = value((1.0, "a", FIRST), (-0.5, "b", SECOND))
    each = vmap(lambda theta, a, b: grad(LOSS)(theta, a[None], b[None]), in_dims=(None, 0, 0))
    columns = torch.cat(
        [c / BATCH * each(point(name), X, Y) for c, name in ((1.0, "a"), (-0.5, "b"))]
    )
    monkeypatch.setattr(sample_weights, "WORKSPACE", 7 * WIDTH)
    monkeypatch.setattr(sample_weights, "candidates_per_pass", lambda *_: 3)
    found = normal_equations(LOSS, known, X, Y, batch=BATCH, shared=False)
    torch.testing.assert_close(found.gram, columns @ columns.T)
    torch.testing.assert_close(found.moment, columns @ known.values)
    shared = normal_equations(LOSS, known, X, Y, batch=BATCH, shared=True)
    joint = columns[:COUNT] + columns[COUNT:]
    torch.testing.assert_close(shared.gram, joint @ joint.T)


def test_nonnegative_weights_solve_the_constrained_problem():
    a = torch.randn(20, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    v = torch.randn(20, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    equations = NormalEquations(a.T @ a, a.T @ v, float(v @ v))
    m = nonnegative_weights(equations, 0.1)
    slope = (a.T @ a + 0.1 * torch.eye(6)) @ m - a.T @ v
    # The optimality conditions.
    assert (m >= 0).all()
    assert (slope > -1e-9).all()
    assert float(m @ slope) == pytest.approx(0, abs=1e-9)
    assert (m == 0).any()


def test_a_budget_ends_the_attack():
    known = [value((1.0, "a", FIRST)), value((1.0, "b", SECOND))]
    found, used = score(known, out_of_time=lambda: True)
    assert used == 1
    torch.testing.assert_close(found, members(FIRST).double(), rtol=0, atol=1e-4)
