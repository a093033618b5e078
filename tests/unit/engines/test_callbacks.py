import math

import pytest
import torch

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.engines.callbacks import MLflow, TensorBoard, WandB, best_index
from tacit.engines.observation import recorded_columns

CALLBACKS = tacit.callbacks


@pytest.fixture
def simulate():
    """Simulate a problem that one step solves, with callbacks."""
    task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2))
    graph = tacit.Topology.ring(3).mixing("metropolis")

    def running(*callbacks, steps=12, lr=1.0, **options):
        return tacit.run(
            task, tacit.DSG(lr=lr), graph, steps=steps, record_every=1, callbacks=callbacks,
            **options,
        )  # fmt: skip

    return running


def test_a_callback_sees_every_record_and_the_models(simulate):
    seen = []
    run = simulate(lambda record, simulation: seen.append((record, simulation.state.theta.clone())))
    assert [record for record, _ in seen] == list(run.history)
    assert torch.equal(seen[-1][1], run.theta)
    assert [record.step for record, _ in seen] == list(range(13))


def test_a_callback_ends_the_run_and_all_others_are_still_called(simulate):
    seen = []
    run = simulate(
        lambda record, simulation: record.step == 3,
        lambda record, simulation: seen.append(record.step),
    )
    assert run.history[-1].step == 3
    assert seen == [0, 1, 2, 3]
    same = simulate(steps=3)
    assert torch.equal(run.theta, same.theta)


def test_callbacks_do_not_change_the_numbers(simulate, tmp_path):
    best = CALLBACKS.BestCheckpoint("loss.mean", tmp_path / "best")
    assert torch.equal(simulate(best, lr=0.1).theta, simulate(lr=0.1).theta)


def test_early_stopping_waits_for_a_better_record(simulate):
    run = simulate(CALLBACKS.EarlyStopping("loss.mean", patience=4), steps=50)
    # The first step reaches the optimum.
    assert run.history[-1].step == 5
    slow = simulate(CALLBACKS.EarlyStopping("loss.mean", patience=4), lr=0.1)
    assert slow.history[-1].step == 12


def test_small_changes_do_not_count_as_better(simulate):
    slow = simulate(CALLBACKS.EarlyStopping(patience=2, min_change=0.5), lr=0.01)
    assert slow.history[-1].step == 2


@pytest.mark.parametrize(
    ("values", "metric", "best"),
    [
        ([3.0, 1.0, 1.0, 2.0], "loss.mean", 1),
        ([3.0, 1.0, 4.0], "accuracy.mean", 2),
        ([math.nan, 5.0, math.nan], "msd", 1),
        ([math.nan, math.nan], "loss.mean", 0),
    ],
)
def test_the_best_of_a_column(values, metric, best):
    assert best_index(values, metric) == best


def test_the_best_models_are_kept(simulate, tmp_path):
    best = CALLBACKS.BestCheckpoint("loss.mean", tmp_path / "best")
    # With this step size every step makes the models worse.
    run = simulate(best, lr=2.5, steps=5)
    first = simulate(steps=0)
    assert torch.equal(best.load(), first.theta)
    assert not torch.equal(best.load(), run.theta)
    assert len(list((tmp_path / "best").iterdir())) == 1


def test_a_best_checkpoint_that_was_never_written(tmp_path):
    best = CALLBACKS.BestCheckpoint("loss.mean", tmp_path)
    assert_mentions(misuse_message(best.load), str(tmp_path), "Run with this callback")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CALLBACKS.EarlyStopping(patience=0), ["patience is 0"]),
        (lambda: CALLBACKS.EarlyStopping(min_change=math.nan), ["min_change is nan"]),
        (lambda: CALLBACKS.BestCheckpoint(3, "x"), ["metric is 3"]),
    ],
)
def test_mistakes_are_found_before_the_run(make, words):
    assert_mentions(misuse_message(make), *words)


@pytest.mark.parametrize("kind", ["EarlyStopping", "BestCheckpoint"])
def test_an_unknown_metric_is_found_before_the_first_iteration(simulate, tmp_path, kind):
    steps = []
    options = {"path": tmp_path} if kind == "BestCheckpoint" else {}
    callback = getattr(CALLBACKS, kind)(metric="loss.maen", **options)
    message = misuse_message(
        simulate, callback, progress=lambda simulation: steps.append(simulation.t)
    )
    assert_mentions(message, "loss.maen", "Did you mean 'loss.mean'")
    assert steps == []


def test_something_that_is_no_callback(simulate):
    assert_mentions(misuse_message(simulate, 3), "callbacks has a int", "tacit.callbacks")


def classify(*callbacks, **options):
    """Simulate a classification without progress, which records AUC and a function."""
    parts = [(torch.randn(8, 2), torch.arange(8) % 2) for _ in range(3)]
    task = tacit.Task(torch.nn.Linear(2, 2), parts, test=parts[0])
    graph = tacit.Topology.ring(3).mixing("metropolis")
    metrics = {"auc": "auc", "constant": lambda outputs, targets: 1.0}
    return tacit.run(
        task, tacit.DSG(lr=1e-30), graph, steps=6, record_every=1, metrics=metrics,
        callbacks=callbacks, **options,
    )  # fmt: skip


@pytest.mark.parametrize("metric", ["auc", "auc.mean", "auc.clients.2", "constant", "baseline"])
def test_any_recorded_metric_stops_a_run(metric, tmp_path):
    best = CALLBACKS.BestCheckpoint(metric, tmp_path / "best")
    run = classify(CALLBACKS.EarlyStopping(metric, patience=2), best)
    assert run.history[-1].step == 2
    assert best.load().shape == run.theta.shape
    assert run.history.column("auc") == run.history.column("auc.mean")


def test_a_metric_that_is_not_recorded_is_refused_before_the_run(simulate, tmp_path):
    for stop in (CALLBACKS.EarlyStopping, lambda name: CALLBACKS.BestCheckpoint(name, tmp_path)):
        message = misuse_message(simulate, stop("auc"))
        assert_mentions(message, "'auc'", "Known: loss.mean", "msd")
        # Quadratic functions have no accuracy, so waiting for a better one makes no sense.
        assert_mentions(misuse_message(simulate, stop("accuracy.mean")), "'accuracy.mean'")
    assert "accuracy" not in message
    assert not list(tmp_path.iterdir())
    assert_mentions(
        misuse_message(classify, CALLBACKS.EarlyStopping("acuracy.mean")),
        "Did you mean 'accuracy.mean'?", "constant.mean",
    )  # fmt: skip


@pytest.mark.parametrize("own_tests", [False, True])
def test_the_columns_are_known_before_the_run(own_tests):
    parts = [(torch.randn(8, 2), torch.arange(8) % 2) for _ in range(3)]
    test = parts if own_tests else parts[0]
    task = tacit.Task(torch.nn.Linear(2, 2), parts, test=test).with_metrics(["f1"])
    graph = tacit.Topology.ring(3).mixing("metropolis")
    run = tacit.run(task, tacit.DSG(lr=0.1), graph, steps=1)
    measured = [
        name for name in run.history.columns if run.history[0].numbers.get(name) is not None
    ]
    assert sorted(recorded_columns(task)) == sorted(measured)


def test_tensorboard_reads_what_was_logged(simulate, tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = simulate(TensorBoard(tmp_path), lr=0.1)
    events = accumulators.EventAccumulator(str(tmp_path))
    events.Reload()
    logged = events.Scalars("loss/mean")
    assert [one.step for one in logged] == list(range(13))
    assert [one.value for one in logged] == pytest.approx(run.history.column("loss.mean"))
    assert "consensus_distance" in events.Tags()["scalars"]
    # Not measured, so not logged.
    assert "accuracy/mean" not in events.Tags()["scalars"]


def test_mlflow_reads_what_was_logged(simulate, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = (tmp_path / "mlruns").as_uri()
    callback = MLflow("digits", "first", {"algorithm.lr": 0.1}, place)
    run = simulate(callback, lr=0.1)
    client = mlflow.MlflowClient(place)
    [found] = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    assert (found.info.run_name, found.info.status) == ("first", "FINISHED")
    assert found.data.params["algorithm.lr"] == "0.1"
    assert found.data.params["algorithm"] == "dsg"
    logged = client.get_metric_history(found.info.run_id, "loss.mean")
    assert [one.step for one in logged] == list(range(13))
    assert [one.value for one in logged] == pytest.approx(run.history.column("loss.mean"))


def test_what_mlflow_refuses_is_a_misuse(simulate, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    callback = MLflow(tracking_uri="nowhere://x")
    assert_mentions(misuse_message(simulate, callback), "MLflow refuses", "MLFLOW_TRACKING_URI")


def test_weights_and_biases_writes_local_files(simulate, tmp_path):
    pytest.importorskip("wandb")
    simulate(WandB("digits", folder=tmp_path))
    assert list(tmp_path.rglob("*.wandb"))


@pytest.mark.parametrize(
    ("make", "module"),
    [
        (lambda: TensorBoard("x"), "torch.utils.tensorboard"),
        (lambda: MLflow(), "mlflow"),
        (lambda: WandB(), "wandb"),
    ],
)
def test_a_tool_that_is_not_installed(make, module, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    assert_mentions(misuse_message(make), "is not installed", "pip install 'tacit-learn[")


def test_a_bar_shows_the_iterations(simulate, capsys):
    simulate(progress=True)
    assert "12/12" in capsys.readouterr().out
