"""Approximate knowledge: gradients of clients at any distance, if they change little."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

import tacit
from tacit import data, models
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import apply_combination
from tacit.auditing.audit import run_audit
from tacit.auditing.options import AuditOptions
from tacit.auditing.symbolic.linear_knowledge import LinearKnowledge
from tacit.auditing.symbolic.slow_gradients import with_slow_gradients
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.engines.setting import Setting

RING = tacit.Topology.ring(6).mixing("metropolis")
SPY = Adversary.curious(0)
STEPS = 12


def messages_of_constant_gradients(run, walk=0.0, seed=0):
    """The transcript of a run whose unknowns have random values, gradients all alike."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(len(run.unknowns), 4, generator=draw, dtype=torch.float64)
    for client in range(run.clients):
        columns = [run.columns[g] for g in run.gradients(client)]
        steps = walk * torch.randn(len(columns), 4, generator=draw, dtype=torch.float64)
        steps[0] = values[columns[0]]
        values[columns] = steps.cumsum(0)
    messages = [
        replace(m, rows=m.rows @ values[: m.rows.shape[1]]) for m in run.transcript.messages
    ]
    held = {unknown: values[column] for unknown, column in run.columns.items()}
    recorded = replace(run.transcript, messages=messages, held=held)
    return recorded, values


@pytest.mark.parametrize("algorithm", [tacit.DSG(lr=0.1), tacit.DSGT(lr=0.1)])
def test_constant_gradients_are_computed_at_any_distance(algorithm):
    run = run_on_symbols(algorithm, RING, STEPS, common_start=True)
    recorded, values = messages_of_constant_gradients(run)
    knowledge = LinearKnowledge(with_slow_gradients(run, SPY), SPY)
    exact = LinearKnowledge(run, SPY)
    for victim in range(1, 6):
        first = run.gradients(victim)[0]
        answer = knowledge.estimate(knowledge.vector((first, 1.0)))
        found = apply_combination(answer.combination, knowledge, recorded)
        assert torch.allclose(found, values[run.columns[first]], rtol=1e-5, atol=1e-5)
    # Without the assumption the opposite client is not known.
    opposite = run.gradients(3)[0]
    assert exact.estimate(exact.vector((opposite, 1.0))).status == "hidden"


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), victim=st.integers(2, 4))
def test_the_error_is_the_predicted_factor_times_the_change(seed, victim):
    run = run_on_symbols(tacit.DSG(lr=0.1), RING, STEPS, common_start=True)
    knowledge = LinearKnowledge(with_slow_gradients(run, SPY), SPY)
    first = run.gradients(victim)[0]
    answer = knowledge.estimate(knowledge.vector((first, 1.0)))
    recorded, values = messages_of_constant_gradients(run, walk=0.01, seed=seed)
    error = apply_combination(answer.combination, knowledge, recorded) - values[run.columns[first]]
    # Four coordinates, each normal: six deviations are out of reach.
    assert float(error.abs().max()) < 6 * 0.01 * answer.variance**0.5
    assert float(error.abs().max()) > 0


@pytest.mark.parametrize("algorithm", [tacit.DSG(lr=0.1), tacit.PDLMS(lr=0.1)])
def test_combinations_without_secrets_have_the_size_of_steps_and_noise(algorithm):
    run = run_on_symbols(algorithm, RING, STEPS, common_start=True)
    slow = with_slow_gradients(run, SPY)
    knowledge = LinearKnowledge(slow, SPY)
    checks = knowledge.noise_alone()
    assert 0 < len(checks) <= 16
    noise = {u for u in slow.unknowns if u.kind == "noise"}
    for combination, variance in checks:
        total = torch.zeros(len(slow.unknowns), dtype=torch.float64)
        for (message, row), a in combination.messages:
            sent = slow.transcript.messages[message].rows[row]
            total[: len(sent)] += a * sent
        for unknown, a in combination.own:
            total[slow.columns[unknown]] -= a
        secrets = [k for u, k in slow.columns.items() if u not in noise]
        assert float(total[secrets].abs().max()) < 1e-8
        kept = sum(float(total[slow.columns[u]]) ** 2 * slow.laws[u].variance for u in noise)
        assert kept == pytest.approx(variance, rel=1e-6)


def test_one_client_of_a_ring_reconstructs_the_digits_of_all_others():
    digits = data.load("mnist-mini", limit_train=6, limit_test=120)
    parts = [(digits.train.x[i : i + 1], digits.train.y[i : i + 1]) for i in range(6)]
    torch.manual_seed(0)
    module = models.build("mlp", (1, 28, 28), 10, hidden=[32], activation="sigmoid")
    test = (digits.test.x, digits.test.y)
    task = tacit.Task(module, parts, batch_size=None, test=test, init="same")
    setting = Setting(tacit.DSG(lr=0.01), task, RING)
    options = AuditOptions(victims=[1, 2, 3, 4, 5], iterations=12, heat_map=False)
    audit = run_audit(setting, [SPY], options)
    found = {
        evidence.victim: (attack.kind, attack.score.levels[index])
        for attack in audit.results[0].reconstructions
        for index, evidence in enumerate(attack.evidence)
    }
    assert found == {
        1: ("gradient", "recovered"),
        2: ("approximate gradient", "recovered"),
        3: ("approximate gradient", "recovered"),
        4: ("approximate gradient", "recovered"),
        5: ("gradient", "recovered"),
    }
    # The verdict on the client opposite says what it rests on and how well it fits.
    (line,) = audit.results[0].verdicts[2].measured
    assert "assuming that gradients change little" in line
    assert "or more" in line
