import torch

from tacit.peer.node.node_scores import NodeScores
from tacit.tasks.evaluation import ModelScores
from tacit.tasks.metrics.class_counts import ClassCounts


def scores(matrix, **metrics):
    counts = ClassCounts.from_table(torch.tensor([matrix]))
    accuracy = 100 * counts.correct.sum(1) / counts.actual.sum(1)
    values = {name: torch.tensor([value]) for name, value in metrics.items()}
    return ModelScores(torch.tensor([0.5]), accuracy, values, counts)


def test_a_node_keeps_metrics_baseline_and_predictions():
    one = NodeScores.of(scores([[8, 1], [0, 1]], auc=0.75, f1=float("nan")))
    assert (one.loss, one.accuracy, one.baseline) == (0.5, 90.0, 90.0)
    assert one.further() == {"baseline": 90.0, "metrics": {"auc": 0.75, "f1": None}}
    summary = one.summary()
    assert summary["confusion"]["counts"] == [[8, 1], [0, 1]]
    assert "does not beat the majority baseline" in summary["alerts"][0]


def test_warnings_name_the_class():
    one = NodeScores.of(scores([[8, 0], [2, 0]]), class_names=("benign", "malignant"))
    assert "only class benign" in one.alerts[0]
    assert "predicting class benign for every sample" in one.alerts[1]
    assert one.summary()["confusion"]["classes"] == ["benign", "malignant"]


def test_its_own_test_set_stands_beside_the_common_one():
    one = NodeScores.of(scores([[8, 0], [0, 2]], f1=1.0), scores([[3, 0], [2, 0]], f1=0.0))
    expected = {"loss": 0.5, "accuracy": 60.0, "baseline": 60.0, "f1": 0.0}
    assert one.further()["own_test"] == expected
    assert one.alerts == [
        "The model does not beat the majority class of its client's own test set."
    ]


def test_a_regression_has_none_of_it():
    one = NodeScores.of(ModelScores(torch.tensor([2.0]), None, {"mse": torch.tensor([4.0])}))
    assert one.further() == {"baseline": None, "metrics": {"mse": 4.0}}
    assert one.alerts == []
    assert "confusion" not in one.summary()
