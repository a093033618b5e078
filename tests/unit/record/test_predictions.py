import math
from dataclasses import replace

import pytest

from tacit.record.history import Record, Spread
from tacit.record.predictions import Predictions, accuracy_alerts

NAMES = ("healthy", "ill")


def alerts(accuracy, baseline, *favourites, clients=None):
    predictions = Predictions(0, favourites, None)
    return accuracy_alerts(accuracy, baseline, predictions, clients or {}, NAMES)


def test_an_accuracy_above_the_baseline_of_varied_predictions_is_fine():
    assert alerts(95.0, 90.0, (0, 88.0), (0, 91.0)) == []


def test_an_accuracy_of_the_baseline_is_not():
    [alert] = alerts(90.0, 90.0, (0, 88.0))
    assert "Accuracy 90.00 % does not beat" in alert
    assert "class healthy for every sample gives 90.00 %" in alert


@pytest.mark.parametrize(
    ("favourites", "words"),
    [
        ([(0, 100.0)], "The model predicts only class healthy (100 %"),
        ([(0, 100.0)] * 3, "Every client's model predicts only class healthy (100 %"),
        ([(0, 99.2), (0, 99.7)], "Every client's model predicts almost only class healthy (99.2 %"),
        ([(0, 99.5), (1, 99.5)], "Every client's model predicts almost only one class"),
        ([(0, 99.5), (0, 60.0)], "1 of 2 clients' models predict almost only class healthy"),
    ],
)
def test_models_that_predict_one_class(favourites, words):
    assert words in alerts(91.0, 90.0, *favourites)[0]


def test_a_test_set_of_almost_one_class_may_be_predicted_so():
    assert alerts(99.9, 99.4, (0, 99.4)) == []
    assert "only class healthy" in alerts(99.4, 99.4, (0, 100.0))[0]


def test_a_test_set_of_one_class_says_nothing():
    assert alerts(100.0, 100.0, (0, 100.0)) == [
        "All test samples are of class healthy: accuracy says nothing here."
    ]


def test_own_test_sets():
    own = {"own_test.accuracy": [80.0, 70.0, 100.0], "own_test.baseline": [80.0, 75.0, 100.0]}
    [alert] = alerts(95.0, 90.0, (0, 88.0), clients=own)
    assert alert == "No client's model beats the majority class of its client's own test set."
    better = own | {"own_test.accuracy": [80.0, 76.0, 100.0]}
    assert alerts(95.0, 90.0, (0, 88.0), clients=better) == []


def test_there_is_no_matrix_of_many_classes():
    assert Predictions(0, ((0, 50.0),), None).as_dict() is None
    kept = Predictions(0, ((0, 50.0),), ((1, 2), (3, 4))).as_dict(("a",))
    assert kept == {"classes": ["a", "1"], "counts": [[1, 2], [3, 4]], "models": 1}


@pytest.mark.parametrize(("error", "found"), [(2.0, 0), (3.0, 1), (4.0, 1), (math.nan, 0)])
def test_an_error_of_the_mean_is_not_fine(error, found):
    loss, rmse, baseline = (Spread(one, one, one, one) for one in (0.5, error, 3.0))
    record = Record(
        0, 0, None, loss, 0.0, 0, 0.0, metrics={"rmse": rmse, "baseline-rmse": baseline}
    )
    assert len(record.alerts()) == found
    assert record.describe() == f"RMSE {error:.4g} (of the mean 3)"
    assert replace(record, metrics={"rmse": rmse}).alerts() == []
