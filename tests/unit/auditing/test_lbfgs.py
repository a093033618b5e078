"""The batched L-BFGS against closed forms, torch's L-BFGS, and itself in other batches."""

from itertools import pairwise

import pytest
import torch

from tacit.auditing.attacks import lbfgs
from tacit.auditing.attacks.inverse_hessian import InverseHessians
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.core.errors import Misuse


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_autograd(function):
    """f(x [A, n], which [A]) -> values [A] as what the optimiser wants."""

    def value_and_grad(x, which):
        x = x.detach().requires_grad_()
        values = function(x, which)
        (slopes,) = torch.autograd.grad(values.sum(), x)
        return values.detach(), slopes

    return value_and_grad


def rosenbrock(x, which):
    return (100 * (x[:, 1:] - x[:, :-1].square()).square() + (1 - x[:, :-1]).square()).sum(1)


def quadratics(count, n, condition):
    """½ xᵀAx − bᵀx with condition numbers from 1 to `condition`; and their minimisers."""
    bases = torch.linalg.qr(normal(count, n, n)).Q
    spectra = torch.stack(
        [torch.logspace(0, top, n) for top in torch.linspace(0, condition, count)]
    )
    a = (bases * spectra[:, None].double()) @ bases.mT
    b = normal(count, n, seed=1)
    function = with_autograd(
        lambda x, which: (
            0.5 * (x * (a[which] @ x[:, :, None])[:, :, 0]).sum(1) - (b[which] * x).sum(1)
        )
    )
    return function, torch.linalg.solve(a, b)


def regressions(count, n):
    """Ill-conditioned logistic regressions with a little weight decay."""
    data, sign = (
        normal(count, 40, n, seed=3) * torch.logspace(0, -2, n).double(),
        normal(count, 40, seed=4).sign(),
    )

    def function(x, which):
        margins = sign[which] * (data[which] @ x[:, :, None])[:, :, 0]
        return torch.nn.functional.softplus(-margins).mean(1) + 1e-4 * x.square().sum(1)

    return with_autograd(function)


EXACT = LBFGS(iterations=400, value_tolerance=0.0, gradient_tolerance=1e-12, change_tolerance=0.0)


def test_quadratics_end_at_their_minimisers():
    function, minimisers = quadratics(6, 20, condition=3)
    found = EXACT.minimise(normal(6, 20, seed=2), function)
    torch.testing.assert_close(found.x, minimisers, atol=1e-7, rtol=0)
    assert found.iterations[0] <= 3  # a ball: one step, and the line search's scaling of it
    assert found.iterations.max() < 150


@pytest.mark.parametrize("history", [5, 100])
@pytest.mark.parametrize("kind", ["regressions", "rosenbrock"])
def test_the_same_path_as_torchs_lbfgs(kind, history):
    """Problem by problem: as many iterations lead to the same value, at the same cost."""
    function, n = (
        (regressions(8, 15), 15) if kind == "regressions" else (with_autograd(rosenbrock), 6)
    )
    start = normal(8, n, seed=5)
    mine = LBFGS(
        iterations=25,
        history=history,
        value_tolerance=0.0,
        gradient_tolerance=0.0,
        change_tolerance=0.0,
    ).minimise(start, function)
    for row in range(len(start)):
        which, calls = torch.tensor([row]), []
        point = start[row].clone().requires_grad_()

        def closure(point=point, which=which, calls=calls):
            value, slope = function(point.detach()[None], which)
            point.grad = slope[0]
            calls.append(value)
            return value[0]

        torch.optim.LBFGS(
            [point],
            max_iter=25,
            max_eval=1000,
            history_size=history,
            tolerance_grad=0,
            tolerance_change=0,
            line_search_fn="strong_wolfe",
        ).step(closure)
        theirs = function(point.detach()[None], which)[0][0]
        torch.testing.assert_close(mine.values[row], theirs, rtol=1e-2, atol=0)
        assert mine.iterations[row] == 25
        assert mine.evaluations[row] <= len(calls) + 3


def test_the_result_does_not_depend_on_other_problems():
    function, start = with_autograd(rosenbrock), normal(7, 4)
    together = EXACT.minimise(start, function)
    for row in range(7):
        alone = EXACT.minimise(start[row : row + 1], function)
        torch.testing.assert_close(alone.x[0], together.x[row], atol=1e-6, rtol=0)
        assert abs(int(alone.iterations) - int(together.iterations[row])) <= 2


@pytest.mark.parametrize("stored", [1, 3, 7, 19])
def test_the_compact_form_is_the_two_loop_recursion(stored):
    """With ring buffers that are empty, filling and overwritten, different for each problem."""
    history, count, n = 7, 3, 30
    hessians, kept = InverseHessians(normal(count, n), history), [[] for _ in range(count)]
    for step in range(stored):
        s = normal(count, n, seed=10 + step)
        y = s * torch.linspace(0.5, 3, n).double() + 0.1 * normal(count, n, seed=100 + step)
        chosen = torch.tensor([True, step % 3 != 1, False])
        hessians.store(chosen, s, y)
        for row in chosen.nonzero()[:, 0]:
            kept[row] = [*kept[row], (s[row], y[row])][-history:]
    g = normal(count, n, seed=999)
    for row, pairs in enumerate(kept):
        q, alphas = g[row].clone(), []
        for s, y in reversed(pairs):
            alphas.append((s @ q) / (s @ y))
            q -= alphas[-1] * y
        if pairs:
            q *= (pairs[-1][0] @ pairs[-1][1]) / (pairs[-1][1] @ pairs[-1][1])
        for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
            q += (alpha - (y @ q) / (s @ y)) * s
        torch.testing.assert_close(hessians.times(g)[row], q, atol=1e-9, rtol=1e-9)


def test_pairs_of_negative_curvature_are_not_stored():
    hessians, s = InverseHessians(normal(2, 5), 4), normal(2, 5)
    hessians.store(torch.tensor([True, True]), s, s * torch.tensor([[1.0], [-1.0]]))
    assert hessians.pairs.tolist() == [1, 0]


@pytest.mark.parametrize(("value", "slope"), [("nan", "nan"), ("-inf", "1"), ("-1e9", "nan")])
def test_points_that_are_not_finite_are_backed_off_from(value, slope):
    """x/1000 − log x is not defined left of 0, where long first steps from the far right lead."""
    plain, left = with_autograd(lambda x, which: (1e-3 * x - x.clamp_min(1e-9).log()).sum(1)), []

    def function(x, which):
        values, slopes = plain(x, which)
        outside = (x <= 0).any(1)
        left.append(outside)
        return values.masked_fill(outside, float(value)), slopes.masked_fill(
            outside[:, None], float(slope)
        )

    start = torch.tensor([[1e-3, 5e3], [5e3, 2e4], [1.0, 1.0]], dtype=torch.float64)
    found = EXACT.minimise(start, function)
    torch.testing.assert_close(found.x, torch.full_like(start, 1e3), atol=1e-3, rtol=0)
    assert bool(torch.cat(left).any())


def test_a_start_without_a_finite_value_stays_alone_with_it():
    function = with_autograd(lambda x, which: (x.log().square()).sum(1))
    start = torch.tensor([[-1.0], [2.0]], dtype=torch.float64)
    found = EXACT.minimise(start, function)
    assert found.values[0] == torch.inf
    assert found.x[0] == -1.0
    assert found.x[1].item() == pytest.approx(1.0, abs=1e-6)


def test_finished_problems_are_not_evaluated_again():
    function, evaluated = quadratics(4, 20, condition=3)[0], []

    def watched(x, which):
        evaluated.append(which.tolist())
        return function(x, which)

    found = EXACT.minimise(normal(4, 20, seed=2), watched)
    assert [
        sum(row in which for which in evaluated) for row in range(4)
    ] == found.evaluations.tolist()
    assert found.evaluations[0] < 10 < found.evaluations[3]


def test_a_wrong_gradient_ends_the_search():
    def function(x, which):
        return x.square().sum(1), torch.where(which[:, None] == 0, -x, 2 * x)

    start = torch.ones(2, 3, dtype=torch.float64)
    found = EXACT.minimise(start, function)
    torch.testing.assert_close(found.x[0], start[0])
    torch.testing.assert_close(found.x[1], torch.zeros(3, dtype=torch.float64), atol=1e-9, rtol=0)
    assert found.iterations[0] == 0
    assert found.evaluations[0] < 50


def test_steps_satisfy_the_strong_wolfe_conditions(monkeypatch):
    """The first accepted point along a direction satisfies both Wolfe conditions."""
    monkeypatch.setattr(lbfgs, "CURVATURE", 0.1)
    search = LBFGS(iterations=1, value_tolerance=0.0, gradient_tolerance=0.0, change_tolerance=0.0)
    start, function = normal(20, 4, seed=8), with_autograd(rosenbrock)
    found = search.minimise(start, function)
    value, slope = function(start, torch.arange(20))
    after, slope_after = function(found.x, torch.arange(20))
    step = found.x - start
    assert bool((after <= value + 1e-4 * (slope * step).sum(1)).all())
    assert bool(
        ((slope_after * step).sum(1).abs() <= 0.1 * (slope * step).sum(1).abs() * (1 + 1e-9)).all()
    )


def test_values_only_fall_and_the_callback_can_end_the_search():
    calls = []

    def watch(iteration, values):
        calls.append((iteration, values.clone()))
        return iteration >= 5

    found = EXACT.minimise(normal(3, 4), with_autograd(rosenbrock), callback=watch)
    for (_, before), (_, after) in pairwise(calls):
        assert bool((after <= before).all())
    assert found.iterations.max() == 5
    torch.testing.assert_close(found.values, rosenbrock(found.x, None))


def test_the_value_tolerance_is_relative_to_the_first_value():
    found = LBFGS(value_tolerance=1e-2).minimise(normal(6, 4), with_autograd(rosenbrock))
    first = rosenbrock(normal(6, 4), None)
    assert bool((found.values <= 1e-2 * first).all())
    assert bool((found.values > 1e-9 * first).any())


def test_a_projection_is_applied_to_the_result_and_its_value():
    found = EXACT.minimise(
        normal(2, 4), with_autograd(rosenbrock), project=lambda x: x.clamp(max=0.5)
    )
    assert found.x.max() == 0.5
    torch.testing.assert_close(found.values, rosenbrock(found.x, None))


@pytest.mark.parametrize(
    "wrong",
    [
        {"iterations": 0},
        {"history": 1.5},
        {"change_tolerance": -1},
        {"value_tolerance": "a"},
    ],
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(Misuse) as refusal:
        LBFGS(**wrong)
    assert next(iter(wrong)) in refusal.value.problem
    assert refusal.value.remedy
