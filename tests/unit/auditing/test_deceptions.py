"""Algorithms that would deceive an audit of sums over samples, one for each way of doing it."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest

from support.bounds import DELTA, RING, threat, whole_run_of
from support.written import FromFirstModels
from tacit import Gaussian
from tacit.algorithms.diffusion import ModelState
from tacit.auditing.bounds.ledger import compute_ledger
from tacit.auditing.symbolic.replay import replay
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.core.fixed_point import FixedPoint
from tacit.privacy.accounting.sampled_gaussian import sampled_gaussian_epsilon

STEPS, RATE, HONEST = 50, 0.5, 4
CODE = FixedPoint(2.0**9, DiscreteGaussian(0))


def audited(algorithm, parameters=6):
    """The bound of two iterations, as an audit computes it, and what it is mistaken about."""
    run = run_on_symbols(algorithm, RING, 2)
    mismatches = replay(algorithm, RING, run, width=min(parameters, 64))
    upper = compute_ledger(run, threat("curious(1)", parameters=parameters), mismatches).upper
    return upper, [one.what for one in mismatches]


def whole_run(algorithm, parameters):
    """ε of all iterations."""
    return whole_run_of(algorithm, steps=STEPS, parameters=parameters).epsilon


@dataclass(frozen=True)
class Sums(FromFirstModels):
    """Descends along sums over samples."""

    name: ClassVar[str] = "sums"
    needs_total: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("undirected", "connected")
    code: FixedPoint = CODE

    def total(self, rows, here):
        (total,) = here.net.total(update=here.fixed_point("update", rows, self.code))
        return total


@dataclass(frozen=True)
class ScaledBeforeRounding(Sums):
    """Encodes a part of the sum: rounding then moves far more than the sample does."""

    factor: float = 1e-5

    def step(self, s, here):
        own = self.factor * here.clipped_sum(s.theta, 1.0, RATE)
        return ModelState(s.theta - self.total(own, here))


def test_rounding_of_scaled_rows_counts_in_full():
    parameters = 1_000_000
    algorithm = ScaledBeforeRounding(code=FixedPoint(2.0**14, DiscreteGaussian(0)))
    change = algorithm.factor + math.sqrt(parameters) / algorithm.code.scale
    multiplier = math.sqrt(HONEST) * algorithm.code.noise_deviation / change
    true = sampled_gaussian_epsilon(multiplier, RATE, STEPS, DELTA)
    # Both are rounded, and not alike on all processors.
    assert whole_run(algorithm, parameters) >= true * (1 - 1e-9)


@dataclass(frozen=True)
class TwoNoises(Sums):
    """Adds noise before it is encoded, under some tag."""

    tag: str = "update/noise"

    def step(self, s, here):
        own = here.clipped_sum(s.theta, 1.0, RATE)
        own = own + here.noise(self.tag, Gaussian(self.code.noise_deviation))
        return ModelState(s.theta - self.total(own, here))


def test_noise_of_two_streams_does_not_add_up_as_one():
    """As one stream it would be twice the noise; two have √2 times as much."""
    algorithm = TwoNoises()
    multiplier = math.sqrt(2 * HONEST) * CODE.noise_deviation / (1 + 1 / CODE.scale)
    true = sampled_gaussian_epsilon(multiplier, RATE, STEPS, DELTA)
    assert whole_run(algorithm, 1) == pytest.approx(true, rel=1e-3)


def test_the_tag_of_integer_noise_is_refused():
    with pytest.raises(Misuse, match="reserved"):
        audited(TwoNoises(tag="Σ update/noise"))


@dataclass(frozen=True)
class HiddenInput(Sums):
    """Declares a step a function of the total, and uses its own sum there."""

    def step(self, s, here):
        own = here.clipped_sum(s.theta, 1.0, RATE)
        total = self.total(own, here)
        step = here.nonlinear("step", lambda rows: rows.tanh() + own[:1], total, deterministic=True)
        return ModelState(*here.net.mix(theta=s.theta - step))


def test_a_hidden_input_of_a_deterministic_step_is_found():
    upper, mismatches = audited(HiddenInput())
    assert math.isinf(upper.epsilon)
    assert "the result of the non-linear step 'step' depends on more than its rows" in mismatches


@dataclass(frozen=True)
class PublishedDraws(Sums):
    """Sends the words by which samples are drawn, if it can have them."""

    def step(self, s, here):
        own = here.clipped_sum(s.theta, 1.0, 0.01)

        def words(rows):
            return 1e-9 * here.words("Σ sampling/0", rows.shape[1]).to(rows.dtype)

        (_,) = here.net.mix(words=here.nonlinear("words", words, 0.0 * s.theta))
        return ModelState(s.theta - self.total(own, here))


def test_the_tag_of_sampling_is_refused():
    with pytest.raises(Misuse, match=r"'Σ sampling/0' begins with Σ, which is reserved"):
        audited(PublishedDraws())


@dataclass(frozen=True)
class OneNumber(Sums):
    """The same random number in all coordinates: noise in one direction only."""

    needs_total: ClassVar[bool] = False

    def step(self, s, here):
        noisy = here.clipped_sum(s.theta, 1.0, RATE) + here.noise("u", Gaussian(3.0), width=1)
        return ModelState(*here.net.mix(theta=s.theta - noisy))


def test_noise_of_one_number_is_no_noise():
    upper, mismatches = audited(OneNumber())
    assert math.isinf(upper.epsilon)
    assert mismatches
