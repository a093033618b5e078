"""What coalitions of every size learn of masked sums, and how an audit says it."""

import json
from dataclasses import dataclass, replace

import pytest
import torch

import tacit
from support.suited import guaranteed, made, suited
from tacit import Adversary, Decor, Privacy, PrivateSGD, Topology
from tacit.auditing.audit import run_audit
from tacit.auditing.bounds.coalition_bounds import coalition_bounds
from tacit.auditing.bounds.secret_rows import SecretRows
from tacit.auditing.options import AttackOptions, AuditOptions
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.engines.setting import Setting
from tacit.report.audit_sections import stored_audit

N, DELTA, STEPS = 5, 1e-5, 20
RING = Topology.ring(N).mixing("metropolis", lazy=True)


def setting(kind=PrivateSGD, graph=RING, **options):
    clients = graph.clients
    task = tacit.quadratic(torch.eye(6).repeat(clients, 1, 1), torch.zeros(clients, 6))
    algorithm, task = suited(made(kind, **options), task, graph, steps=STEPS)
    return Setting(algorithm, task, graph)


def learnt(algorithm, corrupt, victim, graph=RING):
    run = run_on_symbols(algorithm, graph, 2, common_start=True)
    who = Adversary.curious(*corrupt) if corrupt else Adversary.eavesdropper()
    return SecretRows.of(run, who, victim).only_sum()


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"optimizer": "adam"}], ids=str)
@pytest.mark.parametrize(
    ("corrupt", "victim", "members"),
    [
        ((), 0, {0, 1, 2, 3, 4}),
        ((1,), 0, {0, 2, 3, 4}),
        ((1, 2), 0, {0, 3, 4}),
        ((1, 4), 0, {0}),
        ((1, 4), 2, {2, 3}),
        ((1, 2, 3, 4), 0, {0}),
    ],
)
def test_a_sum_over_the_component_is_all_that_is_learnt(options, corrupt, victim, members):
    algorithm = guaranteed(made(PrivateSGD, **options), RING)
    assert learnt(algorithm, corrupt, victim) == members


@dataclass(frozen=True)
class Careless(PrivateSGD):
    """Also sends its own noisy sum."""

    def step(self, s, here):
        own = here.clipped_sum(s.theta, 1.0, 0.5) + here.noise("z", tacit.Gaussian(9.0))
        (total,) = here.net.total(update=here.fixed_point("update", own, self.mechanism.code))
        here.net.mix(own=own)
        return replace(s, theta=s.theta - total)


def test_more_than_a_sum_is_noticed():
    assert learnt(guaranteed(made(Careless), RING), (1,), 0) is None
    assert learnt(guaranteed(made(Decor), RING), (1,), 0) is None
    assert coalition_bounds(setting(Careless), STEPS, DELTA) == []


def test_coalitions_are_grouped_by_what_they_leave():
    found = coalition_bounds(setting(), STEPS, DELTA)
    shown = [(len(one.example), one.alike, one.possible, len(one.part)) for one in found]
    assert shown == [(1, 5, 5, 4), (2, 5, 10, 3), (2, 5, 10, 1), (3, 5, 10, 2), (3, 5, 10, 1),
                     (4, 5, 5, 1)]  # fmt: skip
    epsilon = {len(one.part): one.bound.epsilon for one in found}
    assert epsilon[4] <= 3.0 < epsilon[3] < epsilon[2] < epsilon[1]
    assert found[0].who == "all 5, e.g. {0}"
    assert found[2].learns == "noisy sums of client 1 alone"
    assert found[0].as_dict()["epsilon"] == found[0].bound.epsilon


def test_large_graphs_have_a_short_table():
    graph = Topology.ring(14).mixing("metropolis", lazy=True)
    found = coalition_bounds(setting(graph=graph), STEPS, DELTA)
    assert len(found) <= 12
    assert [len(one.example) for one in (found[0], found[-1])] == [1, 13]


def audited(kind=PrivateSGD, adversaries=("curious(1)", "curious(1,4)"), canaries=None, **options):
    proofs = {"iterations": 3, "steps": STEPS, "attacks": False, "heat_map": False}
    audit = AuditOptions(canaries=canaries, **proofs)
    return run_audit(setting(kind, **options), list(adversaries), audit)


def test_the_summary_says_who_learns_what_and_the_guarantee():
    audit = audited(adversaries=["curious(1)", "curious(1,4)", "curious(1,2)", "eavesdropper"])
    first, second, third, fourth = audit.summary.split(". ")
    assert first == (
        "The coalition {1} learns nothing but the noisy sum over the other 4 clients: ε ≤ 3 at "
        "δ = 1e-05 per sample for the whole run of 20 iterations, proved from the messages"
    )
    assert second.startswith("The coalition {1, 4} isolates client 0")
    assert second.endswith("that is more than the promised 3")
    assert "sum over the other 3 clients" in third
    assert fourth.startswith("An eavesdropper learns nothing but the noisy sum over all 5 clients")
    headlines = [result.verdicts[0].headline for result in audit.results]
    assert headlines == ["noisy sum", "noisy", "noisy sum", "noisy sum"]


def test_parts_of_the_graph_are_named():
    options = AuditOptions([2], 3, steps=STEPS, attacks=False, heat_map=False)
    audit = run_audit(setting(), ["curious(1,4)"], options)
    assert "learns nothing about client 2 but the noisy sum over {2, 3}" in audit.summary


def test_other_algorithms_are_not_said_to_learn_sums_only():
    for audit in (audited(Decor), audited(Careless)):
        assert "nothing but" not in audit.summary
        assert audit.coalitions == []


def test_lower_bounds_are_beside_the_upper_ones():
    audit = audited(canaries=AttackOptions(canary_trials=1_000))
    (one,), (two,) = (result.canaries_of("gradient") for result in audit.results)
    for found, result in ((one, audit.results[0]), (two, audit.results[1])):
        assert found.iterations == STEPS
        assert found.lower.epsilon < found.upper.epsilon == result.ledgers[0].whole_run.epsilon
        assert str(found) in result.verdicts[0].measured
    assert f"canaries show ε ≥ {one.lower.epsilon:.3g}. The" in audit.summary
    plain = json.loads(json.dumps(audit.as_dict()))
    (measured,) = plain["adversaries"][0]["measured"]["gradient_canaries"]
    assert measured["epsilon_at_least"] == one.lower.epsilon
    page = "".join(stored_audit(audit).sections.values())
    assert "Gradient canaries" in page
    assert f"ε ≥ {one.lower.epsilon:.3g}" in page
    assert "all 5, e.g. {0}" in page


def test_without_a_guarantee_there_is_no_such_claim():
    task = tacit.quadratic(torch.eye(6).repeat(N, 1, 1), torch.zeros(N, 6))
    promise = Privacy(float("inf"))
    algorithm, task = suited(made(PrivateSGD), task, RING, promise=promise)
    options = AuditOptions(iterations=3, steps=STEPS, attacks=False)
    audit = run_audit(Setting(algorithm, task, RING), ["curious(1)"], options)
    assert "nothing but" not in audit.summary
    assert audit.coalitions == []
