"""Algorithms for which the audit prints a finite ε that is false."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch

import tacit
from tacit import Gaussian
from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import ModelState
from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.ledger import compute_ledger
from tacit.auditing.bounds.whole_run import whole_run_bound
from tacit.auditing.symbolic.replay import replay
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.fixed_point import FixedPoint
from tacit.privacy.accounting.sampled_gaussian import sampled_gaussian_epsilon

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
DELTA, STEPS = 1e-5, 50


def audited(algorithm, parameters, steps=STEPS):
    """ε of the ledger for two iterations and of the whole run, as `run_audit` computes them."""
    run = run_on_symbols(algorithm, RING, 2)
    mismatches = replay(algorithm, RING, run, width=min(parameters, 64))
    who = Adversary.curious(1)
    ledger = compute_ledger(
        run, who, 0, clip=None, parameters=parameters, delta=DELTA, mismatches=mismatches
    )
    whole = None
    if math.isfinite(ledger.upper.epsilon):
        whole = whole_run_bound(
            algorithm, RING, who, 0, steps, clip=None, parameters=parameters, delta=DELTA
        )
    print([m.what for m in mismatches], ledger.upper, whole)
    return ledger.upper.epsilon, None if whole is None else whole.epsilon


@dataclass(frozen=True)
class Base(Algorithm):
    name: ClassVar[str] = "attack"
    needs_total: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("undirected", "connected")
    code: FixedPoint = FixedPoint(2.0**14, DiscreteGaussian(0))

    def start(self, here):
        return ModelState(here.theta0)


@dataclass(frozen=True)
class Mean(Base):
    """Clients encode their share of the mean, not of the sum: rounding is not scaled by 1/B."""

    batch: float = 1e5

    def step(self, s, here):
        own = (1 / self.batch) * here.clipped_sum(s.theta, 1.0, 0.5)
        (total,) = here.net.total(update=here.fixed_point("update", own, self.code))
        return ModelState(s.theta - total)


def test_rounding_of_scaled_rows():
    parameters = 1_000_000
    algorithm = Mean()
    code, honest = algorithm.code, 4
    _, found = audited(algorithm, parameters)
    # A sample of norm 1 changes the row by 1e-5, and rounding by up to √P/s = 1000/2¹⁴ more.
    change = 1 / algorithm.batch + math.sqrt(parameters) / code.scale
    true = sampled_gaussian_epsilon(
        code.noise_deviation * math.sqrt(honest) / change, 0.5, STEPS, DELTA
    )
    print("audit", found, "true up to", true)
    # Not only a bound: rows with all coordinates just below a half, and a tiny sample.
    rows = torch.full((1, parameters), 0.4999 / code.scale, dtype=torch.float64)
    moved = rows + 0.0003 / code.scale  # norm 0.3/2¹⁴ = 1.8e-5 ~ what samples change
    difference = (code.encode(moved) - code.encode(rows)).double().norm()
    print("integers move by", float(difference), "noise", code.noise.scale)
    assert found is None or found >= true


@dataclass(frozen=True)
class SameName(Base):
    """Noise of another stream with the name that audits give to integer noise."""

    def step(self, s, here):
        own = here.clipped_sum(s.theta, 1.0, 0.5)
        own = own + here.noise("update/noise", Gaussian(self.code.noise_deviation))
        (total,) = here.net.total(update=here.fixed_point("update", own, self.code))
        return ModelState(s.theta - total)


def test_noise_with_the_name_of_integer_noise():
    algorithm = SameName(code=FixedPoint(2.0**9, DiscreteGaussian(0)))
    _, found = audited(algorithm, 1)
    # Two independent noises: √2 times one, not twice.
    sd = math.sqrt(2 * 4) * algorithm.code.noise_deviation
    true = sampled_gaussian_epsilon(sd / (1 + 1 / algorithm.code.scale), 0.5, STEPS, DELTA)
    print("audit", found, "true", true)
    assert found is None or found >= true * 0.999


@dataclass(frozen=True)
class Closure(Base):
    """A step that is declared a function of the total, and also uses the client's own gradient."""

    def step(self, s, here):
        own = here.clipped_sum(s.theta, 1.0, 0.5)
        (total,) = here.net.total(update=here.fixed_point("update", own, self.code))
        step = here.nonlinear("step", lambda rows: rows.tanh() + own[:1], total, deterministic=True)
        (theta,) = here.net.mix(theta=s.theta - step)
        return ModelState(theta)


def test_a_deterministic_step_with_a_hidden_input():
    ledger, found = audited(Closure(code=FixedPoint(2.0**9, DiscreteGaussian(0))), 6)
    assert math.isinf(ledger)
    assert found is None


@dataclass(frozen=True)
class Chosen(Base):
    """Tells everybody which samples were drawn."""

    def step(self, s, here):
        own = here.clipped_sum(s.theta, 1.0, 0.01)

        def peek(rows):
            return 1e-9 * here.words("sampling/0", rows.shape[1]).to(rows.dtype)

        words = here.nonlinear("peek", peek, 0.0 * s.theta)
        (total,) = here.net.total(update=here.fixed_point("update", own, self.code))
        (_,) = here.net.mix(words=words)
        return ModelState(s.theta - total)


def test_sampling_that_is_published():
    algorithm = Chosen(code=FixedPoint(2.0**9, DiscreteGaussian(0)))
    ledger, found = audited(algorithm, 6)
    noise = 2 * algorithm.code.noise_deviation / (1 + math.sqrt(6) / 2**9)
    # Given the choice, a sample that is in one sum is exposed without amplification.
    true = sampled_gaussian_epsilon(noise, 1.0, 1, DELTA / 0.01 / 2)
    two = 1 - 0.99**2
    print(
        "audit of 2", ledger, "true at least", sampled_gaussian_epsilon(noise, 1.0, 1, DELTA / two)
    )
    assert math.isinf(ledger) or ledger >= sampled_gaussian_epsilon(noise, 1.0, 1, DELTA / two)


@dataclass(frozen=True)
class Narrow(Base):
    """One random number for all coordinates: noise in one direction only."""

    def step(self, s, here):
        own = here.clipped_sum(s.theta, 1.0, 0.5)
        noisy = own + here.noise("u", Gaussian(3.0), width=1)
        (theta,) = here.net.mix(theta=s.theta - noisy)
        return ModelState(theta)


def test_noise_of_one_number():
    try:
        ledger, _ = audited(Narrow(), 6)
    except Exception as problem:
        print(type(problem), problem)
        return
    assert math.isinf(ledger)
