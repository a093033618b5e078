"""[stop], [log] and run.keep_best of a configuration."""

import json
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from support.misuse import assert_mentions, misuse_message
from tacit.config.build import build
from tacit.core.errors import Interrupted
from tacit.experiment.callbacks import check_metrics
from tacit.experiment.folder import RunFolder, fingerprint
from tacit.experiment.run import ProgressListener, run
from tacit.tasks.evaluation import LocalLoss

# With steps that round to nothing, no record is better than the first.
NO_PROGRESS = ("algorithm.name=dsgt", "algorithm.noise=", "algorithm.lr=1e-30", "run.rounds=6")


def test_a_run_stops_early_and_says_why(tiny, tmp_path):
    config = tiny(*NO_PROGRESS, "stop.metric=loss.mean", "stop.patience=2")
    found = run(config, tmp_path / "out")
    assert found.summary["rounds"] == 2
    assert found.summary["stopped"] == "loss.mean has not improved for 2 records"
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == found.summary
    # The state was saved there, and a resumed run finds it ended.
    again = run(config, tmp_path / "out", resume=True)
    assert again.summary["stopped"] == found.summary["stopped"]
    assert again.simulation.t == found.simulation.t


def test_stopping_does_not_depend_on_interruptions(tiny, tmp_path):
    config = tiny(*NO_PROGRESS, "stop.patience=4")
    straight = run(config, tmp_path / "straight")

    def interrupt(record):
        if record.round == 3:
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, Interrupted)):
        run(config, tmp_path / "out", listener=ProgressListener(on_record=interrupt))
    resumed = run(config, tmp_path / "out", resume=True)
    assert resumed.summary["rounds"] == straight.summary["rounds"] == 4


def test_these_sections_do_not_change_what_a_run_is(tiny):
    plain = fingerprint(tiny())
    assert plain == fingerprint(tiny("stop.patience=2", "log.tensorboard=true"))
    assert plain == fingerprint(tiny("run.keep_best=loss.mean"))


def test_the_best_state_is_kept(tiny, tmp_path):
    run(tiny(*NO_PROGRESS, "run.keep_best=loss.mean"), tmp_path / "out")
    [best] = (tmp_path / "out" / "best").iterdir()
    assert best.name == "step-000000000.safetensors"
    assert "theta" in load_file(best)


def test_events_for_tensorboard(tiny, tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(tiny("log.tensorboard=true", "run.rounds=2"), tmp_path / "out")
    events = accumulators.EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    events.Reload()
    history = RunFolder(tmp_path / "out").read_history()
    logged = [one.value for one in events.Scalars("accuracy/mean")]
    assert logged == pytest.approx(history.column("accuracy.mean"))


def test_further_metrics_decide_too(tiny, tmp_path):
    chosen = ("run.metrics=['auc']", "run.keep_best=auc.average_model", "stop.metric=auc.mean")
    run(tiny(*chosen, "stop.patience=50"), tmp_path / "out")
    values = RunFolder(tmp_path / "out").read_history().column("auc.average_model")
    assert len(values) > 1
    (best,) = (tmp_path / "out" / "best").glob("step-*.safetensors")
    steps = RunFolder(tmp_path / "out").read_history().column("step")
    assert int(best.stem.partition("-")[2]) == steps[values.index(max(values))]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("stop.metric=acuracy.mean", ["[stop]", "Did you mean 'accuracy.mean'?"]),
        ("stop.metric=auc.mean", ["[stop]", "no column 'auc.mean'"]),
        ("stop.patience=0", ["stop.patience = 0"]),
        ("stop.metric=auc", ["[stop]", "'auc'", "accuracy.mean"]),
        ("run.keep_best=auc.maen", ["run.keep_best", "'auc.maen'", "loss.mean"]),
        ("log.tensorbord=true", ["Did you mean 'tensorboard'?"]),
    ],
)
def test_mistakes_leave_no_files(tiny, tmp_path, override, words):
    message = misuse_message(lambda: run(tiny(override), tmp_path / "out"))
    assert_mentions(message, *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("override", "key"), [
    ("stop.patience=1", "[stop]"), ("run.keep_best=loss", "run.keep_best"),
])  # fmt: skip
def test_a_training_loss_that_the_guarantee_does_not_cover_ends_no_run(
    tiny_private, dataset, override, key
):
    """Without a test set, when a run ends or which model is kept would tell about the data."""
    config = tiny_private(override)
    experiment = build(config, dataset=dataset)
    task = experiment.task
    blind = replace(task, evaluation=LocalLoss(task.loss, task.parts))
    message = misuse_message(check_metrics, config, replace(experiment, task=blind))
    assert_mentions(message, key, "is not recorded", "Give the task a test set")
    assert "loss.mean" in check_metrics(config, experiment)
