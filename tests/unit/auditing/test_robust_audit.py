"""What an audit says of robust mixing, and what it does not say."""

import math

import pytest
import torch

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.auditing.audit import run_audit
from tacit.auditing.options import AuditOptions
from tacit.engines.setting import Setting

GRAPH = tacit.Topology.random_regular(7, 4, seed=1).mixing("metropolis", lazy=True)
NEIGHBOURS = sorted(int(s) for s, t in GRAPH.edges if t == 0)
OPTIONS = AuditOptions(victims=[0], iterations=3, attacks=False, heat_map=False)
RULES = ("centred-clipping", "trimmed-mean")


def setting(algorithm):
    draw = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Linear(3, 2)
    parts = [(torch.randn(6, 3, generator=draw), torch.arange(6) % 2) for _ in range(7)]
    task = tacit.Task(module, parts, batch_size=3).clipped(1.0)
    return Setting(algorithm, task, GRAPH)


def audited(algorithm, *adversaries):
    return run_audit(setting(algorithm), list(adversaries), OPTIONS)


@pytest.mark.parametrize("rule", RULES)
def test_the_remarks_say_what_robust_mixing_does_to_lppa(rule):
    algorithm = tacit.Robust(tacit.LPPA(lr=0.1), rule, allow_inexact=True)
    remarks = " ".join(audited(algorithm, f"curious({NEIGHBOURS[0]})").remarks)
    assert_mentions(remarks, "leaves a part of its mask", "not linear", "3 of 4", "own row back")


@pytest.mark.parametrize("rule", RULES)
def test_whoever_knows_all_rows_knows_the_result(rule):
    """All neighbours together compute the gradients, as with plain mixing."""
    everyone = f"curious({','.join(map(str, NEIGHBOURS))})"
    (result,) = audited(tacit.Robust(tacit.DSG(lr=0.1), rule), everyone).results
    assert result.verdicts[0].headline == "exposed"


@pytest.mark.parametrize("rule", RULES)
def test_nothing_that_is_bounded_gets_better(rule):
    adversary, noisy = f"curious({NEIGHBOURS[0]})", tacit.MDSG(lr=0.1)
    both = audited(tacit.Robust(noisy, rule), adversary), audited(noisy, adversary)
    ours, theirs = (one.results[0].ledgers[0].upper.epsilon for one in both)
    assert math.isfinite(theirs)
    assert ours >= theirs * (1 - 1e-9)


@pytest.mark.parametrize("behaviour", [":echo", ":override", ""])
def test_malicious_clients_are_not_certified(behaviour):
    adversary = f"malicious({NEIGHBOURS[0]}){behaviour}"
    algorithm = tacit.Robust(tacit.DSG(lr=0.1))
    message = misuse_message(run_audit, setting(algorithm), [adversary], OPTIONS)
    assert_mentions(message, "robust", "not known")
