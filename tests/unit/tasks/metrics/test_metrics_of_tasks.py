import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.nn import functional

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.core.rows import shared
from tacit.tasks import evaluation

N = 3

pytestmark = pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")


def samples(count, seed, classes=2):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    return x, torch.randint(classes, (count,), generator=generator)


def task_of(classes=2, width=None, **options):
    parts = [samples(20, i, classes) for i in range(N)]
    module = nn.Linear(4, classes if width is None else width)
    return tacit.Task(
        module, parts, batch_size=5, test=samples(50, 9, classes), init="same", **options
    )


def regression():
    parts = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(N)]
    return tacit.Task(
        nn.Linear(4, 1),
        parts,
        loss=functional.mse_loss,
        test=(torch.randn(9, 4), torch.randn(9, 1)),
    )


def simulated(task, steps=3, **options):
    graph = tacit.Topology.ring(task.clients).mixing()
    return tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=steps, **options)


class TestSimulated:
    def test_metrics_are_those_of_each_clients_model(self):
        task = task_of()
        run = simulated(task, metrics=["auc", "f1"])
        x, y = samples(50, 9)
        linear = nn.Linear(4, 2)
        areas = []
        for theta in run.theta:
            nn.utils.vector_to_parameters(theta, linear.parameters())
            logits = linear(x).detach().double()
            areas.append(sklearn_metrics.roc_auc_score(y, logits.diff(dim=1)[:, 0]))
        last = run.history[-1]
        assert last.per_client["auc"] == pytest.approx(areas, abs=1e-6)
        assert last.metrics["auc"].mean == pytest.approx(np.mean(areas), abs=1e-6)
        assert last.metrics["auc"].max == pytest.approx(max(areas), abs=1e-6)
        assert run.history.column("auc.mean")[-1] == last.metrics["auc"].mean
        assert run.history.column("auc.clients.2")[-1] == last.per_client["auc"][2]

    def test_own_functions_get_all_outputs_and_targets(self, monkeypatch):
        monkeypatch.setitem(evaluation.TEST_BATCH, "cpu", 7)
        seen = []

        def positives(outputs, targets):
            seen.append((tuple(outputs.shape), targets))
            return (outputs.argmax(1) == 1).float().mean()

        run = simulated(task_of(), steps=1, metrics={"positives": positives, "auc": "auc"})
        shape, targets = seen[0]
        assert shape == (50, 2)
        assert torch.equal(targets, samples(50, 9)[1])
        confusion = run.history[-1].predictions.confusion
        shares = sum(row[1] for row in confusion) / sum(map(sum, confusion))
        assert run.history[-1].metrics["positives"].mean == pytest.approx(shares)

    def test_accuracy_and_loss_do_not_depend_on_metrics(self):
        plain, measured = simulated(task_of()), simulated(task_of(), metrics=["auc", "brier"])
        assert torch.equal(plain.theta, measured.theta)
        for one, other in zip(plain.history, measured.history, strict=True):
            assert (one.accuracy, one.loss) == (other.accuracy, other.loss)

    def test_the_baseline_is_recorded_always(self):
        run = simulated(task_of())
        counts = torch.bincount(samples(50, 9)[1])
        assert run.history[-1].baseline == pytest.approx(100 * float(counts.max() / 50))
        assert "majority baseline" in repr(run.history)
        assert not run.history[-1].metrics
        assert not run.history[-1].per_client

    def test_own_test_sets(self):
        tests = [samples(30, 20 + i) for i in range(N)]
        task = replace(task_of(), client_tests=tests)
        run = simulated(task, metrics=["f1"])
        last, linear, accuracies, averages = run.history[-1], nn.Linear(4, 2), [], []
        for theta, (x, y) in zip(run.theta, tests, strict=True):
            for into, vector in ((accuracies, theta), (averages, run.theta.mean(0))):
                nn.utils.vector_to_parameters(vector, linear.parameters())
                into.append(100 * float((linear(x).argmax(1) == y).float().mean()))
        assert last.per_client["own_test.accuracy"] == pytest.approx(accuracies, rel=1e-5)
        assert last.own_test["accuracy"].average_model == pytest.approx(np.mean(averages), rel=1e-5)
        baselines = [100 * float(torch.bincount(y).max()) / len(y) for _, y in tests]
        assert last.per_client["own_test.baseline"] == pytest.approx(baselines)
        assert len(last.per_client["own_test.f1"]) == N

    def test_a_client_without_test_samples_has_no_numbers(self):
        one_class = (torch.randn(4, 4), torch.zeros(4, dtype=torch.int64))
        task = replace(task_of(), client_tests=[samples(30, 20), None, one_class])
        last = simulated(task, metrics=["auc"]).history[-1]
        assert [math.isnan(value) for value in last.per_client["own_test.accuracy"]] == [
            False,
            True,
            False,
        ]
        # One class has no AUC: the mean is over the clients that have one.
        areas = last.per_client["own_test.auc"]
        assert [math.isnan(value) for value in areas] == [False, True, True]
        assert last.own_test["auc"].mean == areas[0]


class TestAlerts:
    def test_a_model_of_one_class_is_called_so(self):
        parts = [(torch.randn(20, 4), torch.arange(20) // 19) for _ in range(N)]
        test = (torch.randn(40, 4), torch.arange(40) // 36)
        task = tacit.Task(nn.Linear(4, 2), parts, test=test)
        start = torch.tensor([0.0] * 8 + [9.0, 0.0]).repeat(N, 1)
        never = replace(task, initial=lambda seed, clients: start)
        graph = tacit.Topology.ring(N).mixing()
        with pytest.warns(tacit.Caution, match="does not beat the majority baseline") as caught:
            run = tacit.run(never, tacit.DSGT(lr=1e-9), graph, steps=1, metrics=["f1"])
        assert any("Every client's model predicts only class 0" in str(w.message) for w in caught)
        last = run.history[-1]
        assert (last.accuracy.mean, last.baseline, last.metrics["f1"].max) == (90, 90, 0)
        assert "class healthy" in last.alerts(("healthy", "ill"))[0]

    def test_a_good_model_has_none(self):
        x = torch.tensor([[1.0, 0], [0, 1]]).repeat(10, 1)
        y = torch.arange(20) % 2
        task = tacit.Task(nn.Linear(2, 2), [(x, y)] * N, test=(x, y))
        graph = tacit.Topology.ring(N).mixing()
        run = tacit.run(task, tacit.DSGT(lr=0.5), graph, steps=30)
        assert run.history[-1].accuracy.mean == 100
        assert run.history[-1].alerts() == []


@pytest.mark.parametrize(
    ("task", "metrics", "words"),
    [
        (task_of, ["auk"], ["'auk'", "Did you mean 'auc'", "balanced-accuracy"]),
        (task_of, ["r2"], ["'r2'", "numbers", "classes", "auc"]),
        (task_of, ["perplexity"], ["'perplexity'", "tokens", "log-loss"]),
        (regression, ["auc"], ["'auc'", "classes", "numbers", "mse", "cross-entropy"]),
        (regression, ["accuracy"], ["'accuracy'", "mse"]),
        (task_of, "auc", ["metrics is 'auc'", "list"]),
        (task_of, {"mine": 3}, ["'mine'", "int", "function"]),
        (task_of, {"auc": len}, ["'auc'", "built-in"]),
        (task_of, {"a.b": len}, ["'a.b'", "without dots"]),
        (task_of, {"mine": lambda outputs, targets: outputs}, ["'mine'", "one number", "(50, 2)"]),
        (task_of, {"mine": lambda: 0}, ["'mine'", "takes"]),
    ],
)
def test_metrics_that_cannot_be_computed(task, metrics, words):
    assert_mentions(misuse_message(simulated, task(), metrics=metrics), *words)


def test_metrics_need_a_test_set():
    parts = [samples(20, i) for i in range(N)]
    task = tacit.Task(nn.Linear(4, 2), parts, batch_size=5)
    assert_mentions(misuse_message(simulated, task, metrics=["auc"]), "no test set", "`test`")
    simulated(task, metrics=["loss"])


def test_regression_metrics_of_a_run():
    last = simulated(regression(), metrics=["mse", "r2", "mae", "rmse"]).history[-1]
    assert last.metrics["mse"].mean == pytest.approx(last.loss.mean, rel=1e-5)
    assert last.baseline is None
    assert last.alerts() == []


def test_equal_models_are_evaluated_once():
    task = task_of().with_metrics(["auc", "brier"])
    theta = task.initial(0, [0])
    once = task.evaluation.models(theta, [0])
    many = task.evaluation.models(shared(theta, 4), range(4))
    for name, values in many.metrics.items():
        assert values.tolist() == once.metrics[name].tolist() * 4
    assert many.counts.confusion.tolist() == once.counts.confusion.tolist() * 4


def test_models_are_evaluated_in_groups_where_outputs_are_large(monkeypatch):
    task = task_of().with_metrics(["auc", "f1"])
    theta = torch.randn(5, task.parameters, generator=torch.Generator().manual_seed(0))
    together = task.evaluation.models(theta, range(5))
    monkeypatch.setattr(evaluation, "KEPT_OUTPUTS", 1)
    apart = task.evaluation.models(theta, range(5))
    assert together.metrics["auc"].tolist() == apart.metrics["auc"].tolist()
    assert together.counts.confusion.tolist() == apart.counts.confusion.tolist()


def test_several_inputs_of_own_test_sets():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x, z):
            return self.linear(x + z)

    x, y = samples(20, 0)
    parts = [((x, x), y)] * N
    task = tacit.Task(Sum(), parts, test=((x, x), y))
    (own, *_) = replace(task, client_tests=[((x, 0 * x), y)] * N).own_tests
    theta = task.initial(0, range(N))
    common = task.evaluation.models(theta, range(N))
    assert own.models(theta, range(N)).loss.tolist() != common.loss.tolist()
