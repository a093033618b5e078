"""Metrics are those of scikit-learn, ties and missing classes included."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.nn import functional

from tacit.tasks import evaluation
from tacit.tasks.criteria import BinaryLoss, TokenLoss
from tacit.tasks.evaluation import TestSet
from tacit.tasks.flat import FlatModule
from tacit.tasks.metrics.metric import METRICS, find_metrics

EXACT = {"rel": 1e-9, "abs": 1e-9}
OF_CLASSES = [name for name, metric in METRICS.items() if "classes" in metric.kinds]
OF_NUMBERS = ["mse", "rmse", "mae", "r2"]


class Given(nn.Module):
    """Returns its inputs, which are the outputs of the test."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x):
        return x * self.scale


def scores(outputs, targets, criterion, metrics):
    flat = FlatModule(Given())
    test = TestSet(flat, criterion, outputs, targets).with_metrics(find_metrics(metrics))
    return test.models(flat.weights()[None], [0])


def measured(outputs, targets, criterion, metrics):
    found = scores(outputs, targets, criterion, metrics)
    return {name: float(values[0]) for name, values in found.metrics.items()}


@st.composite
def classified(draw, classes):
    """Logits from a few values, so that many are tied, and classes of which some may be missing."""
    count = draw(st.integers(2, 40))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    size = count if classes == 1 else (count, classes)
    values = rng.choice(rng.normal(size=draw(st.integers(1, 6))) * 3, size=size)
    present = draw(st.integers(1, max(2, classes)))
    actual = rng.integers(present, size=count)
    return torch.tensor(values), torch.tensor(actual)


@settings(max_examples=40, deadline=None)
@given(classified(1), st.sampled_from([3, 1000]))
def test_two_classes_by_one_logit(sample, batch):
    logits, actual = sample
    found = _in_batches(
        batch, logits, actual, BinaryLoss(functional.binary_cross_entropy_with_logits)
    )
    check_binary(found, logits.numpy(), torch.sigmoid(logits).numpy(), actual.numpy(), logits > 0)


@settings(max_examples=40, deadline=None)
@given(classified(2), st.sampled_from([3, 1000]))
def test_two_classes_by_two_logits(sample, batch):
    logits, actual = sample
    found = _in_batches(batch, logits, actual, functional.cross_entropy)
    score, probability = logits.diff(dim=1)[:, 0], logits.softmax(1)[:, 1]
    check_binary(found, score.numpy(), probability.numpy(), actual.numpy(), logits.argmax(1).bool())


@settings(max_examples=50, deadline=None)
@given(st.integers(3, 5).flatmap(classified), st.sampled_from([3, 1000]))
def test_several_classes(sample, batch):
    logits, actual = sample
    classes = logits.shape[1]
    found = _in_batches(batch, logits, actual, functional.cross_entropy)
    probability, truth = logits.softmax(1).numpy(), actual.numpy()
    predicted, labels = logits.argmax(1).numpy(), list(range(classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = {
            "balanced-accuracy": 100 * sklearn_metrics.balanced_accuracy_score(truth, predicted),
            "f1": sklearn_metrics.f1_score(truth, predicted, average="macro", zero_division=0),
            "precision": sklearn_metrics.precision_score(
                truth, predicted, average="macro", zero_division=0
            ),
            "recall": sklearn_metrics.recall_score(
                truth, predicted, average="macro", zero_division=0
            ),
            "brier": sklearn_metrics.brier_score_loss(truth, probability, labels=labels),
            "log-loss": sklearn_metrics.log_loss(truth, probability, labels=labels),
        }
    expected["f1-macro"] = expected["f1"]
    # scikit-learn refuses missing classes: ours is the mean over those that are there.
    present = [c for c in labels if 0 < (truth == c).sum() < len(truth)]
    areas = [sklearn_metrics.roc_auc_score(truth == c, probability[:, c]) for c in present]
    expected["auc"] = np.mean(areas) if areas else math.nan
    if len(set(truth)) == classes:
        whole = sklearn_metrics.roc_auc_score(truth, probability, multi_class="ovr")
        assert expected["auc"] == pytest.approx(whole, **EXACT)
    assert found == pytest.approx(expected, **EXACT, nan_ok=True)


def check_binary(found, score, probability, truth, predicted):
    predicted = predicted.long().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = {"labels": [0, 1]}
        expected = {
            "balanced-accuracy": 100 * sklearn_metrics.balanced_accuracy_score(truth, predicted),
            "f1": sklearn_metrics.f1_score(truth, predicted, zero_division=0),
            "f1-macro": sklearn_metrics.f1_score(
                truth, predicted, average="macro", zero_division=0
            ),
            "precision": sklearn_metrics.precision_score(truth, predicted, zero_division=0),
            "recall": sklearn_metrics.recall_score(truth, predicted, zero_division=0),
            "brier": sklearn_metrics.brier_score_loss(truth, probability, pos_label=1, **both)
            if len(set(truth)) == 2
            else np.mean((probability - truth) ** 2),
            "log-loss": sklearn_metrics.log_loss(truth, probability, **both),
            "auc": sklearn_metrics.roc_auc_score(truth, score)
            if len(set(truth)) == 2
            else math.nan,
        }
    assert found == pytest.approx(expected, **EXACT, nan_ok=True)


def _in_batches(size, outputs, targets, criterion):
    before = evaluation.TEST_BATCH["cpu"]
    evaluation.TEST_BATCH["cpu"] = size
    try:
        return measured(outputs, targets, criterion, OF_CLASSES)
    finally:
        evaluation.TEST_BATCH["cpu"] = before


def test_confident_predictions_are_clipped_as_scikit_learn_does():
    logits, actual = torch.tensor([[90.0, 0.0], [90.0, 0.0]]).double(), torch.tensor([0, 1])
    found = measured(logits, actual, functional.cross_entropy, ["log-loss", "auc"])
    probability = logits.softmax(1).numpy()
    expected = sklearn_metrics.log_loss(actual.numpy(), probability, labels=[0, 1])
    assert found["log-loss"] == pytest.approx(expected, **EXACT)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.integers(1, 3), st.integers(0, 10**6), st.booleans())
def test_regression(count, width, seed, constant):
    rng = np.random.default_rng(seed)
    targets = rng.normal(size=(count, width))
    if constant:
        # Whole numbers: their mean is exact, and so is that they do not vary.
        targets[:] = targets[:1].round()
    outputs = targets + rng.choice([0.0, 1.0, -0.3], size=targets.shape)
    found = measured(*map(torch.tensor, (outputs, targets)), functional.mse_loss, OF_NUMBERS)
    expected = {
        "mse": sklearn_metrics.mean_squared_error(targets, outputs),
        "rmse": sklearn_metrics.root_mean_squared_error(targets, outputs),
        "mae": sklearn_metrics.mean_absolute_error(targets, outputs),
    }
    # scikit-learn does not define R² of one sample.
    if count > 1:
        expected["r2"] = sklearn_metrics.r2_score(targets, outputs)
    assert {name: found[name] for name in expected} == pytest.approx(expected, **EXACT)


def test_perplexity_is_that_of_the_tokens_that_count():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 4, 7, dtype=torch.float64, generator=generator)
    targets = torch.randint(7, (5, 4), generator=generator)
    targets[0, 1:] = -100
    criterion = TokenLoss(functional.cross_entropy)
    found = scores(logits, targets, criterion, ["perplexity", "f1", "brier"])
    mean = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert float(found.metrics["perplexity"]) == pytest.approx(float(mean.exp()), **EXACT)
    kept = targets != -100
    predicted, truth = logits.argmax(-1)[kept].numpy(), targets[kept].numpy()
    f1 = sklearn_metrics.f1_score(truth, predicted, average="macro", zero_division=0)
    assert float(found.metrics["f1"]) == pytest.approx(f1, **EXACT)
    assert int(found.counts.actual.sum()) == int(kept.sum())


def test_ignored_classes_do_not_count():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(30, 3, dtype=torch.float64, generator=generator)
    targets = torch.randint(3, (30,), generator=generator)
    kept, marked = torch.arange(30) % 4 != 0, targets.clone()
    marked[~kept] = -100
    with_ignored = measured(logits, marked, functional.cross_entropy, OF_CLASSES)
    without = measured(logits[kept], targets[kept], functional.cross_entropy, OF_CLASSES)
    assert with_ignored == pytest.approx(without, **EXACT)


def test_many_classes_are_counted_without_a_matrix():
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(200, 60, dtype=torch.float64, generator=generator)
    targets = torch.randint(60, (200,), generator=generator)
    found = scores(logits, targets, functional.cross_entropy, ["f1", "balanced-accuracy"])
    assert found.counts.confusion is None
    predicted, truth = logits.argmax(1).numpy(), targets.numpy()
    f1 = sklearn_metrics.f1_score(truth, predicted, average="macro", zero_division=0)
    assert float(found.metrics["f1"]) == pytest.approx(f1, **EXACT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        balanced = sklearn_metrics.balanced_accuracy_score(truth, predicted)
    assert float(found.metrics["balanced-accuracy"]) == pytest.approx(100 * balanced, **EXACT)


def test_the_confusion_matrix_is_that_of_scikit_learn():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(50, 4, dtype=torch.float64, generator=generator)
    targets = torch.randint(4, (50,), generator=generator)
    found = scores(logits, targets, functional.cross_entropy, None)
    matrix = sklearn_metrics.confusion_matrix(targets.numpy(), logits.argmax(1).numpy())
    assert found.counts.confusion[0].tolist() == matrix.tolist()


def test_scores_that_are_not_numbers_have_no_auc():
    logits = torch.tensor([[0.0, math.nan], [1.0, 0.0], [0.5, 0.1]]).double()
    found = measured(logits, torch.tensor([0, 1, 1]), functional.cross_entropy, ["auc"])
    assert math.isnan(found["auc"])
