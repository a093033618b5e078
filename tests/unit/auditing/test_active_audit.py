"""Audits of malicious clients next to passive ones, from the setting to the report."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tacit
from tacit import data, models
from tacit.auditing.active.gains import Gain, Outcome, gain_cells, gain_summary
from tacit.auditing.active.recovered import RecoveredSamples
from tacit.auditing.audit import run_audit
from tacit.auditing.options import AttackOptions, AuditOptions
from tacit.auditing.result import ASSUMPTIONS
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting
from tacit.report.audit_sections import stored_audit

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
DIGITS = data.load("mnist-mini", limit_train=150, limit_test=300)
SHAPE = tuple(DIGITS.train.x.shape[1:])
LITTLE = AttackOptions(restarts=1, seconds=0.2)


def setting(algorithm, model="mlp", **options):
    if model == "mlp":
        options = {"hidden": [64]}
    parts = [(DIGITS.train.x[k::5][:30], DIGITS.train.y[k::5][:30]) for k in range(5)]
    task = tacit.Task(
        models.build(model, SHAPE, 10, **options),
        parts,
        batch_size=16,
        test=(DIGITS.test.x, DIGITS.test.y),
        init="same",
    )
    return Setting(algorithm, task, RING)


def audited(algorithm, adversary, attacks=LITTLE, model="mlp", iterations=2, **options):
    return run_audit(
        setting(algorithm, model),
        [adversary] if isinstance(adversary, str) else adversary,
        AuditOptions(iterations=iterations, steps=4, attacks=attacks, heat_map=False, **options),
    )


@pytest.fixture(scope="module")
def imprint():
    return audited(tacit.DSG(lr=0.1), "malicious(1):imprint")


def test_the_passive_counterpart_comes_first(imprint):
    names = [str(result.adversary) for result in imprint.results]
    assert names == ["curious(1)", "malicious(1):imprint"]
    passive, active = (result.leakage[0].of("gradient").statuses for result in imprint.results)
    assert passive == active


def test_imprint_recovers_samples_of_a_batch(imprint):
    (gain,) = imprint.gains
    before, after = gain.passive.of("gradient"), gain.active.of("gradient")
    assert (before.samples, after.samples) == (16, 16)
    assert after.recovered >= 8 > 2 * before.recovered
    assert gain.gains_samples
    assert "Malicious(1):imprint against client 0 recovers" in imprint.summary
    assert "first weights" in "".join(imprint.remarks)


def test_numbers_and_report_have_both(imprint):
    plain = json.loads(json.dumps(imprint.as_dict(), allow_nan=False))
    (gain,) = plain["active"]
    assert gain["adversary"] == "malicious(1):imprint"
    assert gain["active"]["recovered"][0]["mse_below"] == 1e-3
    assert gain["statement"] in imprint.summary.replace("Malicious", "malicious")
    sections = stored_audit(imprint).sections
    assert "malicious(1):imprint" in sections["Audit: passive and active"]
    assert any("Malicious clients wait" in one for one in ASSUMPTIONS)


@pytest.mark.slow
def test_samples_are_recovered_from_a_sum_over_honest_clients():
    """Masks hide gradients and differences; the sum over all honest clients is known."""
    lppa = tacit.LPPA(lr=0.1, fresh=True)
    (gain,) = audited(lppa, "malicious(1):imprint", iterations=3).gains
    before, after = gain.passive.of("sum"), gain.active.of("sum")
    assert after.recovered >= 12 > 4 * before.recovered


def test_each_behaviour_that_applies_is_tried():
    audit = audited(tacit.DSGT(lr=0.1), "malicious(1)", attacks=False)
    names = [str(result.adversary) for result in audit.results]
    every = ["echo", "isolate", "override", "imprint", "imprint-override"]
    assert names == ["curious(1)", *(f"malicious(1):{name}" for name in every)]
    assert audit.gains == []


def test_behaviours_that_do_not_apply_are_named():
    audit = audited(tacit.PDMM(), "malicious(1)", attacks=False, model="cnn2")
    assert [str(r.adversary) for r in audit.results] == ["curious(1)", "malicious(1):echo"]
    notes = " ".join(audit.notes)
    assert "no message in which override is possible" in notes
    assert "does not begin with a linear layer" in notes


def test_passive_and_malicious_adversaries_in_one_audit():
    audit = audited(tacit.DSG(lr=0.1), ["eavesdropper", "malicious(1):echo"], attacks=False)
    names = [str(result.adversary) for result in audit.results]
    assert names == ["eavesdropper", "curious(1)", "malicious(1):echo"]


@pytest.mark.parametrize(
    ("adversary", "options", "words"),
    [
        ("malicious(0):echo", {}, "Client 0 is corrupt.*Name an honest client"),
        ("malicious(2):echo", {}, "does not reach client 0.*neighbour of the victim: 1, 4"),
        ("malicious(9)", {}, "corrupts client 9.*from 0 to 4"),
        ("malicious(1):imprint", {"model": "cnn2"}, "a ReLU.*Choose such a model"),
        ("malicious(1):echo", {"victims": [7]}, "no client 7"),
    ],
)
def test_bad_requests(adversary, options, words):
    with pytest.raises(Misuse, match=words):
        audited(tacit.DSG(lr=0.1), adversary, attacks=False, **options)


def test_a_server_leaves_nothing_to_echo():
    with pytest.raises(Misuse, match=r"no message in which echo is possible.*imprint"):
        audited(tacit.FedAvg(lr=0.1), "malicious(1):echo", attacks=False)


@pytest.mark.slow
def test_samples_are_recovered_from_what_a_server_averages():
    (gain,) = audited(tacit.FedAvg(lr=0.1), "malicious(1):imprint").gains
    assert gain.active.of("sum").recovered >= 12


def test_echo_needs_a_victim_that_sends_to_it():
    edges = np.array([[1, 0], [0, 2], [2, 1]])
    graph = tacit.Topology(3, edges, directed=True, name="cycle").mixing("sinkhorn")
    task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.zeros(3, 2))
    with pytest.raises(Misuse, match="does not see what client 0 sends"):
        run_audit(
            Setting(tacit.DSGT(lr=0.1), task, graph),
            ["malicious(1):echo"],
            AuditOptions(iterations=2, attacks=False),
        )


# --- Statements ---


def outcome(recovered, auc):
    member = None
    if auc is not None:
        curve = SimpleNamespace(auc=auc, interval=(auc - 0.1, auc + 0.1))
        member = SimpleNamespace(score="loss", roc=curve)
    return Outcome((RecoveredSamples("gradient", 1, 16, recovered),), member)


def test_a_gain_is_more_than_chance():
    def gain(before, after, low, high):
        return Gain("malicious(1):echo", 0, "0", outcome(before, low), outcome(after, high))

    nothing = gain(4, 5, 0.6, 0.7)
    assert not nothing.gains_samples
    assert not nothing.gains_membership
    assert "gains nothing" in nothing.statement
    assert gain_summary([nothing]).startswith("Deviating from the protocol gains nothing")
    samples, members = gain(3, 12, 0.6, 0.6), gain(3, 3, 0.5, 0.9)
    assert "recovers 12 of 16 samples behind 1 gradient (3 passively)" in samples.statement
    assert "raises membership AUC from 0.500 to 0.900" in members.statement
    assert gain_summary([nothing, members, samples]).startswith("Malicious(1):echo against")
    assert gain_cells(samples) == ["gradient", "3 → 12", "16", "0.600 → 0.600"]
    assert gain_summary([]) == ""


def test_evidence_that_only_the_active_adversary_has_counts_from_zero():
    gain = Gain("m", 0, "0", Outcome((), None), outcome(9, None))
    assert gain.most == (0, RecoveredSamples("gradient", 1, 16, 9))
    assert gain_cells(gain)[-1] == "– → –"


def test_every_kind_of_evidence_is_shown():
    found = RecoveredSamples("gradient", 1, 16, 9), RecoveredSamples("sum", 3, 192, 40)
    gain = Gain("m", 0, "0", outcome(2, None), Outcome(found, None))
    assert gain_cells(gain, "; ")[:3] == ["gradient; sum × 3", "2 → 9; 0 → 40", "16; 192"]
    nothing = Gain("m", 0, "0", Outcome((), None), Outcome((), None))
    assert gain_cells(nothing) == ["–", "–", "–", "– → –"]
