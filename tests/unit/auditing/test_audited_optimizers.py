"""Bounds and verdicts with momentum, weight decay and Adam: what costs privacy, what has none."""

import math

import pytest
import torch

import tacit
from support.bounds import RING, threat, whole_run_of
from support.suited import suited
from tacit.auditing.bounds.ledger import compute_ledger
from tacit.auditing.symbolic.replay import replay
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.privacy.clipping import Clip

TASK = tacit.quadratic(torch.eye(3).double().repeat(5, 1, 1), torch.ones(5, 3).double())
NOISE = tacit.Gaussian(2.0)
HEAVY = {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}
STEPS, CLIP = 5, Clip(0.5)


def ledger(algorithm, clip=CLIP):
    run = run_on_symbols(algorithm, RING, STEPS)
    mismatches = replay(algorithm, RING, run, width=3)
    assert not mismatches
    return compute_ledger(run, threat("curious(1)", clip=clip))


def prepared(kind, **options):
    return suited(kind(lr=0.1, **options), TASK, RING)[0]


@pytest.mark.parametrize(
    ("plain", "optimized"),
    [
        # Functions of trackers with noise and of models, both of which are sent.
        (
            tacit.DPDSGT(lr=0.1, noise=NOISE, inject="every"),
            tacit.DPDSGT(lr=0.1, noise=NOISE, inject="every", **HEAVY),
        ),
        # Decay of what was sent.
        (tacit.PDLMS(lr=0.1, noise=NOISE), tacit.PDLMS(lr=0.1, noise=NOISE, weight_decay=0.1)),
        # Functions of sums with noise.
        (prepared(tacit.Decor), prepared(tacit.Decor, **HEAVY)),
        (prepared(tacit.PrivateSGD), prepared(tacit.PrivateSGD, momentum=0.9, weight_decay=0.1)),
        (prepared(tacit.PrivateSGD), prepared(tacit.PrivateSGD, optimizer="adamw")),
    ],
    ids=["tracking", "diffusion", "decor", "private, momentum", "private, adamw"],
)
def test_optimizers_after_the_noise_cost_no_privacy(plain, optimized):
    expected = ledger(plain).upper
    assert math.isfinite(expected.epsilon)
    assert ledger(optimized).upper.epsilon == pytest.approx(expected.epsilon, rel=1e-6)


@pytest.mark.parametrize(
    "kind_and_options",
    [(tacit.DPDSGT, {"inject": "every"}, HEAVY), (tacit.PDLMS, {}, {"weight_decay": 0.1})],
)
def test_a_bound_for_the_whole_run_is_never_below_that_of_its_iterations(kind_and_options):
    """No message shows the momentum in the state: the bound must follow it, or be none."""
    kind, options, optimizer = kind_and_options
    algorithm = kind(lr=0.1, noise=NOISE, **options, **optimizer)
    found = whole_run_of(algorithm, steps=STEPS, clip=CLIP)
    first = ledger(algorithm).upper.epsilon
    assert found is None or found.epsilon >= first * (1 - 1e-9)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_local_adam_has_no_guarantee_although_gradients_are_clipped(optimizer):
    algorithm = tacit.DSG(lr=0.1, optimizer=optimizer, weight_decay=0.1)
    assert ledger(algorithm).upper.epsilon == math.inf


def test_an_audit_shows_that_local_adam_protects_nothing():
    run = tacit.run(TASK.clipped(1.0), tacit.DSG(lr=0.1, optimizer="adam"), RING, steps=3)
    audit = tacit.audit(run, "eavesdropper", attacks=False)
    assert any("Adam protects nothing" in remark for remark in audit.remarks)
    assert "protected" not in str(audit)
    assert "direction" in str(audit)
