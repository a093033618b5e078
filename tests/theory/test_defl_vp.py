"""Facts of the DeFL-VP paper: randomized response, control variates, and their combination."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import tacit
from tacit.algorithms import ALGORITHMS
from tacit.compression import QSGD, Identity, RandK, SignBits
from tacit.core.hosted_clients import HostedClients
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.randomness import Philox
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.privacy.randomized_response import WORDS, RandomizedResponse
from tacit.record.transcript import Transcript

pytestmark = pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")

CLIENTS, WIDTH = 6, 4
GRAPH = tacit.Topology.ring(CLIENTS).mixing("metropolis")
OFF = {"variance_reduction": False, "randomized_response": False, "codec": Identity()}


def heterogeneous(seed=0, width=WIDTH):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(CLIENTS, width, width))
    A = torch.tensor(root @ root.transpose(0, 2, 1) / width + np.eye(width))
    return tacit.quadratic(A, 3 * torch.tensor(rng.normal(size=(CLIENTS, width))))


# --- Randomized response ---

MANY = 20_000


@settings(max_examples=15)
@given(
    v=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6),
    epsilon=st.floats(0.2, 8.0),
    seed=st.integers(0, 1000),
)
def test_the_mean_of_randomized_responses_is_the_sign(v, epsilon, seed):
    """Over many clients that hold the same vector; six standard errors."""
    edges = tacit.Topology.ring(MANY).edges
    randomness = Philox(seed, len(v), torch.float64)
    here = HostedClients(Neighbourhood.of(edges, np.arange(MANY)), None, None, randomness)
    rows = torch.tensor(v, dtype=torch.float64).repeat(MANY, 1)
    response = RandomizedResponse(epsilon)
    answers = response.respond("rr", rows, here)
    assert torch.equal(answers.abs(), torch.full_like(answers, response.scale))
    sign = torch.where(rows[0] < 0, -1.0, 1.0).double()
    error = math.sqrt((response.scale**2 - 1) / MANY) + 1e-12
    assert float((answers.mean(0) - sign).abs().max()) < 6 * error + 1 / MANY


@settings(max_examples=50)
@given(
    epsilon=st.floats(0.05, 10.0),
    d=st.integers(1, 12),
    rounds=st.integers(1, 5),
    different=st.integers(1, 12),
)
def test_coordinates_cost_epsilon_vectors_d_epsilon_and_rounds_t_d_epsilon(
    epsilon, d, rounds, different
):
    """The largest likelihood ratio over all answers, from the probabilities that are drawn."""
    different = min(d, different)
    response = RandomizedResponse(epsilon)
    keep, flip = response.threshold / WORDS, 1 - response.threshold / WORDS
    # Coordinates that agree cancel.
    worst = rounds * different * math.log(keep / flip)
    assert worst <= rounds * d * epsilon * (1 + 1e-12)
    if different == d:
        # And it is not less: the vector costs dε.
        assert worst == pytest.approx(rounds * d * epsilon, rel=1e-3)


# --- All parts together ---


def models(algorithm, task, steps=30, seed=2):
    return tacit.run(task, algorithm, GRAPH, steps=steps, seed=seed).theta


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_every_part_off_it_is_d_psgd(momentum):
    task = heterogeneous()
    published = ALGORITHMS["defl-vp"](lr=0.02, momentum=momentum, **OFF)
    plain = ALGORITHMS["d-psgd"](lr=0.02, momentum=momentum)
    torch.testing.assert_close(models(published, task), models(plain, task), rtol=0, atol=1e-12)


def test_the_two_orders_of_d_psgd_end_at_different_points_and_adapt_first_is_diffusion():
    task = heterogeneous()
    first, last, diffusion = (
        models(algorithm, task, steps=400)
        for algorithm in (
            ALGORITHMS["d-psgd"](lr=0.05),
            ALGORITHMS["d-psgd"](lr=0.05, order="combine-then-adapt"),
            ALGORITHMS["dsg"](lr=0.05),
        )
    )
    assert torch.equal(first, diffusion)
    # In both orders the gradients sum to zero over the clients at the fixed point.
    hessians, linear = (torch.stack(arrays) for arrays in zip(*task.parts, strict=True))
    for rows in (first, last):
        gradients = torch.einsum("nij,nj->ni", hessians, rows) - linear
        torch.testing.assert_close(gradients.sum(0), torch.zeros(WIDTH).double(), rtol=0, atol=1e-6)
    assert float((first - first.mean(0)).norm()) < float((last - last.mean(0)).norm())


def test_control_variates_bring_clients_together():
    """At its fixed point the corrected update is the mean gradient of the neighbourhood."""
    task = heterogeneous()
    with_variates, without = (
        models(
            ALGORITHMS["defl-vp"](lr=0.05, **(OFF | {"variance_reduction": on})), task, steps=300
        )
        for on in (True, False)
    )
    for measure in (lambda rows: rows - rows.mean(0), lambda rows: rows - task.optimum):
        assert float(measure(with_variates).norm()) < 0.8 * float(measure(without).norm())


def test_variates_follow_gradients_by_alpha_and_their_mean_correction_is_zero():
    """Σᵢ vᵢ = Σᵢ gᵢ: corrections cancel in the sum, because W is doubly stochastic."""
    transcript = Transcript()
    task = heterogeneous()
    algorithm = ALGORITHMS["defl-vp"](lr=0.05, **(OFF | {"variance_reduction": True}))
    simulation = Simulation(Setting(algorithm, task, GRAPH), transcript=transcript)
    simulation.start()
    hessians, linear = (torch.stack(arrays) for arrays in zip(*task.parts, strict=True))
    for _ in range(10):
        before = simulation.state
        simulation.step()
        gradients = torch.einsum("nij,nj->ni", hessians, before.theta) - linear
        update = transcript.of("update")[-1].rows
        torch.testing.assert_close(update.sum(0), gradients.sum(0))
        expected = 0.9 * before.variate + 0.1 * gradients
        torch.testing.assert_close(simulation.state.variate, expected)


# --- The leak of the published algorithm ---


def gradients_from_variates(algorithm, steps=6):
    """(h⁺ − (1 − α)h)/α of two successive variates in the transcript, and the true gradients."""
    task, transcript = heterogeneous(), Transcript()
    simulation = Simulation(Setting(algorithm, task, GRAPH, seed=1), transcript=transcript)
    simulation.start()
    thetas = [simulation.state.theta]
    for _ in range(steps):
        simulation.step()
        thetas.append(simulation.state.theta)
    h, after = (message.rows for message in transcript.of("variate")[3:5])
    hessians, linear = (torch.stack(arrays) for arrays in zip(*task.parts, strict=True))
    gradients = torch.einsum("nij,nj->ni", hessians, thetas[3]) - linear
    return (after - (1 - algorithm.alpha) * h) / algorithm.alpha, gradients


def test_as_published_two_variates_give_the_gradient_exactly():
    computed, gradients = gradients_from_variates(ALGORITHMS["defl-vp"](lr=0.05, epsilon=0.5))
    torch.testing.assert_close(computed, gradients, rtol=0, atol=1e-12)


def test_private_variates_give_only_the_response():
    algorithm = ALGORITHMS["defl-vp"](lr=0.05, epsilon=0.5, private_variates=True)
    computed, gradients = gradients_from_variates(algorithm)
    scale = RandomizedResponse(0.5).scale
    torch.testing.assert_close(computed.abs(), torch.full_like(computed, scale), rtol=0, atol=1e-9)
    assert float((computed - gradients).norm()) > 1


def test_the_published_algorithm_is_cautioned_about_and_the_private_variants_are_not():
    published = ALGORITHMS["defl-vp"](lr=0.05)
    assert "give the gradient exactly" in published.cautions(GRAPH)[0]
    assert replace(published, private_variates=True).cautions(GRAPH) == []
    assert replace(published, variance_reduction=False).cautions(GRAPH) == []


# --- Bytes ---


@pytest.mark.parametrize(
    ("codec", "response", "sent_as", "most"),
    [
        # A sign vector is sent as bits with one scale.
        (Identity(), True, SignBits(), 1000 / 8 + 64),
        (SignBits(), True, SignBits(), 1000 / 8 + 64),
        (RandK(fraction=0.4), True, RandK(fraction=0.4, values=SignBits()), 400 / 8 + 64),
        (RandK(fraction=0.4), False, RandK(fraction=0.4), 400 * 8 + 64),
        (QSGD(bits=4), False, QSGD(bits=4), 1000 / 2 + 64),
        (Identity(), False, Identity(), 1000 * 8 + 64),
    ],
    ids=str,
)
def test_bytes_counted_are_those_of_the_codec(codec, response, sent_as, most):
    task = tacit.Task(
        torch.ones(1000, dtype=torch.float64),
        list(torch.zeros(CLIENTS, 1000, dtype=torch.float64)),
        loss=lambda theta, x: (theta - x).square().sum(),
    )
    algorithm = ALGORITHMS["defl-vp"](lr=0.1, codec=codec, randomized_response=response)
    run = tacit.run(task, algorithm, GRAPH, steps=3)
    per_edge = run.history[-1].bytes_sent / 3 / len(GRAPH.edges)
    model_and_variate = 2 * 1000 * 8
    assert per_edge - model_and_variate == sent_as.size(1000, torch.float64) <= most
