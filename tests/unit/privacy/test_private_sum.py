"""The noise of a private sum is what the accountant counts on, for every promise and population."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, strategies as st

from support.misuse import assert_mentions, misuse_message
from tacit.core.discrete_gaussian import MAX_FACTOR
from tacit.core.errors import Misuse
from tacit.core.fixed_point import LARGEST_TOTAL, MODULUS, wrapped
from tacit.privacy.accounting.integer_noise import TAU
from tacit.privacy.guarantee import Privacy
from tacit.privacy.population import Population
from tacit.privacy.private_sum import (
    LARGEST_GRADIENT,
    MOST_OVERHEAD,
    OVERHEAD,
    PrivateSum,
)

# About MNIST on ten clients: small overheads fit.
FACTS = Population(clients=10, samples=60_000, batch=2048, parameters=26_010, steps=100)


def private_sum(promise, bound, facts):
    return PrivateSum(replace(promise, clip=bound), facts)


@pytest.fixture(scope="module")
def promise():
    # Given noise, so that nothing is calibrated.
    return Privacy(epsilon=8.0, noise_multiplier=1.5)


def sensitivity(mechanism, parameters):
    """s·C + √P: by how much a sample changes integers at most."""
    return mechanism.code.scale * mechanism.bound + math.sqrt(parameters)


populations = st.builds(
    Population,
    clients=st.integers(1, 500),
    samples=st.integers(10_000, 10**6),
    batch=st.floats(1, 5000),
    parameters=st.integers(1, 10**6),
    steps=st.just(1),
)


@given(
    facts=populations,
    sigma=st.floats(0.3, 50.0),
    bound=st.floats(1e-3, 1e3),
    share=st.floats(0, 1),
)
def test_noise_of_the_honest_clients_is_sigma_times_what_a_sample_changes(
    facts, sigma, bound, share
):
    """σ²(s·C + √P)² = h·(variance of one client) − τ²: the noise of the accountant, exactly."""
    honest = max(1, round(share * facts.clients))
    promise = Privacy(epsilon=8.0, delta=1e-7, honest=honest, noise_multiplier=sigma)
    try:
        mechanism = private_sum(promise, bound, facts)
    except Misuse:
        assume(False)
    variance = honest * mechanism.code.noise.variance - TAU**2
    wanted = sigma * sensitivity(mechanism, facts.parameters)
    assert math.sqrt(variance) == pytest.approx(wanted, rel=1e-12)
    assert mechanism.budget.noise_multiplier == sigma
    assert mechanism.budget.honest == honest
    # All that is ever summed has room, and rounding costs no more than is acceptable.
    assert mechanism.code.scale * bound * mechanism.expected < LARGEST_TOTAL
    assert math.sqrt(facts.parameters) <= MOST_OVERHEAD * mechanism.code.scale * bound * 1.0001


def test_sampling_and_sizes(promise):
    mechanism = private_sum(promise, 0.1, FACTS)
    assert mechanism.unit == "sample"
    assert mechanism.bound == 0.1
    assert mechanism.sampling_rate == pytest.approx(2048 / 60_000)
    assert mechanism.expected == pytest.approx(2048)
    assert mechanism.budget.steps == 100
    assert mechanism.budget.honest == 9
    everything = private_sum(promise, 0.1, replace(FACTS, batch=10**6))
    assert (everything.sampling_rate, everything.expected) == (1.0, 60_000)


@pytest.mark.parametrize("parameters", [10, 26_010, 1_000_000])
@pytest.mark.parametrize("clients", [10, 1000])
def test_rounding_costs_a_thousandth_of_the_noise_where_that_fits(promise, parameters, clients):
    facts = replace(FACTS, parameters=parameters, clients=clients, batch=256)
    mechanism = private_sum(promise, 0.1, facts)
    assert math.sqrt(parameters) / (mechanism.code.scale * 0.1) <= OVERHEAD


def test_one_honest_client_has_noise_of_limited_size(promise):
    mechanism = private_sum(promise, 0.1, replace(FACTS, clients=2, parameters=1_000_000))
    assert mechanism.code.noise.factor == MAX_FACTOR
    assert OVERHEAD < 1000 / (mechanism.code.scale * 0.1) < 3 * OVERHEAD


def test_where_it_does_not_fit_rounding_costs_more_and_the_noise_has_it(promise):
    facts = replace(FACTS, parameters=10_000_000, batch=30_000)
    mechanism = private_sum(promise, 1.0, facts)
    overhead = math.sqrt(facts.parameters) / mechanism.code.scale
    assert OVERHEAD < overhead < MOST_OVERHEAD
    variance = 9 * mechanism.code.noise.variance - TAU**2
    assert math.sqrt(variance) >= 1.5 * mechanism.code.scale * (1 + 0.999 * overhead)


@pytest.mark.parametrize(
    ("facts", "sigma"),
    [
        (replace(FACTS, parameters=10**9, batch=60_000), 1.5),
        # Noise so large that integers of 32 bits have no room for the gradients.
        (FACTS, 1e6),
    ],
)
def test_sums_that_do_not_fit_are_refused(facts, sigma):
    promise = Privacy(epsilon=8.0, noise_multiplier=sigma)
    message = misuse_message(private_sum, promise, 0.1, facts)
    assert_mentions(message, f"{facts.parameters:,} parameters", "32 bits", "Lower the batch size")


def test_noise_is_from_the_family_of_integer_distributions(promise):
    assert 0 <= private_sum(promise, 0.1, FACTS).code.noise.factor <= MAX_FACTOR


def test_the_bound_is_a_unit():
    """Twice the bound: the same integers of half the size."""
    promise = Privacy(epsilon=8.0, noise_multiplier=1.5)
    one, two = (private_sum(promise, bound, FACTS) for bound in (0.1, 0.2))
    assert one.code.noise == two.code.noise
    assert one.code.scale == pytest.approx(2 * two.code.scale)
    assert two.code.noise_deviation == pytest.approx(2 * one.code.noise_deviation)


def test_noise_is_calibrated_for_the_iterations_of_the_run():
    facts = replace(FACTS, batch=60_000)
    few, many = (
        private_sum(Privacy(epsilon=3.0), 0.1, replace(facts, steps=steps)).budget
        for steps in (10, 1000)
    )
    assert few.noise_multiplier < many.noise_multiplier
    for budget, steps in ((few, 10), (many, 1000)):
        assert budget.spent(steps) <= 3.0 < budget.spent(int(1.1 * steps) + 1)


def test_imperfect_noise_is_part_of_delta():
    budget = private_sum(Privacy(epsilon=3.0), 0.1, FACTS).budget
    assert 0 < budget.extra_delta < 1e-6 * budget.delta


@pytest.mark.parametrize("bound", [0.1, 100.0, math.inf])
def test_without_a_promise_there_is_no_noise(bound):
    mechanism = private_sum(Privacy(epsilon=math.inf), bound, FACTS)
    assert mechanism.code.noise is None
    assert mechanism.budget.noise_multiplier == 0
    assert mechanism.budget.spent(1) == math.inf
    assert mechanism.bound == bound
    # All clients together cannot reach a total that looks like another one.
    most = mechanism.code.limit * FACTS.clients
    assert 2**31 < most < MODULUS - LARGEST_TOTAL
    assert mechanism.code.scale * min(bound, LARGEST_GRADIENT) * 2048 < LARGEST_TOTAL


@pytest.mark.parametrize("clients", [1, 2, 3, 10, 10_000])
def test_totals_out_of_range_are_noticed_whatever_clients_send(clients):
    facts = replace(FACTS, clients=clients)
    code = private_sum(Privacy(epsilon=math.inf), 0.1, facts).code
    for share in (0.4, 0.6, 0.8, 1.0):
        total = torch.tensor([[int(share * code.limit) * clients]])
        if total > LARGEST_TOTAL:
            assert_mentions(misuse_message(code.decode, wrapped(total), torch.float32), "A total")


def test_clients_are_not_sampled_and_clip_their_update():
    promise = Privacy(epsilon=3.0, delta=0.01, unit="client")
    mechanism = private_sum(promise, 0.5, FACTS)
    assert (mechanism.sampling_rate, mechanism.expected) == (1.0, 10.0)
    assert mechanism.budget.sampling_rate == 1.0
    assert mechanism.budget.unit == "client"


@pytest.mark.parametrize(
    ("promise", "bound", "words"),
    [
        (Privacy(3.0, delta=1e-4), 0.1, ["delta is 0.0001", "60,000 samples"]),
        (Privacy(3.0, delta=0.1, unit="client"), 0.1, ["delta is 0.1", "10 clients"]),
        (Privacy(3.0, honest=11), 0.1, ["honest is 11", "10 clients"]),
    ],
)
def test_promises_that_cannot_be_kept_are_refused(promise, bound, words):
    assert_mentions(misuse_message(private_sum, promise, bound, FACTS), *words)
