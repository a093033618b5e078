"""Is it safe to take part: the answer for leaks of every kind, and never yes without a proof."""

import doctest
import functools
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import tacit
from support.suited import made, suited
from tacit import PrivateSGD, Topology
from tacit.algorithms import ALGORITHMS
from tacit.auditing import judgement as module
from tacit.auditing.active.gains import Gain, Outcome
from tacit.auditing.active.recovered import RecoveredSamples
from tacit.auditing.audit import run_audit
from tacit.auditing.bounds.added_noise import IDEAL_NOISE, Bound
from tacit.auditing.judgement import answer_of
from tacit.auditing.options import AuditOptions
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting

N = 5
RING = Topology.ring(N).mixing("metropolis", lazy=True)
QUADRATIC = tacit.quadratic(torch.eye(3).repeat(N, 1, 1), torch.arange(15.0).view(N, 3))
LAPLACE = tacit.Laplace(0.5)
NOISY = tacit.DPDSGT(lr=0.1, noise=tacit.Gaussian(0.5), inject="every")


def audited(algorithm, adversaries=None, task=QUADRATIC, steps=4, **options):
    options = {"iterations": 3, "attacks": False, "steps": steps, **options}
    return run_audit(Setting(algorithm, task, RING), adversaries, AuditOptions(**options))


@functools.cache
def private(*adversaries, epsilon=3.0):
    promise = tacit.Privacy(epsilon, honest=4)
    algorithm, task = suited(made(PrivateSGD), QUADRATIC, RING, promise=promise, steps=4)
    return audited(algorithm, adversaries, task)


def with_bound(audit, bound):
    """The audit as if every ledger had this bound for the whole run."""
    results = [
        replace(result, ledgers=[replace(one, whole_run=bound) for one in result.ledgers])
        for result in audit.results
    ]
    return replace(audit, results=results)


def test_examples():
    assert doctest.testmod(module).failed == 0


def test_gradients_that_leak_exactly():
    answer = answer_of(audited(tacit.DSGT(lr=0.1)))
    assert (answer.level, answer.verdict) == ("no", "No: gradients leak exactly")
    assert "Client 1 can compute gradients of client 0 exactly" in answer.reason
    assert "data can be read from it" in answer.reason
    assert answer.guarantee == [
        "Nothing against client 1, clients 1 and 4 together and an eavesdropper: sent without "
        "noise."
    ]
    assert any("20 pairs: exact gradients in" in text for text in answer.learns)


def test_parts_that_leak_exactly():
    answer = answer_of(audited(tacit.LPPA(lr=0.1, noise=LAPLACE), ["curious(1)"]))
    assert answer.level == "leaks"
    assert "how gradients of client 0 change between batches" in answer.reason
    assert "parts leak" in answer.verdict


def test_one_client_may_learn_little_and_two_everything():
    answer = answer_of(audited(tacit.LPPA(lr=0.1, noise=LAPLACE)))
    assert answer.level == "no"
    assert answer.reason.startswith("Clients 1 and 4 together can compute gradients")


def test_a_leak_between_other_clients_counts():
    """The adversary of the audit learns nothing exact, but the heat map shows who does."""
    audit = audited(tacit.DSGT(lr=0.1), ["curious(1)"])
    hidden = replace(audited(NOISY, ["curious(1)"]), exposure=audit.exposure)
    answer = answer_of(hidden)
    assert answer.level == "no"
    assert "Some clients compute gradients of others exactly" in answer.reason


def test_noise_without_a_bound_is_not_proven():
    answer = answer_of(audited(NOISY))
    assert (answer.level, answer.verdict) == ("unproven", "Not proven")
    assert "nothing is guaranteed" in answer.reason
    assert "gradients are not clipped" in answer.guarantee[0]


def test_a_vacuous_guarantee_is_called_vacuous():
    answer = answer_of(audited(NOISY, task=QUADRATIC.clipped(1000.0)))
    assert (answer.level, answer.verdict) == ("unproven", "Not proven: ε is vacuous")
    assert "is vacuous" in answer.guarantee[0]
    assert "protects nothing" in answer.guarantee[0]


def test_noise_in_floating_point_is_no_proof():
    quiet = replace(NOISY, noise=tacit.Gaussian(500.0))
    audit = audited(quiet, task=QUADRATIC.clipped(1.0))
    assert audit.results[0].ledgers[0].best.epsilon < 1
    answer = answer_of(audit)
    assert (answer.level, answer.verdict) == ("unproven", "Not proven for this run")
    assert "floating point" in answer.reason


def test_a_bound_for_some_iterations_is_no_proof():
    audit = private("curious(1)")
    (result,) = audit.results
    ledger = replace(result.ledgers[0], whole_run=None, run_steps=4)
    answer = answer_of(replace(audit, results=[replace(result, ledgers=[ledger])]))
    assert answer.level == "unproven"
    assert "3 of 4 iterations" in answer.reason


@pytest.mark.parametrize(
    ("epsilon", "level", "words"),
    [(0.9, "proven", "strong"), (3.0, "proven", "moderate"), (7.0, "weak", "weak")],
)
def test_a_proof_is_worth_its_epsilon(epsilon, level, words):
    promised = private("curious(1)", epsilon=8.0)
    answer = answer_of(with_bound(promised, Bound(epsilon, 1e-5, "noise")))
    assert answer.level == level
    assert f"{words} guarantee" in answer.verdict
    assert f"ε = {epsilon:g}" in answer.reason
    assert "if 4 of 5 clients are honest" in answer.reason


def test_neighbours_that_isolate_a_client_decide():
    one, both = answer_of(private("curious(1)")), answer_of(private("curious(1)", "curious(1,4)"))
    assert one.level == "proven"
    assert both.level == "weak"
    assert both.verdict.startswith("Weaker than promised: ε = ")
    assert both.verdict.endswith(" instead of 3")
    assert "clients 1 and 4 together" in both.reason
    assert both.reason.endswith("if 4 of 5 clients are honest and connected. Here 1 is.")
    assert any("only its own noise protects it" in text for text in both.learns)
    assert any("worst coalition of 1 client: ε = 3" in text for text in both.guarantee)


@pytest.mark.parametrize("epsilon", [3.5, 7.0, 50.0])
def test_a_broken_promise_is_the_headline(epsilon):
    """Whatever the proved ε is worth, it is not what was promised."""
    answer = answer_of(with_bound(private("curious(1)"), Bound(epsilon, 1e-5, "noise")))
    assert (answer.level, answer.verdict) == ("no", "No: ε is above the promised 3")
    assert f"than ε = {epsilon:g} per sample of client 0" in answer.reason
    kept = answer_of(with_bound(private("curious(1)"), Bound(3.0, 1e-5, "noise")))
    assert kept.level == "proven"


def test_a_refuted_bound_is_no():
    audit = private("curious(1)")
    (result,) = audit.results
    refuted = SimpleNamespace(is_defect=True, victim=0, kind="client")
    broken = replace(audit, results=[replace(result, canaries=[refuted])])
    answer = answer_of(broken)
    assert (answer.level, answer.verdict) == ("no", "No: the guarantee was refuted")


def test_malicious_clients_that_rebuild_data():
    audit = private("curious(1)")
    nothing = Outcome((), None)
    rebuilt = Outcome((RecoveredSamples("gradient", 1, 10, 9),), None)
    answer = answer_of(replace(audit, gains=[Gain("malicious(1):echo", 0, "0", nothing, rebuilt)]))
    assert answer.level == "no"
    assert "recovers 9 of 10" in answer.reason


def test_what_was_not_examined_is_said():
    answer = answer_of(audited(tacit.DSGT(lr=0.1), ["curious(1)"], heat_map=False))
    assert (
        "what client 1 can learn about client 0 (5 clients in all) in the first 3 iterations"
        in answer.limits[0]
    )
    assert "Other coalitions were not examined." in answer.limits[0]
    assert "No attack was run" in answer.limits[1]


AWAY_FIRST = tacit.Participation(absences=[tacit.Absence(0, first=0, last=5)])


def test_iterations_without_the_victim_are_no_proof_for_those_with_it():
    """In the audited iterations client 0 is absent; later its gradients leak."""
    setting = Setting(tacit.DSGT(lr=0.1), QUADRATIC, RING, participation=AWAY_FIRST)
    options = AuditOptions([0], 3, steps=100, attacks=False, heat_map=False)
    answer = answer_of(run_audit(setting, ["curious(1)", "curious(2)"], options))
    assert answer.level == "unproven"
    assert "3 of 100 iterations" in answer.reason


def test_a_bound_says_for_whom_and_for_how_long():
    audit = private("curious(1)")
    assert "per sample of client 0 in the whole run" in answer_of(audit).reason
    ledgers = [replace(audit.results[0].ledgers[0], whole_run=None, run_steps=None)]
    shorter = replace(audit, results=[replace(audit.results[0], ledgers=ledgers)])
    assert "in 3 iterations" in answer_of(shorter).reason


def test_exact_sums_of_columns_are_no_proof():
    audit = private("curious(1)")
    told = "all clients learn totals"
    task = replace(audit.setting.task, disclosure=told)
    answer = answer_of(replace(audit, setting=replace(audit.setting, task=task)))
    verdict = "Not proven: what is shared before training has no noise"
    assert (answer.level, answer.verdict) == ("unproven", verdict)
    assert told in answer.reason
    assert any(told in limit for limit in answer.limits)


@pytest.mark.parametrize("adversary", ["eavesdropper", "curious(2)"])
def test_bounds_against_others_do_not_hold_for_neighbours(adversary):
    answer = answer_of(private(adversary))
    assert (answer.level, answer.verdict) == ("unproven", "Not proven against neighbours")


def test_a_large_delta_is_no_proof():
    answer = answer_of(with_bound(private("curious(1)"), Bound(0.1, 0.3, "noise")))
    assert (answer.level, answer.verdict) == ("unproven", "Not proven: δ is too large")


@pytest.mark.parametrize(("low", "level"), [(0.8, "leaks"), (0.52, "unproven")])
def test_membership_attacks_that_succeed_are_not_safe(low, level):
    audit = audited(NOISY, ["curious(1)"])
    roc = SimpleNamespace(auc=low + 0.05, interval=(low, low + 0.1))
    lower = SimpleNamespace(epsilon=0.0, delta=0.0)
    attack = SimpleNamespace(
        victim=0, roc=roc, lower=lower, score="loss", cut_short=False, comparable=False
    )
    result = replace(audit.results[0], memberships=[attack])
    answer = answer_of(replace(audit, results=[result]))
    assert answer.level == level
    assert ("AUC" in answer.reason) == (level == "leaks")


@pytest.mark.parametrize("name", sorted(ALGORITHMS.loadable()[0]))
def test_no_algorithm_is_safe_without_a_proof(name):
    try:
        algorithm, task = suited(made(ALGORITHMS[name]), QUADRATIC, RING, steps=4)
        audit = run_audit(
            Setting(algorithm, task, RING),
            None,
            AuditOptions([0], 2, 3, attacks=False, heat_map=False),
        )
    except Misuse:
        pytest.skip("does not run on this graph and task")
    answer = answer_of(audit)
    ledgers = [ledger for result in audit.results for ledger in result.ledgers]
    if answer.level in ("proven", "weak"):
        assert all(ledger.whole_run is not None for ledger in ledgers)
        assert all(math.isfinite(ledger.best.epsilon) for ledger in ledgers)
        assert not any(IDEAL_NOISE in ledger.best.assumptions for ledger in ledgers)
    else:
        assert "Yes" not in answer.verdict
    assert answer.reason.endswith(".")
