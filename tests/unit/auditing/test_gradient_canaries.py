"""Gradient canaries: below the proved ε for what is right, above it for what is broken."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import tacit
from support.bounds import DELTA, RING, threat, whole_run_of
from support.suited import Changed
from tacit import Adversary, Decor, Privacy, PrivateSGD
from tacit.auditing.canaries import trials as trials_module
from tacit.auditing.canaries.copies import disjoint_copies, run_copies
from tacit.auditing.canaries.gradient import GradientLikelihood
from tacit.auditing.canaries.trials import canary_trials
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.hosted_clients import Sampling
from tacit.core.randomness import Philox
from tacit.engines.gradients import clipped
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.setting import Setting
from tacit.gradients.products import write_clipped_sums
from tacit.privacy.population import Population

N, STEPS, EPSILON = 5, 4, 3.0
ONE, BOTH = Adversary.curious(1), Adversary.curious(1, 4)


def prepared(kind, samples=20):
    """A setting with a promise for a few iterations, of which each draws 10 samples."""
    task = tacit.quadratic(torch.eye(6).repeat(N, 1, 1), torch.zeros(N, 6))
    facts = Population(N, samples, 10, task.parameters, STEPS)
    algorithm = kind(lr=0.1).prepared(Privacy(EPSILON, DELTA), facts, RING)
    return Setting(algorithm, task, RING)


def measured(setting, adversary=ONE, trials=20_000, **options):
    """Canaries of client 0, beside the bound that is proved from the messages."""
    algorithm, parameters = setting.algorithm, setting.task.parameters
    run = run_on_symbols(algorithm, RING, STEPS, common_start=True)
    upper = whole_run_of(algorithm, adversary, STEPS, parameters=parameters)
    return canary_trials(setting, adversary, analysed=(run, upper), trials=trials, **options)


@pytest.mark.parametrize("kind", [PrivateSGD, Decor])
def test_the_promised_noise_is_no_defect(kind):
    found = measured(prepared(kind))
    assert found.upper.epsilon <= EPSILON
    assert 0.4 * found.upper.epsilon < found.lower.epsilon < found.upper.epsilon
    assert 0.85 * found.upper.epsilon < found.gaussian_epsilon < found.upper.epsilon
    assert not found.is_defect
    assert "proved is ε ≤" in str(found)


@pytest.mark.parametrize("kind", [PrivateSGD, Decor])
def test_a_coalition_that_isolates_a_client_sees_more(kind):
    """It subtracts what it knows: in the sum of all, the canary is hidden much better."""
    found = measured(prepared(kind), BOTH)
    assert found.component == (0,)
    assert found.upper.epsilon > 1.5 * EPSILON
    assert EPSILON < found.gaussian_epsilon < found.upper.epsilon
    assert not found.is_defect


@dataclass(frozen=True)
class Broken(PrivateSGD):
    """Declares one mechanism, and the fast engine uses another."""

    instead: object = None

    def step(self, s, here):
        if isinstance(here, LazyClients):
            return PrivateSGD.step(replace(self, mechanism=self.instead), s, here)
        return super().step(s, here)


@dataclass(frozen=True)
class BrokenDecor(Decor):
    """The same for noise that cancels between neighbours."""

    instead: object = None

    def step(self, s, here):
        if isinstance(here, LazyClients):
            return Decor.step(replace(self, mechanism=self.instead), s, here)
        return super().step(s, here)


def without_noise(mechanism):
    return Changed(mechanism, {"code": replace(mechanism.code, noise=None)})


def less_noise(mechanism):
    # Three times as many integers per unit, under the same noise.
    code = replace(mechanism.code, scale=3 * mechanism.code.scale)
    return Changed(mechanism, {"code": code})


def less_own_noise(mechanism):
    return Changed(mechanism, {"own": mechanism.own / 3, "shared": mechanism.shared / 3})


def every_sample(mechanism):
    return Changed(mechanism, {"sampling_rate": 1.0})


@pytest.mark.parametrize(
    ("kind", "change", "adversary"),
    [
        (Broken, without_noise, ONE),
        (Broken, less_noise, ONE),
        # Curious clients would subtract noise that is not there.
        (BrokenDecor, less_own_noise, Adversary.eavesdropper()),
    ],
)
def test_missing_noise_is_caught(kind, change, adversary):
    setting = prepared(kind)
    broken = replace(setting.algorithm, instead=change(setting.algorithm.mechanism))
    found = measured(replace(setting, algorithm=broken), adversary)
    assert found.upper.epsilon <= EPSILON < found.lower.epsilon
    assert found.is_defect
    assert "a defect" in str(found)


@pytest.mark.parametrize("kind", [Broken, BrokenDecor])
def test_samples_that_are_drawn_too_often_are_caught(kind):
    setting = prepared(kind, samples=100)
    mechanism = setting.algorithm.mechanism
    broken = replace(setting.algorithm, instead=every_sample(mechanism))
    found = measured(replace(setting, algorithm=broken))
    assert found.upper.epsilon <= EPSILON < found.lower.epsilon
    assert found.is_defect


@pytest.mark.parametrize("kind", [PrivateSGD, Decor])
def test_missing_clipping_is_caught(kind, monkeypatch):
    def unclipped(products, bound, sums):
        write_clipped_sums(products, math.inf, sums)

    monkeypatch.setattr(clipped, "write_clipped_sums", unclipped)
    found = measured(prepared(kind), trials=4_000)
    assert found.upper.epsilon <= EPSILON < found.lower.epsilon
    assert found.is_defect


@pytest.mark.parametrize("kind", [PrivateSGD, Decor])
@pytest.mark.parametrize("adversary", [ONE, BOTH], ids=str)
def test_noisy_sums_have_the_distribution_that_the_bound_assumes(kind, adversary):
    """Without a canary they are N(0, s²), and with it C is added as often as a sample is drawn."""
    setting, copies = prepared(kind), 4_000
    run = run_on_symbols(setting.algorithm, RING, STEPS, common_start=True)
    likelihood = GradientLikelihood.of(run, threat(adversary).stronger, 0)
    canaries, there = likelihood.draw(copies, 2, 7, torch.float64, "cpu")
    observed = run_copies(
        setting.algorithm, disjoint_copies(RING, copies), STEPS, canaries,
        Philox(3, 2, torch.float64), likelihood.component,
    )  # fmt: skip
    sums = likelihood.noisy_sums(observed) / likelihood.deviations
    few = 5 / math.sqrt(copies / 2)
    assert abs(sums[~there].mean(axis=0)).max() < few
    np.testing.assert_allclose(sums[~there].std(axis=0), 1.0, atol=few)
    shift = likelihood.rates * likelihood.bounds / likelihood.deviations
    np.testing.assert_allclose(sums[there].mean(axis=0), shift, atol=2 * few)


def test_the_same_sums_are_measured_once():
    """An eavesdropper and one curious client learn sums of different clients."""
    setting = prepared(PrivateSGD)
    one = measured(setting, trials=2_000)
    again = measured(setting, trials=2_000, earlier=[one], seed=1)
    assert again == one
    outside = measured(setting, Adversary.eavesdropper(), trials=2_000, earlier=[one])
    assert outside.component == (0, 1, 2, 3, 4)


def test_time_is_limited_and_said_so(monkeypatch):
    monkeypatch.setattr(GradientLikelihood, "numbers", 1)
    calls = []
    found = measured(
        prepared(PrivateSGD), trials=10_000, seconds=0.0,
        progress=lambda what, done, of: calls.append(done),
    )  # fmt: skip
    assert found.stopped
    assert calls == [found.trials] == [trials_module.FEWEST]


def test_a_canary_is_as_long_as_clipping_allows():
    run = run_on_symbols(prepared(PrivateSGD).algorithm, RING, 1, common_start=True)
    likelihood = replace(GradientLikelihood.of(run, ONE, 2), bounds=np.array([0.5]))
    canaries, there = likelihood.draw(50, 3, 0, torch.float32, "cpu")
    always = Sampling(
        1.0, 0.5, lambda rows, width: torch.zeros(len(rows), width, dtype=torch.int64)
    )
    rows = canaries.clipped_sum(canaries.theta0(), always, 0).reshape(50, N, 3)
    assert rows[:, [0, 1, 3, 4]].count_nonzero() == 0
    assert rows[~there].count_nonzero() == 0
    norms = rows[there, 2].double().norm(dim=1)
    assert (norms <= 0.5).all()
    torch.testing.assert_close(norms, torch.full_like(norms, always.clip), rtol=1e-4, atol=0)


def test_reasons_against_a_measurement():
    algorithm = tacit.PDLMS(lr=0.1, noise=tacit.Gaussian(1.0))
    run = run_on_symbols(algorithm, RING, 2)
    assert "sums over samples" in GradientLikelihood.of(run, ONE, 0)
