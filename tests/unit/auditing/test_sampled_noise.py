"""Bounds per sample for sums over Poisson samples."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

import tacit
from support.bounds import DELTA, RING, ledger_of, whole_run_of
from support.suited import Changed, guaranteed, made
from support.written import FromFirstModels
from tacit import Adversary, Decor, Privacy, PrivateSGD
from tacit.algorithms.diffusion import ModelState
from tacit.auditing.bounds.added_noise import IDEAL_NOISE
from tacit.auditing.bounds.sampled_noise import SampledLoss, sampled_loss
from tacit.auditing.bounds.secret_rows import NoBound, SecretRows
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.privacy.accounting.sampled_gaussian import sampled_gaussian_epsilon

N, P, STEPS = 5, 6, 3
CURIOUS = Adversary.curious(1)


def ledger(algorithm, adversary=CURIOUS, victim=3, graph=RING, steps=STEPS):
    about = {"victim": victim, "graph": graph, "parameters": P}
    return ledger_of(algorithm, adversary, steps, common_start=True, **about)


def whole(algorithm, adversary=CURIOUS, victim=3, graph=RING, steps=20):
    about = {"victim": victim, "graph": graph, "parameters": P}
    return whole_run_of(algorithm, adversary, steps, **about)


def private(**options):
    return guaranteed(made(PrivateSGD, **options), RING, parameters=P)


def multiplier(algorithm, honest):
    """The noise of so many clients over what a sample changes."""
    code, bound = algorithm.mechanism.code, algorithm.mechanism.bound
    change = bound + math.sqrt(P) / code.scale
    return math.sqrt(honest) * code.noise_deviation / change


@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": 0.9}, {"optimizer": "adam"}, {"lr": tacit.Exponential(0.1, 0.9)}],
    ids=str,
)
def test_the_bound_is_that_of_the_noise_of_all_honest_clients(options):
    algorithm = private(**options)
    rate = algorithm.mechanism.sampling_rate
    found = ledger(algorithm).upper
    expected = sampled_gaussian_epsilon(multiplier(algorithm, N - 1), rate, STEPS, DELTA)
    assert found.epsilon == pytest.approx(expected, rel=1e-9)
    assert found.delta == DELTA
    assert "3 sums of clipped gradients" in found.why
    assert "probability 0.5" in found.why
    # Integers are what is really sent.
    assert IDEAL_NOISE not in found.assumptions
    run = whole(algorithm)
    expected = sampled_gaussian_epsilon(multiplier(algorithm, N - 1), rate, 20, DELTA)
    assert run.epsilon == pytest.approx(expected, rel=1e-9)


def test_a_whole_run_keeps_the_promise_against_each_client():
    algorithm = private()
    for curious in range(N):
        for victim in set(range(N)) - {curious}:
            found = whole(algorithm, Adversary.curious(curious), victim)
            assert 0.99 * 3.0 < found.epsilon <= 3.0


def test_a_victim_between_curious_clients_has_its_own_noise_only():
    algorithm = private()
    found = ledger(algorithm, Adversary.curious(2, 4)).upper
    rate = algorithm.mechanism.sampling_rate
    expected = sampled_gaussian_epsilon(multiplier(algorithm, 1), rate, STEPS, DELTA)
    assert found.epsilon == pytest.approx(expected, rel=1e-9)


def test_without_noise_there_is_no_guarantee():
    algorithm = guaranteed(made(PrivateSGD), RING, promise=Privacy(math.inf))
    found = ledger(algorithm).upper
    assert math.isinf(found.epsilon)
    assert "+1·g[3](1)" in found.why
    assert whole(algorithm) is None


def test_clients_have_no_bound_by_samples():
    """Of a clipped sum of gradients of batches nothing is proved here."""
    promise = Privacy(3.0, delta=0.01, unit="client")
    algorithm = guaranteed(made(PrivateSGD), RING, promise=promise)
    assert math.isinf(ledger(algorithm).upper.epsilon)
    assert whole(algorithm) is None


def test_noise_in_floating_point_is_ideal():
    algorithm = guaranteed(made(Decor), RING, parameters=P)
    found = ledger(algorithm).upper
    assert IDEAL_NOISE in found.assumptions
    # The worst client against the worst coalition of one.
    worst = max(
        whole(algorithm, Adversary.curious(curious), victim).epsilon
        for curious in range(N)
        for victim in set(range(N)) - {curious}
    )
    assert worst == pytest.approx(algorithm.budget.spent(20), rel=1e-6)


@dataclass(frozen=True)
class Samples(FromFirstModels):
    """Sends sums over samples under noise, in one of several ways."""

    name: ClassVar[str] = "samples"
    law: object = tacit.Gaussian(2.0)
    again: bool = False  # the sum of the last iteration too, under the noise of this one
    plain: bool = False  # a gradient of a batch too

    @property
    def gradients_per_step(self):
        return 2

    def step(self, s, here) -> ModelState:
        total = here.clipped_sum(s.theta, 1.0, 0.1)
        if self.plain:
            total = total + here.grad(s.theta, 1)
        if self.again:
            total = total + 0.5 * here.clipped_sum(s.theta, 1.0, 0.1, 1)
        (theta,) = here.net.mix(x=s.theta - 0.1 * total + here.noise("z", self.law))
        return ModelState(theta)


def loss_of(algorithm):
    run = run_on_symbols(algorithm, RING, 1)
    return sampled_loss(SecretRows.of(run, CURIOUS | Adversary.eavesdropper(), 3), P)


def test_one_sum_under_own_noise():
    loss = loss_of(Samples())
    # A step of 0.1, under noise of deviation 2.
    assert loss.noise_multiplier == pytest.approx(20)
    assert (loss.sampling_rate, loss.releases, loss.ideal) == (0.1, 1, True)


@pytest.mark.parametrize(
    ("algorithm", "why"),
    [
        (Samples(law=tacit.Laplace(2.0)), "Gaussian noise only"),
        (Samples(again=True), "under the same noise"),
        (Samples(law=tacit.Gaussian(0.0)), "noise cancels"),
    ],
)
def test_reasons_against_a_bound(algorithm, why):
    with pytest.raises(NoBound, match=why):
        loss_of(algorithm)
    assert whole(algorithm) is None


def test_gradients_of_samples_and_of_batches_do_not_go_together():
    upper = ledger(Samples(plain=True), steps=1).upper
    assert math.isinf(upper.epsilon)
    assert "both sent" in upper.why


def test_losses_are_composed():
    loss = SampledLoss(1.5, 0.01, 100, ideal=False)
    bound = loss.bound(DELTA)
    assert bound.epsilon == sampled_gaussian_epsilon(1.5, 0.01, 100, DELTA)
    assert replace(loss, releases=200).bound(DELTA).epsilon > bound.epsilon
    assert replace(loss, ideal=True).bound(DELTA).assumptions == (IDEAL_NOISE,)


def test_rounding_is_part_of_what_a_sample_changes():
    """With √P/s of a tenth, a bound that left it out would be a tenth too small."""
    coarse = private()
    code = replace(coarse.mechanism.code, scale=10 * math.sqrt(P))
    algorithm = replace(coarse, mechanism=Changed(coarse.mechanism, {"code": code}))
    run = run_on_symbols(algorithm, RING, 1, common_start=True)
    loss = sampled_loss(SecretRows.of(run, CURIOUS | Adversary.eavesdropper(), 3), P)
    expected = math.sqrt(N - 1) * code.noise_deviation / (1 + 0.1)
    assert loss.noise_multiplier == pytest.approx(expected, rel=1e-9)


def test_masks_are_never_in_a_bound():
    algorithm = private()
    run = run_on_symbols(algorithm, RING, 2, common_start=True)
    view = SecretRows.of(run, CURIOUS, 3)
    kinds = {unknown.kind for unknown in (*view.gradients, *view.noise, *view.others)}
    assert kinds == {"gradient", "noise"}
    gradients = [u for u, _ in view.combined(torch.ones(len(view.rows)).numpy())]
    assert {u.kind for u in gradients} == {"gradient"}
    # Each combination is seen with the last of its messages: in its own iteration.
    ticks = [run.transcript.messages[row.message].tick for row in view.rows]
    signals = [[view.gradients[k].when for k in row.nonzero()[0]] for row in view.signal]
    assert signals == [[tick] for tick in ticks]
    assert set(ticks) == {1, 2}
