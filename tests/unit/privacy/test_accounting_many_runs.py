"""Several runs on the same rows, against dp-accounting and against formulas."""

import math

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import optimize, stats

from tacit.privacy.accounting.many_runs import Releases, composed_epsilon
from tacit.privacy.accounting.sampled_gaussian import sampled_gaussian_epsilon
from tacit.privacy.guarantee import Privacy

DELTA = 1e-5
SAMPLED, OTHER = Releases(1.0, 0.01, 1000), Releases(2.5, 0.05, 300)


def by_dp_accounting(runs):
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for run in runs:
        event = dp_accounting.GaussianDpEvent(run.noise_multiplier)
        if run.sampling_rate < 1:
            event = dp_accounting.PoissonSampledDpEvent(run.sampling_rate, event)
        accountant.compose(event, run.steps)
    return accountant.get_epsilon(DELTA)


@pytest.mark.parametrize(
    "runs",
    [
        [SAMPLED],
        [SAMPLED, SAMPLED, SAMPLED],
        [SAMPLED, OTHER],
        [SAMPLED, Releases(20.0, 1.0, 50)],
        [SAMPLED, OTHER, Releases(0.8, 0.003, 1000), Releases(1.8, 2048 / 60000, 1160)],
    ],
)
def test_runs_compose_as_in_dp_accounting(runs):
    ours, theirs = composed_epsilon(runs, DELTA), by_dp_accounting(runs)
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours >= (1 - 1e-4) * theirs


def test_runs_that_use_every_sample_are_one_gaussian_release():
    mu = math.sqrt(50 / 10**2 + 30 / 20**2)

    def delta(epsilon):
        ends = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        return stats.norm.sf(ends[0]) - math.exp(epsilon) * stats.norm.sf(ends[1])

    expected = optimize.brentq(lambda epsilon: delta(epsilon) - DELTA, 0, 20)
    found = composed_epsilon([Releases(10.0, 1.0, 50), Releases(20.0, 1.0, 30)], DELTA)
    assert found == pytest.approx(expected, rel=1e-9)


def test_two_halves_of_a_run_are_the_run():
    half = Releases(1.0, 0.01, 500)
    whole = sampled_gaussian_epsilon(1.0, 0.01, 1000, DELTA)
    assert composed_epsilon([half, half], DELTA) == pytest.approx(whole, rel=1e-6)
    assert composed_epsilon([], DELTA) == composed_epsilon([Releases(0.0, 0.1, 0)], DELTA) == 0


def test_a_run_without_noise_leaves_no_guarantee():
    assert composed_epsilon([SAMPLED, Releases(0.0, 0.01, 1)], DELTA) == math.inf


def test_a_distance_from_gaussian_noise_costs_delta_at_the_epsilon_of_all_runs():
    distance = 2e-7
    ideal = composed_epsilon([SAMPLED, OTHER], DELTA)
    epsilon = composed_epsilon([SAMPLED, Releases(2.5, 0.05, 300, distance)], DELTA)
    left = DELTA - distance * (1 + math.exp(epsilon))
    assert ideal < epsilon < 2 * ideal
    # Neither too small for what is left of δ, nor much larger than necessary.
    assert composed_epsilon([SAMPLED, OTHER], left) == pytest.approx(epsilon, rel=1e-5)
    assert composed_epsilon([SAMPLED, OTHER], left) <= epsilon
    assert composed_epsilon([Releases(1.0, 0.01, 1000, 0.1)], DELTA) == math.inf


def test_the_releases_of_one_budget_spend_what_it_says():
    budget = Privacy(3.0, DELTA).budget(0.03, 300, clients=5, extra_delta=3e-7)
    for steps in (1, 150, 300):
        alone = composed_epsilon([budget.releases(steps)], DELTA)
        # Far from the promised ε the distance costs less than what the budget sets aside for it.
        assert alone == pytest.approx(budget.spent(steps), rel=1e-2)
        assert alone <= budget.spent(steps) * (1 + 1e-5)
