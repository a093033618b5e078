import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as oracle
from hypothesis import given, settings, strategies as st
from scipy import special

from support.accounting import response_loss, sum_delta
from tacit.privacy.accounting import loss_distribution
from tacit.privacy.accounting.gaussian import gaussian_delta, gaussian_epsilon
from tacit.privacy.accounting.loss_distribution import PrivacyLoss, trim
from tacit.privacy.accounting.noise_pair import NoisePair
from tacit.privacy.accounting.randomized_response import response_delta, response_epsilon

FIGURES = {1: 17.4, 2: 8.3, 4: 5.1, 8: 3.4}
ROUNDING = 1e-13
parts = st.floats(0.0, 1.0)


def gaussian(mu, step=None):
    pair = NoisePair(lambda z: -z * z / 2, lambda z: special.ndtr(-z), mu)
    return PrivacyLoss.of_pair(pair, step)


@pytest.mark.parametrize(("k", "figure"), FIGURES.items())
def test_figures_of_a_thousand_uses(k, figure):
    together = PrivacyLoss.laplace(0.1, k).self_compose(1000)
    assert together.epsilon(1e-5) == pytest.approx(figure, rel=0.01)
    finer = PrivacyLoss.laplace(0.1, k, step=2e-4).self_compose(1000)
    assert finer.epsilon(1e-5) <= together.epsilon(1e-5) <= 1.001 * finer.epsilon(1e-5)


@pytest.mark.parametrize(("ratio", "uses"), [(0.1, 1000), (1.0, 10), (5.0, 3), (0.01, 4000)])
def test_laplace_composition_is_the_oracles(ratio, uses):
    ours = PrivacyLoss.laplace(ratio).self_compose(uses)
    theirs = oracle.from_laplace_mechanism(1 / ratio, value_discretization_interval=ratio / 200)
    theirs = theirs.self_compose(uses)
    for delta in (1e-2, 1e-5, 1e-8):
        assert ours.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-3)


@pytest.mark.parametrize(("mu", "uses"), [(0.1, 1000), (1.0, 1), (2.0, 30), (0.003, 10_000)])
def test_gaussian_composition_is_exact_from_above(mu, uses):
    ours = gaussian(mu).self_compose(uses)
    for delta in (1e-2, 1e-5, 1e-9):
        exact = gaussian_epsilon(delta, mu * math.sqrt(uses))
        assert exact <= ours.epsilon(delta) * (1 + 1e-12) <= 1.001 * exact + 1e-12


@pytest.mark.parametrize(("epsilon", "uses"), [(0.1, 1000), (1.0, 7), (4.0, 50), (1.0, 1)])
def test_randomized_response_composition_is_exact_from_above(epsilon, uses):
    ours = response_loss(epsilon).self_compose(uses)
    for delta in (1e-2, 1e-5, 1e-9):
        exact = response_epsilon(delta, epsilon, uses)
        assert exact * (1 - 1e-9) <= ours.epsilon(delta) <= 1.005 * exact + 1e-12


def test_different_releases_compose_as_the_oracles():
    ours = PrivacyLoss.laplace(0.3).self_compose(20).compose(gaussian(0.8).self_compose(4))
    theirs = oracle.from_laplace_mechanism(
        1 / 0.3, value_discretization_interval=1e-3
    ).self_compose(20)
    gaussians = oracle.from_gaussian_mechanism(
        1 / 0.8, value_discretization_interval=1e-3
    ).self_compose(4)
    expected = theirs.compose(gaussians).get_epsilon_for_delta(1e-5)
    assert ours.epsilon(1e-5) == pytest.approx(expected, rel=2e-3)


@given(ratio=st.floats(1e-3, 30.0), k=st.integers(1, 12), part=parts)
@settings(max_examples=20)
def test_one_laplace_sum_is_bounded_from_above_and_tightly(ratio, k, part):
    loss, epsilon = PrivacyLoss.laplace(ratio, k), part * ratio
    exact, whole = sum_delta(epsilon, ratio, k), sum_delta(0.0, ratio, k)
    assert exact - ROUNDING <= loss.delta(epsilon) <= exact + 0.005 * whole
    assert loss.delta(ratio) == 0
    assert loss.epsilon(0.0) == ratio


@given(mu=st.floats(1e-3, 200.0), part=st.floats(0.0, 5.0))
@settings(max_examples=20)
def test_one_gaussian_is_bounded_from_above_and_tightly(mu, part):
    epsilon = part * mu + mu * mu / 4
    exact, loss = gaussian_delta(epsilon, mu), gaussian(mu)
    assert exact - ROUNDING <= loss.delta(epsilon) <= exact + 0.005 * gaussian_delta(0.0, mu)


@given(step=st.floats(4e-3, 3.0), part=parts, uses=st.integers(1, 30))
@settings(max_examples=20)
def test_any_grid_gives_an_upper_bound(step, part, uses):
    for loss, exact in (
        (gaussian(0.7, step=step), lambda e: gaussian_delta(e, 0.7 * math.sqrt(uses))),
        (response_loss(0.9, step=step), lambda e: response_delta(e, 0.9, uses)),
    ):
        epsilon = part * uses
        assert loss.self_compose(uses).delta(epsilon) >= exact(epsilon) * (1 - 2e-9) - ROUNDING


@given(
    epsilon=st.floats(0.0, 4.0),
    more=st.floats(0.0, 4.0),
    k=st.integers(1, 4),
    uses=st.integers(1, 40),
)
@settings(max_examples=15)
def test_delta_falls_with_epsilon_and_rises_with_use(epsilon, more, k, uses):
    one = PrivacyLoss.laplace(0.4, k)
    many = one.self_compose(uses)
    assert many.delta(epsilon + more) <= many.delta(epsilon) + ROUNDING
    assert many.compose(one).delta(epsilon) >= many.delta(epsilon) - ROUNDING
    assert (
        PrivacyLoss.laplace(0.4, k + 1).self_compose(uses).delta(epsilon)
        <= many.delta(epsilon) + 1e-4
    )


@given(log_delta=st.floats(-20.0, -0.1), uses=st.integers(1, 50))
@settings(max_examples=20)
def test_epsilon_and_delta_are_inverse(log_delta, uses):
    delta = math.exp(log_delta)
    for one in (PrivacyLoss.laplace(0.5, 2), gaussian(0.5)):
        together = one.self_compose(uses)
        epsilon = together.epsilon(delta)
        if 0 < epsilon < together.pure:
            assert together.delta(epsilon) == pytest.approx(delta, rel=1e-6, abs=0)
        else:
            assert together.delta(epsilon) <= delta


def test_powers_are_repeated_composition():
    one = PrivacyLoss.laplace(0.7, 3)
    seven = one
    for _ in range(6):
        seven = seven.compose(one)
    for epsilon in (0.0, 0.5, 2.0, 4.0):
        assert one.self_compose(7).delta(epsilon) == pytest.approx(seven.delta(epsilon), abs=1e-12)
    assert one.self_compose(7).pure == pytest.approx(7 * 0.7)


@pytest.mark.parametrize("cut", [1e-2, 1e-4])
def test_mass_that_is_cut_off_is_paid_for(monkeypatch, cut):
    monkeypatch.setattr(loss_distribution, "CUT", cut)
    for loss in (
        gaussian(0.1).self_compose(400),
        gaussian(1.0).self_compose(4),
    ):
        for epsilon in (0.0, 2.0, 5.0, 8.0, 12.0):
            assert loss.delta(epsilon) >= gaussian_delta(epsilon, 2.0) - ROUNDING
        # Once for what may wrap around, and once for what is trimmed.
        assert 1.8 * cut <= loss.infinity <= 2.1 * cut


def test_cutting_the_ends_moves_mass_up_and_loses_none():
    at = np.array([0.0, 0.01, 0.02, 0.5, 0.4, 0.03, 0.02, 0.02])
    first, kept, lost = trim(10, at, 0.05)
    assert first == 13
    assert kept == pytest.approx([0.53, 0.4, 0.03])
    assert lost == pytest.approx(0.04)
    first, kept, lost = trim(10, at, 0.0)
    assert (first, len(kept), lost) == (11, 7, 0.0)
    first, kept, lost = trim(3, np.array([0.1, 0.2]), 1.0)
    assert kept.sum() + lost == pytest.approx(0.3)


@pytest.mark.parametrize("cells", [256, 2048])
def test_a_grid_that_would_be_too_long_is_made_coarser(monkeypatch, cells):
    monkeypatch.setattr(loss_distribution, "CELLS", cells)
    together = gaussian(0.1).self_compose(401)
    assert len(together.mass) <= 2 * cells
    exact = gaussian_epsilon(1e-5, 0.1 * math.sqrt(401))
    assert exact <= together.epsilon(1e-5) <= 1.1 * exact


def test_grids_of_different_steps_meet():
    fine, coarse = gaussian(0.3, step=1e-3), gaussian(0.4, step=0.1)
    exact = gaussian_epsilon(1e-6, 0.5)
    assert exact <= fine.compose(coarse).epsilon(1e-6) <= 1.05 * exact
    assert fine.compose(coarse).epsilon(1e-6) == pytest.approx(coarse.compose(fine).epsilon(1e-6))
    np.testing.assert_allclose(fine.regrid(fine.step / 4).delta(0.2), fine.delta(0.2), rtol=1e-12)
    assert fine.regrid(8 * fine.step).delta(0.2) >= fine.delta(0.2)


def test_nothing_and_everything():
    assert PrivacyLoss.none().self_compose(5).delta(0.0) == 0
    assert PrivacyLoss.laplace(0.0, 0).epsilon(0.0) == 0
    bare = PrivacyLoss.laplace(0.1, 0)
    assert bare.delta(100.0) == 1
    assert bare.self_compose(3).epsilon(0.5) == math.inf
    assert PrivacyLoss.laplace(0.1).compose(bare).epsilon(1e-5) == math.inf
    assert PrivacyLoss.laplace(0.1).self_compose(0).epsilon(0.0) == 0
    one = PrivacyLoss.laplace(0.6, 2)
    assert one.compose(PrivacyLoss.none()).delta(0.2) == pytest.approx(one.delta(0.2), abs=1e-13)


def test_a_chance_of_telling_everything_adds_up():
    leaky = PrivacyLoss(0, 1.0, np.array([0.9]), infinity=0.1)
    for thrice in (leaky.self_compose(3), leaky.compose(leaky).compose(leaky)):
        assert 1 - 0.9**3 <= thrice.delta(50.0) <= 0.3 + ROUNDING


def test_a_gaussian_has_no_pure_guarantee():
    assert gaussian(1.0).epsilon(0.0) == math.inf


def test_extreme_ratios_stay_upper_bounds():
    tiny = PrivacyLoss.laplace(1e-12, 2)
    assert tiny.delta(0.0) >= sum_delta(0.0, 1e-12, 2)
    assert tiny.self_compose(1000).epsilon(0.0) == pytest.approx(1e-9)
    for ratio in (700.0, 1e4):
        large = PrivacyLoss.laplace(ratio, 2)
        assert 0.98 * ratio < large.epsilon(1e-3) <= ratio
    assert gaussian(1e3).epsilon(1e-9) == pytest.approx(gaussian_epsilon(1e-9, 1e3), rel=1e-3)
