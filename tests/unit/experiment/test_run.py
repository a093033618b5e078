import json
import signal
import threading

import pytest
import torch
from safetensors.torch import load_file

from support.misuse import assert_mentions
from tacit.config.loading import make_config
from tacit.core.errors import Diverged, Interrupted, Misuse
from tacit.experiment import run as run_module
from tacit.experiment.run import ProgressListener, resume_command, run

KEYS = [
    "algorithm", "steps", "rounds", "clients", "parameters", "accuracy", "loss",
    "consensus_distance", "bytes_sent", "wall_seconds", "msd", "baseline", "seed",
]  # fmt: skip


def numbers(outcome):
    """The history without the time it took."""
    lines = outcome.folder.history.read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if key != "wall_seconds"}
        for line in lines
    ]


def state(outcome):
    """The tensors of the last checkpoint, copied because tests damage the file."""
    tensors = load_file(max(outcome.folder.checkpoints.iterdir()))
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def stop_at(step, number=signal.SIGINT):
    return ProgressListener(
        on_step=lambda simulation: simulation.t == step and signal.raise_signal(number)
    )


def test_a_run_leaves_everything_in_its_folder(run_tiny, tmp_path):
    outcome = run_tiny()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "checkpoints", "config.toml", "graph.json", "history.jsonl", "model.json",
        "partition.json", "provenance.json", "summary.json",
    ]  # fmt: skip
    summary = json.loads(outcome.folder.summary.read_text())
    assert summary == outcome.summary
    assert list(summary)[: len(KEYS)] == KEYS
    assert (
        set(summary["accuracy"]) == set(summary["loss"]) == {"mean", "min", "max", "average_model"}
    )
    expected = {"algorithm": "lppa", "steps": 15, "rounds": 3, "clients": 3}
    assert expected.items() <= summary.items()
    assert "diverged" not in summary
    # How gradients were computed is no note for readers.
    assert summary["gradients"]["strategy"] in ("stacked", "looped")
    assert not any("timed once" in note for note in summary["notes"])
    assert [record["step"] for record in numbers(outcome)] == [0, 5, 10, 15]
    for key in ("accuracy", "loss", "consensus_distance", "bytes_sent"):
        assert summary[key] == numbers(outcome)[-1][key]
    assert torch.equal(state(outcome)["theta"], outcome.simulation.state.theta)
    assert set(state(outcome)) == {"theta", "gamma", "grad"}


def test_the_same_configuration_gives_the_same_bits(run_tiny):
    one, other = run_tiny(), run_tiny(out="other")
    assert numbers(one) == numbers(other)
    assert same(state(one), state(other))
    assert numbers(one) != numbers(run_tiny("run.seed=1", out="third"))


def test_the_configuration_in_the_folder_gives_the_same_bits(run_tiny, dataset, tmp_path):
    one = run_tiny(
        'algorithm.lr={schedule="exponential", start=0.1, decay=0.9}', "model.init=independent"
    )
    again = run(one.folder.read_config(), tmp_path / "again", dataset=dataset)
    assert numbers(one) == numbers(again)
    assert same(state(one), state(again))


def test_masks_cost_no_bytes_unless_they_are_sent(run_tiny, tiny, dataset, tmp_path):
    plain = tiny("run.rounds=1").as_dict() | {"algorithm": {"name": "dsgt", "lr": 0.1}}
    dsgt = run(make_config(plain), tmp_path / "dsgt", dataset=dataset).summary["bytes_sent"]
    derived = run_tiny("run.rounds=1", out="derived").summary["bytes_sent"]
    sent = run_tiny("run.rounds=1", "algorithm.masks=sent", out="sent").summary["bytes_sent"]
    row = 6 * 4 * (784 * 8 + 8 + 80 + 10)  # one row over each of six directed edges
    assert dsgt == derived == 5 * 2 * row  # five iterations, θ and γ
    assert sent == derived + row


def test_evaluations_and_checkpoints_follow_the_configuration(run_tiny, tmp_path):
    outcome = run_tiny(
        "run.rounds=5", "run.evaluate_every=2", "run.checkpoint_every=2", "run.keep_checkpoints=5"
    )
    assert [record["round"] for record in numbers(outcome)] == [0, 2, 4, 5]
    kept = sorted(path.name for path in outcome.folder.checkpoints.iterdir())
    assert kept == [f"step-{step:09d}.safetensors" for step in (10, 20, 25)]


def test_a_listener_is_called_at_the_start_every_step_and_every_record(run_tiny):
    seen = []
    run_tiny(
        "run.rounds=1",
        listener=ProgressListener(
            lambda experiment, simulation: seen.append(("began", simulation.t, experiment.steps)),
            lambda simulation: seen.append(("stepped", simulation.t)),
            lambda record: seen.append(("recorded", record.step)),
        ),
    )
    steps = [("stepped", t) for t in range(1, 6)]
    assert seen == [("began", 0, 5), ("recorded", 0), *steps, ("recorded", 5)]


# --- stopping and going on ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_iteration_and_resuming_gives_the_same_bits(
    run_tiny, number, tmp_path
):
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted, match="after iteration 7 of 15; the state is saved") as caught:
        run_tiny(listener=stop_at(7, number))
    assert not (tmp_path / "out" / "summary.json").exists()
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
    assert "--resume" in str(caught.value)
    began = []
    resumed = run_tiny(
        resume=True,
        listener=ProgressListener(lambda experiment, simulation: began.append(simulation.t)),
    )
    assert began == [7]
    whole = run_tiny(out="whole")
    assert numbers(resumed) == numbers(whole)
    assert same(state(resumed), state(whole))
    assert resumed.summary["bytes_sent"] == whole.summary["bytes_sent"]


def test_a_stop_request_during_a_checkpoint_is_not_lost(run_tiny, monkeypatch, tmp_path):
    save, requested = run_module.checkpoints.save, []

    def save_and_stop(*arguments):
        path = save(*arguments)
        if not requested:
            requested.append(signal.raise_signal(signal.SIGINT))
        return path

    monkeypatch.setattr(run_module.checkpoints, "save", save_and_stop)
    with pytest.raises(Interrupted, match="after iteration 6 of 15"):
        run_tiny()
    newest = max((tmp_path / "out" / "checkpoints").iterdir())
    assert newest.name == "step-000000006.safetensors"


def test_a_second_signal_does_not_wait(run_tiny):
    def twice(simulation):
        if simulation.t == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_tiny(listener=ProgressListener(on_step=twice))


def test_a_signal_in_the_last_iteration_changes_nothing(run_tiny):
    assert run_tiny(listener=stop_at(15)).summary["steps"] == 15


def test_a_run_in_another_thread_leaves_signals_alone(run_tiny):
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(run_tiny("run.rounds=1")))
    thread.start()
    thread.join()
    assert outcomes[0].summary["steps"] == 5


def test_resuming_in_a_fresh_folder_just_starts(run_tiny):
    assert numbers(run_tiny(resume=True)) == numbers(run_tiny(out="plain"))


def test_resuming_a_finished_run_changes_nothing_but_the_time(run_tiny):
    first = run_tiny()
    history, last = numbers(first), state(first)
    again = run_tiny(resume=True)
    assert numbers(again) == history
    assert same(state(again), last)
    kept = [key for key in KEYS if key != "wall_seconds"]
    assert [again.summary[key] for key in kept] == [first.summary[key] for key in kept]


def killed(outcome, keep):
    """Change a folder as a kill does: no summary, fewer checkpoints, half a line of history."""
    outcome.folder.summary.unlink()
    for path in sorted(outcome.folder.checkpoints.iterdir())[keep:]:
        path.unlink()
    text = outcome.folder.history.read_text()
    outcome.folder.history.write_text(text[:-20])


@pytest.mark.parametrize("keep", [0, 1])
def test_a_killed_run_continues_from_its_checkpoint_or_from_the_start(run_tiny, keep):
    whole = run_tiny("run.keep_checkpoints=1", out="whole")
    broken = run_tiny()
    killed(broken, keep)
    resumed = run_tiny(resume=True)
    assert numbers(resumed) == numbers(whole)
    assert same(state(resumed), state(whole))


def test_resuming_with_another_configuration_is_refused_and_changes_nothing(run_tiny, tmp_path):
    outcome = run_tiny("run.rounds=1")
    before = {path: path.read_bytes() for path in outcome.folder.path.rglob("*") if path.is_file()}
    with pytest.raises(Misuse, match="another configuration") as caught:
        run_tiny("run.rounds=1", "algorithm.lr=0.2", resume=True)
    assert resume_command(outcome.folder, None) in str(caught.value)
    assert {
        path: path.read_bytes() for path in outcome.folder.path.rglob("*") if path.is_file()
    } == before


def test_resuming_may_evaluate_and_save_at_other_intervals(run_tiny):
    with pytest.raises(Interrupted):
        run_tiny(listener=stop_at(7))
    resumed = run_tiny("run.evaluate_every=3", "run.keep_checkpoints=1", resume=True)
    assert [record["step"] for record in numbers(resumed)] == [0, 5, 15]
    assert len(list(resumed.folder.checkpoints.iterdir())) == 1
    assert same(state(resumed), state(run_tiny(out="whole")))


def test_a_folder_with_another_run_is_refused(run_tiny):
    outcome = run_tiny("run.rounds=1")
    before = outcome.folder.history.read_bytes()
    with pytest.raises(Misuse, match=r"holds this run, which has ended\. Choose another"):
        run_tiny("run.rounds=1")
    message = r"holds another run: algorithm.lr is [0-9.]+ there and 0.7 here, run.rounds is 1 "
    with pytest.raises(Misuse, match=message) as caught:
        run_tiny("run.rounds=3", "algorithm.lr=0.7")
    assert "--resume" in str(caught.value)
    with pytest.raises(Misuse, match=r"another configuration: run.seed is 0 there and 5 here\."):
        run_tiny("run.rounds=1", "run.seed=5", resume=True)
    assert outcome.folder.history.read_bytes() == before


def test_a_folder_with_the_same_run_stopped_names_the_command_that_resumes_it(run_tiny):
    with pytest.raises(Interrupted):
        run_tiny(listener=stop_at(7))
    with pytest.raises(Misuse, match="holds this run, which was stopped") as caught:
        run_tiny()
    assert str(caught.value).endswith(" --resume")
    assert "tacit run" in str(caught.value)


def test_the_command_to_resume_can_be_pasted_into_a_shell(tmp_path):
    folder = run_module.RunFolder(tmp_path / "my run")
    command = resume_command(folder, tmp_path / "my data")
    assert command == (
        f"tacit run '{tmp_path}/my run/config.toml' --out '{tmp_path}/my run' --resume "
        f"--data '{tmp_path}/my data'"
    )


# --- divergence ---


def test_divergence_stops_the_run_and_keeps_what_was_recorded(run_tiny, tmp_path):
    with pytest.raises(Diverged) as caught:
        run_tiny("algorithm.lr=1e20")
    message = str(caught.value)
    assert_mentions(
        message, "client 0", "iteration", "smaller step size", "allow_divergence", "history.jsonl"
    )
    lines = (tmp_path / "out" / "history.jsonl").read_text().splitlines()
    assert len(lines) == len(caught.value.history) == 1
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "not finite" in summary["diverged"]
    assert summary["steps"] < 15


def test_divergence_may_be_allowed_also_when_resuming(run_tiny):
    allowed = run_tiny("algorithm.lr=1e20", "run.allow_divergence=true")
    assert allowed.summary["steps"] == 15
    assert "not finite" in allowed.summary["diverged"]
    assert allowed.summary["loss"]["mean"] is None  # JSON has no NaN
    with pytest.raises(Diverged):
        run_tiny("algorithm.lr=1e20", out="refused")
    resumed = run_tiny("algorithm.lr=1e20", "run.allow_divergence=true", out="refused", resume=True)
    assert resumed.summary["steps"] == 15
    assert numbers(resumed) == numbers(allowed)


def test_resuming_a_diverged_run_removes_its_summary(run_tiny, tmp_path):
    with pytest.raises(Diverged):
        run_tiny("algorithm.lr=1e20")
    with pytest.raises(Interrupted):
        run_tiny("algorithm.lr=1e20", "run.allow_divergence=true", resume=True, listener=stop_at(7))
    assert not (tmp_path / "out" / "summary.json").exists()


def test_a_configuration_that_cannot_be_built_writes_nothing(run_tiny, tmp_path):
    with pytest.raises(Misuse):
        run_tiny("graph.clients=1000")
    assert not (tmp_path / "out").exists()


def test_metrics_are_in_the_history_and_the_summary(run_tiny):
    outcome = run_tiny('run.metrics=["auc", "f1"]')
    summary = json.loads(outcome.folder.summary.read_text())
    assert set(summary["metrics"]) == {"auc", "f1"}
    assert summary["per_client"]["client"] == [0, 1, 2]
    assert numbers(outcome)[-1]["metrics"] == summary["metrics"]
    counts = summary["confusion"]["counts"]
    assert sum(map(sum, counts)) == 3 * 60
    right = 100 * sum(counts[k][k] for k in range(10)) / (3 * 60)
    assert summary["accuracy"]["mean"] == pytest.approx(right)
    assert summary["baseline"] == pytest.approx(100 * max(map(sum, counts)) / (3 * 60))


def test_metrics_change_nothing_else_and_may_be_added_later(run_tiny):
    plain = run_tiny("run.rounds=2", out="plain")
    measured = run_tiny('run.metrics=["auc"]', "run.rounds=2", out="measured")
    assert same(state(plain), state(measured))
    again = run_tiny('run.metrics=["auc"]', "run.rounds=2", out="plain", resume=True)
    # A finished run has its records from the file, and its confusion matrix from its models.
    assert again.summary["confusion"] == plain.summary["confusion"]
    assert "metrics" not in plain.summary
    assert "per_client" not in numbers(plain)[-1]


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ('["acc"]', ["run.metrics", "'acc'", "Known: accuracy"]),
        ('["mse"]', ["run.metrics", "'mse'", "numbers", "balanced-accuracy"]),
        ('["no.such:thing"]', ["run.metrics", "no.such:thing", "cannot be imported"]),
        ('["math:pi"]', ["run.metrics", "'pi'", "float"]),
    ],
)
def test_metrics_that_cannot_be_computed(run_tiny, tmp_path, metrics, words):
    with pytest.raises(Misuse) as caught:
        run_tiny(f"run.metrics={metrics}")
    assert_mentions(str(caught.value), *words)
    assert not (tmp_path / "out").exists()


def test_functions_by_their_path(run_tiny):
    outcome = run_tiny('run.metrics=["torch.nn.functional:cross_entropy"]', "run.rounds=1")
    measured = outcome.summary["metrics"]["cross_entropy"]["mean"]
    assert measured == pytest.approx(outcome.summary["loss"]["mean"], rel=1e-5)
