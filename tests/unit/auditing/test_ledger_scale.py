"""ε does not depend on units: step size, clipping and noise over twelve orders of magnitude."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings, strategies as st

import tacit
from support.bounds import DELTA, RING, ledger_of
from support.written import Two, WithZeros
from tacit import Gaussian, Laplace
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.privacy.clipping import Clip

OWN = float(RING.weights[0, 0])
magnitudes = st.floats(-12, 0).map(lambda exponent: 10.0**exponent)
bounds = st.floats(-6, 6).map(lambda exponent: 10.0**exponent)


def upper(algorithm, clip, steps, adversary="curious(1)"):
    return ledger_of(algorithm, adversary, steps, clip=clip).upper


@given(magnitudes, bounds, st.floats(-6, 6), st.integers(1, 4))
@settings(max_examples=60)
def test_diffusion_under_gaussian_noise(lr, limit, ratio, steps):
    """Each of T messages is a Gaussian mechanism with μ = γ 2C/σ."""
    mu = 10.0**ratio
    noise = Gaussian(lr * 2 * limit / mu)
    found = upper(tacit.PDLMS(lr=lr, noise=noise), Clip(limit), steps)
    exact = gaussian_epsilon(DELTA, mu * math.sqrt(steps))
    assert found.epsilon == pytest.approx(exact, rel=1e-6, abs=1e-12)


@given(magnitudes, bounds, st.floats(-6, 6), st.integers(1, 4))
@settings(max_examples=60)
def test_masked_diffusion_under_gaussian_noise(lr, limit, ratio, steps):
    """The own term keeps earlier gradients without noise: μₜ = μ (1 + a + … + aᵗ)."""
    mu = 10.0**ratio
    found = upper(tacit.MDSG(lr=lr, noise=Gaussian(lr * 2 * limit / mu)), Clip(limit), steps)
    sums = [sum(OWN**k for k in range(t + 1)) for t in range(steps)]
    exact = gaussian_epsilon(DELTA, mu * math.hypot(*sums))
    assert found.epsilon == pytest.approx(exact, rel=1e-6, abs=1e-12)


@given(magnitudes, bounds, st.floats(-6, 3), st.integers(1, 3))
@settings(max_examples=15)
def test_diffusion_under_laplace_noise(lr, limit, ratio, steps):
    """Each of T messages is a Laplace mechanism with ε = γ 2C/β."""
    epsilon = 10.0**ratio
    noise = Laplace(lr * 2 * limit / epsilon)
    found = upper(tacit.PDLMS(lr=lr, noise=noise), Clip(limit, "l1"), steps)
    pure = steps * epsilon
    composed = PrivacyLoss.laplace(epsilon).self_compose(steps).epsilon(DELTA)
    least = pure if steps == 1 else min(pure, composed)
    assert found.epsilon == pytest.approx(least, rel=2e-3)


def test_many_laplace_messages_cost_less_than_their_sum():
    found = upper(tacit.PDLMS(lr=0.1, noise=Laplace(4.0)), Clip(1.0, "l1"), 20)
    assert found.delta == DELTA
    assert found.epsilon < 0.8 * 20 * 0.1 * 2 / 4.0


@given(magnitudes, bounds)
@settings(max_examples=60)
def test_a_gradient_without_noise_is_never_too_small_to_matter(lr, features):
    found = upper(tacit.DSG(lr=lr), Clip(features), 2)
    assert math.isinf(found.epsilon)
    found = upper(tacit.DPDSGT(lr=lr, noise=Gaussian(1.0), inject="every"), Clip(features), 3)
    exact = gaussian_epsilon(DELTA, 2 * features)
    assert found.epsilon >= exact


@dataclass(frozen=True)
class Diverging(WithZeros):
    """A recursion whose coefficients grow out of range."""

    name = "diverging"

    def step(self, s, here) -> Two:
        x = s.theta - here.grad(s.theta) - here.noise("n", Gaussian(1.0)) + 1e20 * s.extra
        here.net.mix(x=x)
        return Two(s.theta, x)


def test_coefficients_out_of_range_have_no_bound():
    found = upper(Diverging(), Clip(1.0), 12)
    assert math.isinf(found.epsilon)
    assert "out of range" in found.why
