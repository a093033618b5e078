"""Malicious clients: what they send, on numbers and on symbols, and the bounds that survive it."""

import math
from dataclasses import dataclass

import pytest
import torch

import tacit
from support.suited import guaranteed, suited
from support.written import FromFirstModels
from tacit.algorithms import ALGORITHMS
from tacit.algorithms.diffusion import ModelState
from tacit.auditing.active.behaviours import BEHAVIOURS, DEVIATES, Substitute, substitutes
from tacit.auditing.active.comparison import bound_for_any_rows
from tacit.auditing.active.malicious import ArbitraryRows, Malicious, message_kinds
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import evidence
from tacit.auditing.one_run import audit_one_run, record_iterations
from tacit.auditing.options import AuditOptions
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.replay import replay
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.record.unknowns import Unknown

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
ALL = tacit.Topology.complete(4).mixing("metropolis", lazy=True)
QUESTIONS = ("gradient", "difference", "sum", "model")


def quadratic(clients, norm=None):
    generator = torch.Generator().manual_seed(1)
    targets = torch.randn(clients, 3, generator=generator, dtype=torch.float64)
    first = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    task = tacit.quadratic(torch.eye(3).double().repeat(clients, 1, 1), targets, theta0=first)
    return task if norm is None else task.clipped(1.0, norm)


def made(name, **options):
    kind = ALGORITHMS[name]
    rate = {"lr": 0.1} if "lr" in kind.__dataclass_fields__ else {}
    return guaranteed(kind(**rate, **options), RING, parameters=3)


def malicious(behaviour, *clients):
    return Adversary.deviating(*(clients or (1,)), behaviour=behaviour)


def simulated(algorithm, graph, steps=1, clients=None):
    inner, task = getattr(algorithm, "inner", algorithm), quadratic(clients or graph.clients)
    setting = Setting(algorithm, suited(inner, task, graph)[1], graph)
    simulation = Simulation(setting)
    simulation.start()
    for _ in range(steps):
        simulation.step()
    return simulation


# --- Text ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("malicious(1)", malicious(None)),
        (" malicious( 1 , 4 ) : echo ", malicious("echo", 1, 4)),
        ("malicious(1)+eavesdropper", malicious(None) | Adversary.eavesdropper()),
        ("curious(2)+malicious(1):imprint-override",
         Adversary.curious(2) | malicious("imprint-override")),
    ],
)  # fmt: skip
def test_parse(text, expected):
    assert Adversary.parse(text) == expected
    assert Adversary.parse(str(expected)) == expected
    assert expected.passive == Adversary.parse(str(expected.passive))
    assert not expected.passive.malicious
    assert expected.passive.corrupt == expected.corrupt


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("malicious()", "not understood"),
        ("malicious(1):ecco", "Did you mean 'echo'"),
        ("malicious(1):echo+malicious(2):override", "one behaviour"),
    ],
)
def test_bad_text(text, words):
    with pytest.raises(Misuse, match=words):
        Adversary.parse(text)


def test_an_audit_of_one_run_refuses_a_malicious_adversary():
    with pytest.raises(Misuse, match="without malicious clients"):
        audit_one_run(
            Setting(made("dsg"), quadratic(5), RING),
            ["malicious(1):echo"],
            AuditOptions(attacks=False),
        )


# --- What is sent ---


def row_for(found: Substitute, rows, chosen):
    return found.rows @ rows + found.chosen * chosen


@pytest.mark.parametrize("clients", [(1,), (1, 2)])
def test_isolate_and_override_determine_the_sum_if_all_rows_are_seen(clients):
    weights = torch.tensor([0.4, 0.2, 0.3, 0.1], dtype=torch.float64)
    rows = torch.randn(4, 3, dtype=torch.float64)
    chosen = torch.randn(3, dtype=torch.float64)
    for behaviour, expected in (("isolate", rows[0]), ("override", chosen)):
        sent = rows.clone()
        for client, one in substitutes(behaviour, weights, 0, clients, range(4)).items():
            sent[client] = row_for(one, rows, chosen)
        torch.testing.assert_close(weights @ sent, expected)


def test_rows_that_are_not_seen_are_not_used():
    weights = torch.tensor([0.4, 0.2, 0.3, 0.1], dtype=torch.float64)
    for behaviour in DEVIATES:
        for one in substitutes(behaviour, weights, 0, {1}, {0, 1, 2}).values():
            assert one.rows[3] == 0
    own_for_unseen = substitutes("isolate", weights, 0, {1}, {0, 1, 2})[1].rows
    torch.testing.assert_close(own_for_unseen, torch.tensor([3.0, -0.5, -1.5, 0.0]).double())


def test_clients_that_do_not_reach_the_victim_send_nothing_else():
    weights = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    assert substitutes("echo", weights, 0, {2}, {0, 1, 2}) == {}
    assert set(substitutes("echo", weights, 0, {1, 2}, {0, 1, 2})) == {1}


def test_levels_tell_models_from_gradients():
    kinds = message_kinds(made("dsgt"), RING)
    assert (kinds["theta"].level, kinds["gamma"].level) == (1, 0)
    assert message_kinds(made("pdmm"), RING)["dz"].verb == "send"


# --- On numbers ---


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_honest_messages_give_the_honest_run(name):
    """The imprint behaviour changes first weights only, which the wrapper does not."""
    algorithm = made(name)
    wrapped = Malicious(algorithm, RING, malicious("imprint"), 0)
    honest, found = (simulated(one, RING, 3).state.theta for one in (algorithm, wrapped))
    assert torch.equal(honest, found)


def test_override_puts_the_victim_at_the_first_model():
    wrapped = Malicious(made("dsg"), ALL, malicious("override"), 0)
    simulation = simulated(wrapped, ALL, 3)
    first = simulation.here.theta0
    torch.testing.assert_close(simulation.state.theta[0], first[1])
    assert not torch.allclose(simulation.state.theta[1], first[1])


def test_override_leaves_only_the_victims_own_gradients():
    """Sums of models become the first model, sums of gradients zero."""
    wrapped = Malicious(made("dsgt"), ALL, malicious("override"), 0)
    before, after = (simulated(wrapped, ALL, steps).state for steps in (0, 1))
    torch.testing.assert_close(after.theta[0], before.theta[1] - 0.1 * before.gamma[0])
    torch.testing.assert_close(after.gamma[0], after.grad[0] - before.grad[0])


def test_isolate_makes_the_victim_train_alone():
    wrapped = Malicious(made("dsg"), ALL, malicious("isolate"), 0)
    found = simulated(wrapped, ALL, 4).state.theta[0]
    task, theta = quadratic(4), simulated(made("dsg"), ALL, 0).state.theta[0]
    for _ in range(4):
        theta = theta - 0.1 * (theta - task.parts[0][1])
    torch.testing.assert_close(found, theta)


def test_malicious_clients_keep_their_own_state():
    """After one step, a deviating client has what it computed from honest rows."""
    wrapped = Malicious(made("dsg"), ALL, malicious("echo"), 0)
    honest, found = (simulated(one, ALL, 1).state.theta for one in (made("dsg"), wrapped))
    torch.testing.assert_close(found[1], honest[1])
    assert not torch.allclose(found[0], honest[0])


def test_echo_of_rows_on_edges():
    adversary = malicious("echo")
    wrapped = Malicious(made("pdmm"), RING, adversary, 0)
    transcript = record_iterations(
        Setting(wrapped, quadratic(5), RING), [adversary], 2, lambda *_: None
    )
    for message in transcript.of("dz"):
        ends = list(zip(message.source.tolist(), message.target.tolist(), strict=True))
        there, back = message.rows[ends.index((0, 1))], message.rows[ends.index((1, 0))]
        assert torch.equal(there, back)
        assert not torch.equal(message.rows[ends.index((1, 2))], back)


# --- On symbols ---


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_no_behaviour_changes_what_linear_combinations_tell(name):
    """A malicious client changes messages by rows that the adversary knows."""
    algorithm = made(name)

    def known(algorithm, adversary):
        run = run_on_symbols(algorithm, RING, 4, common_start=True)
        leakage = Leakage(Knowledge(run, adversary), 0)
        return run, [leakage.of(question).statuses for question in QUESTIONS]

    _, passive = known(algorithm, Adversary.curious(1))
    anything = malicious(None)
    for wrapped in (
        *(Malicious(algorithm, RING, malicious(behaviour), 0) for behaviour in DEVIATES),
        ArbitraryRows(algorithm, RING, anything),
    ):
        run, active = known(wrapped, wrapped.adversary)
        assert active == passive
        assert replay(wrapped, RING, run) == []


@pytest.mark.parametrize("behaviour", ["echo", "isolate", "override"])
def test_evidence_of_an_active_run_is_the_gradient(behaviour):
    adversary = malicious(behaviour)
    wrapped = Malicious(made("dsgt"), RING, adversary, 0)
    everyone = Adversary.curious(0, 1)
    setting = Setting(wrapped, quadratic(5), RING)
    transcript = record_iterations(setting, [everyone], 4, lambda *_: None)
    run = run_on_symbols(wrapped, RING, 4, common_start=setting.start_alike)
    leakage = Leakage(Knowledge(run, adversary), 0)
    exact = leakage.of("gradient").indices("exact")
    assert exact
    for index in exact:
        found = evidence(leakage, "gradient", index, transcript)
        when = leakage.gradients[index].when
        truth = transcript.held[Unknown("gradient", when, 0)]
        torch.testing.assert_close(found.values, truth, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_arbitrary_rows_reach_every_honest_client_that_hears_them(name):
    run = run_on_symbols(ArbitraryRows(made(name), RING, malicious(None)), RING, 3)
    chosen = [k for k, u in enumerate(run.unknowns) if u.tag.startswith("chosen")]
    theta = run.models[-1]
    reached = theta[:, chosen].abs().sum(1) > 0
    assert reached[[0, 2]].all()
    # Rows that were meant for honest clients' own noise are never sent.
    sent = [u for u in chosen if theta[:, u].any()]
    assert all(1 in (run.unknowns[u].client, run.unknowns[u].other) for u in sent)


# --- Bounds ---


@pytest.mark.parametrize(
    ("algorithm", "norm", "whole"),
    [
        (made("pd-lms"), "l2", True),
        (made("mdsg"), "l1", True),
        (made("psgt"), "l2", False),
        (made("dp-dsgt", noise=tacit.Gaussian(20.0), inject="every"), "l2", True),
        (made("dp-dsgt", noise=tacit.Laplace(20.0), inject="every"), "l1", True),
    ],
)
def test_bounds_hold_whatever_malicious_clients_send(algorithm, norm, whole):
    setting = Setting(algorithm, quadratic(5, norm), RING)
    options = {"iterations": 3, "steps": 12}
    audit = audit_one_run(
        setting, ["curious(1)"], AuditOptions(attacks=False, heat_map=False, **options)
    )
    passive = audit.results[0].ledgers[0]
    active = bound_for_any_rows(setting, malicious(None), 0, **options)
    assert math.isfinite(passive.upper.epsilon)
    assert active.upper.epsilon == pytest.approx(passive.upper.epsilon, rel=1e-6)
    assert (active.whole_run is not None) == whole == (passive.whole_run is not None)
    if whole:
        assert active.whole_run.epsilon == pytest.approx(passive.whole_run.epsilon, rel=1e-6)
    assert "whatever malicious clients send" in active.scope


def test_no_bound_is_made_where_there_was_none():
    setting = Setting(made("lppa"), quadratic(5, "l1"), RING)
    assert math.isinf(bound_for_any_rows(setting, malicious(None), 0, 3).upper.epsilon)


def test_every_behaviour_is_documented():
    from tacit.auditing.active import behaviours

    assert all(f"    {name} " in behaviours.__doc__ for name in BEHAVIOURS)


@dataclass(frozen=True)
class Shares(FromFirstModels):
    """Every client adds its share of the noise, as small as its neighbours announce."""

    name = "shares"

    def step(self, s, here):
        ones = torch.ones(len(here.graph.out_source), 1, dtype=s.theta.dtype)
        shares = here.graph.total_in(here.net.send("shares", ones))
        noise = shares**-0.5 * here.noise("z", tacit.Gaussian(2.0))
        (theta,) = here.net.mix(psi=s.theta - 0.1 * here.grad(s.theta) + noise)
        return ModelState(theta)


def test_numbers_that_scale_noise_and_that_malicious_clients_choose_leave_no_bound():
    setting = Setting(Shares(), quadratic(5, "l2"), RING)
    options = AuditOptions(iterations=3, attacks=False, heat_map=False)
    curious = audit_one_run(setting, ["curious(1)"], options)
    assert math.isfinite(curious.results[0].ledgers[0].upper.epsilon)
    found = bound_for_any_rows(setting, Adversary.deviating(1), 0, 3)
    assert math.isinf(found.upper.epsilon)
    assert "'shares'" in found.upper.why
