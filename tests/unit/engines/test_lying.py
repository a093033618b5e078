"""Clients that lie in a simulation: others get the lie, they themselves keep the truth."""

import pytest
import torch

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.core.errors import Caution
from tacit.engines.lying import Lying

N, P, LIAR = 6, 3, 2
GRAPH = tacit.Topology.complete(N).mixing("metropolis")
RULES = ("centred-clipping", "trimmed-mean")


def task():
    draw = torch.Generator().manual_seed(0)
    b = torch.randn(N, P, generator=draw, dtype=torch.float64)
    theta0 = torch.randn(N, P, generator=draw, dtype=torch.float64)
    return tacit.quadratic(torch.eye(P).double().repeat(N, 1, 1), b, theta0=theta0)


def models(algorithm, steps=1):
    return tacit.run(task(), algorithm, GRAPH, steps=steps, transcript=True)


def test_others_get_the_lie_and_the_liar_keeps_the_truth():
    honest, told = models(tacit.DSG(lr=0.1)), models(Lying(tacit.DSG(lr=0.1), (LIAR,), scale=9.0))
    sent = honest.transcript.messages[0].rows
    torch.testing.assert_close(told.theta[LIAR], honest.theta[LIAR])
    for client in set(range(N)) - {LIAR}:
        weight = GRAPH.weights[client, LIAR]
        torch.testing.assert_close(
            told.theta[client], honest.theta[client] - 10 * weight * sent[LIAR]
        )


@pytest.mark.parametrize("lie", ["sign-flip", "noise"])
def test_all_neighbours_get_the_same_lie(lie):
    algorithm = Lying(tacit.Robust(tacit.DSG(lr=0.1)), (LIAR,), lie, 5.0)
    messages = models(algorithm).transcript.messages
    sent = torch.cat([message.rows for message in messages])
    source = [edge[0] for edge in models(algorithm).transcript.edges]
    of_liar = sent[[k for k, client in enumerate(source) if client == LIAR]]
    assert torch.equal(of_liar, of_liar[:1].expand_as(of_liar))
    honest = models(tacit.Robust(tacit.DSG(lr=0.1))).transcript.messages
    assert not torch.equal(sent, torch.cat([message.rows for message in honest]))


@pytest.mark.parametrize("rule", RULES)
def test_robust_mixing_converges_where_plain_mixing_does_not(rule):
    robust = Lying(tacit.Robust(tacit.DSG(lr=0.1), rule), (LIAR,))
    honest = [client for client in range(N) if client != LIAR]
    found = tacit.run(task(), robust, GRAPH, steps=80).theta[honest]
    reference = tacit.run(task(), tacit.DSG(lr=0.1), GRAPH, steps=80).theta[honest]
    spread = (task().initial(0, range(N))).abs().max()
    assert (found - reference).abs().max() < spread
    plain = Lying(tacit.DSG(lr=0.1), (LIAR,))
    assert tacit.run(task(), plain, GRAPH, steps=80).theta[honest].abs().max() > 10 * spread


def test_liars_are_clients():
    message = misuse_message(models, Lying(tacit.DSG(lr=0.1), (N,)))
    assert_mentions(message, f"Liar {N}", f"{N} clients")
    assert_mentions(misuse_message(Lying, tacit.DSG(lr=0.1), (1,), "shout"), "sign-flip")


def test_a_wrapper_that_changes_nothing_keeps_all_that_an_algorithm_declares():
    """Push-sum uses each late message once, so that no share of its weights is lost."""
    late = tacit.Participation(delay=3)
    plain, wrapped = (
        tacit.run(task(), algorithm, GRAPH, steps=12, seed=1, participation=late)
        for algorithm in (tacit.PushSum(lr=0.1), Lying(tacit.PushSum(lr=0.1)))
    )
    assert torch.equal(plain.state.weight, wrapped.state.weight)
    assert torch.equal(plain.theta, wrapped.theta)


def test_a_wrapped_algorithm_stops_when_its_budget_is_spent():
    x = torch.randn(N, 20, P, generator=torch.Generator().manual_seed(0))
    squares = tacit.least_squares(x, x.sum(2), batch_size=4)
    promise = tacit.Privacy(epsilon=3.0, noise_multiplier=1.5)
    wrapped = Lying(tacit.PrivateSGD(lr=0.1), (LIAR,))
    with pytest.warns(Caution, match="privacy budget"):
        run = tacit.run(squares, wrapped, GRAPH, steps=200, privacy=promise)
    budget = run.setting.algorithm.budget
    assert 0 < run.history[-1].step == budget.allowed_steps < 200
    again = tacit.Setting(run.setting.algorithm, squares, GRAPH)
    simulation = tacit.Simulation(again)
    assert simulation.allowed_steps == budget.allowed_steps
    message = misuse_message(tacit.Robust, wrapped)
    assert_mentions(message, "private-sgd", "sums masked rows")
