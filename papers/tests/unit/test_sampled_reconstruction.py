"""Attacks on noisy sums over samples: the truth is what was drawn, and the effort is stated."""

import json

import pytest
import torch
from filled_results import QUICK

from tacit.auditing.adversary import Adversary
from tacit.config.loading import with_keys
from tacit.record.unknowns import Unknown
from tacit_papers.findings.frontier import config
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.measures.inversion_search import InversionSearch
from tacit_papers.measures.recorded_run import RecordedRun
from tacit_papers.measures.sampled_reconstruction import (
    DrawnSamples,
    SampledReconstruction,
    SingleSample,
    known_sum,
    sample_gradients,
)

LABELS = ("private-sgd, ε = 8", "decor, ε = 8, batches of 256")
pytestmark = pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")


def small(label):
    plain = with_keys(config(label, QUICK), "data", limit_train=800, limit_test=50)
    return with_keys(with_keys(plain, "model", filters=2), "run", batch_size=2)


@pytest.mark.parametrize("label", LABELS)
def test_what_is_inverted_is_one_gradient_with_the_noise_that_is_left(label):
    run = RecordedRun.record(small(label), 3, 0, MeasureContext())
    drawn = DrawnSamples.of(run)
    adversaries = map(Adversary.parse, ("curious(1)+theta0", "curious(1,2,6,7)+theta0"))
    sums = [known_sum(run, drawn, adversary, 0) for adversary in adversaries]
    # One neighbour knows the victim's model in the first iteration of decor only.
    assert sums[1] is not None
    for known in filter(None, sums):
        single, (own, *_) = SingleSample.of(run, drawn, known), known.terms
        (x, *_), (y, *_) = drawn.behind([own])
        (true,) = sample_gradients(run.task.loss, single.theta, x[None], y[None])
        factor = min(1.0, drawn.clip(own) / float(true.norm()))
        noise = factor * (single.values - true)
        assert float(noise.std()) == pytest.approx(known.deviation, rel=0.1)
        assert abs(float(noise @ true.double())) < 5 * known.deviation * float(true.norm())


def test_the_drawn_samples_are_those_of_the_simulation():
    run = RecordedRun.record(small(LABELS[0]), 3, 0, MeasureContext())
    drawn, first = DrawnSamples.of(run), run.symbols.gradients(0)[0]
    theta = run.transcript.held_row(Unknown("theta0", 0, 0))
    x, y = drawn.behind([first])
    each = sample_gradients(run.task.loss, theta, x, y)
    total = (each * (drawn.clip(first) / each.norm(dim=1)).clamp(max=1.0)[:, None]).sum(0)
    assert torch.allclose(total, run.transcript.held_row(first), atol=1e-4)


@pytest.mark.parametrize("label", LABELS)
def test_a_leak_is_never_below_the_class_mean(label):
    search = InversionSearch("ours", 3, 1, total_variation=0.01)
    measure = SampledReconstruction(small(label), (search,), victims=2)
    # Descriptions are stored with the numbers.
    assert json.loads(json.dumps(measure.describe()))["searches"][0]["attack"] == "ours"
    values = measure(0, MeasureContext())
    for suffix in ("", "_together"):
        leak, floor = values[f"leak{suffix}"], values[f"class_mean{suffix}"]
        assert leak >= floor
        assert leak in {*values[f"tried{suffix}"].values(), floor}
        assert values[f"noise{suffix}"] > 0
