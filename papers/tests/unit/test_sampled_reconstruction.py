"""Attacks on noisy sums over samples: the truth is what was drawn, and the effort is stated."""

import pytest
import torch
from filled_results import QUICK
from torch.func import grad, vmap

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import evidence
from tacit.config.loading import with_keys
from tacit_papers.findings.frontier import RULES, config
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.measures.inversion_search import InversionSearch
from tacit_papers.measures.recorded_run import RecordedRun
from tacit_papers.measures.sampled_reconstruction import DrawnSamples, SampledReconstruction

LABELS = ("private-sgd, ε = 8", "decor, ε = 8")
ALL = RULES["noise with a guarantee"]
pytestmark = pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")


def small(label):
    plain = config(ALL[label], QUICK, 8.0)
    plain = with_keys(plain, "data", limit_train=800, limit_test=50)
    return with_keys(plain, "model", filters=2)


@pytest.mark.parametrize("label", LABELS)
def test_a_coalition_around_the_victim_has_the_sum_over_the_drawn_samples_with_noise(label):
    run = RecordedRun.record(small(label), 3, 0, MeasureContext())
    leakage = run.leakage(Adversary.parse("curious(1,2,6,7)+theta0"), 0)
    found = evidence(leakage, "gradient", 0, run.transcript)
    drawn = DrawnSamples(run)
    (term,), bound = found.terms, drawn.clip(found.terms[0])
    x, y = drawn.of(found.terms)
    theta, loss = found.points[0].float(), run.task.loss
    each = vmap(lambda a, b: grad(loss)(theta, a[None], b[None]))(x, y)
    total = (each * (bound / each.norm(dim=1)).clamp(max=1.0)[:, None]).sum(0)
    # What the simulation computed, before noise.
    held = run.transcript.held_row(term)
    assert torch.allclose(total, held, atol=1e-4)
    assert float((found.values - held).std()) == pytest.approx(found.deviation, rel=0.1)


@pytest.mark.parametrize("label", LABELS)
def test_a_leak_is_never_below_the_class_mean(label):
    search = InversionSearch("ours", 3, 1, total_variation=0.01)
    values = SampledReconstruction(small(label), (search,), victims=2)(0, MeasureContext())
    for suffix in ("", "_together"):
        leak, floor = values[f"leak{suffix}"], values[f"class_mean{suffix}"]
        assert leak >= floor
        assert leak in {*values[f"tried{suffix}"].values(), floor}
        assert values[f"noise{suffix}"] > 0
