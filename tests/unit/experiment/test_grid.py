"""Grids: what runs, with which numbers, and what goes on where it was left."""

import csv
import json
import math
import os
import signal
import statistics
import sys

import pytest
import torch
from safetensors.torch import load_file
from scipy import stats

from support.misuse import assert_mentions, misuse_message
from tacit.cli.grid import further_table, settings_table
from tacit.core.errors import Interrupted, Misuse
from tacit.experiment.axes import Axis
from tacit.experiment.folder import RunFolder, folder_name
from tacit.experiment.grid import grid
from tacit.experiment.run import ProgressListener
from tacit.privacy.accounting.many_runs import Releases, composed_epsilon
from tacit.report.finished_grid import read_grid
from tacit.report.grid_page import write_grid_report


@pytest.fixture
def small(tiny):
    return lambda *overrides: tiny("run.rounds=1", *overrides)


def run_grid(config, over, out, **options):
    over = [over] if isinstance(over, str) else over
    return grid(config, [Axis.parse(text) for text in over], out, **options)


def page_of(made, folder):
    return write_grid_report(made, folder / "report.html").read_text()


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def cells(table, title):
    (column,) = (column for column in table.columns if column.header == title)
    return list(column.cells)


def test_a_grid_is_recomputed_from_its_runs(small, tmp_path):
    out, labels = tmp_path / "out", ["dsgt", "dp-dsgt", "lppa+fresh=true"]
    config = small("run.seed=4", "algorithm.fresh=true")
    over = [f"algorithm={','.join(labels)}", "graph.kind=ring,complete"]
    made = run_grid(config, over, out, seeds=3)
    stored = json.loads((out / "grid.json").read_text())
    assert stored == made.as_dict() == read_grid(out).as_dict()
    assert (stored["seeds"], stored["metric"]) == ([4, 5, 6], "accuracy.mean")
    assert stored["judged_on"] == "test samples"
    assert [one["values"] for one in stored["settings"]] == [
        {"algorithm": label, "graph": kind} for label in labels for kind in ("ring", "complete")
    ]
    base = None
    for setting in stored["settings"]:
        name = ",".join([setting["values"]["algorithm"], f"graph={setting['values']['graph']}"])
        assert setting["folders"] == [f"{name}-seed{seed}" for seed in (4, 5, 6)]
        runs = [summary(out / folder) for folder in setting["folders"]]
        configs = [RunFolder(out / folder).read_config() for folder in setting["folders"]]
        assert {config.graph.kind for config in configs} == {setting["values"]["graph"]}
        accuracy, losses = ([run[key]["mean"] for run in runs] for key in ("accuracy", "loss"))
        base = base or accuracy
        assert setting["scores"] == accuracy
        assert setting["mean"] == statistics.fmean(accuracy)
        assert setting["deviation"] == pytest.approx(statistics.stdev(accuracy))
        assert setting["measures"]["loss_mean"]["mean"] == statistics.fmean(losses)
        sent = statistics.fmean(run["bytes_sent"] for run in runs)
        assert setting["measures"]["bytes_sent"]["mean"] == sent
        assert (setting["diverged"], setting["epsilon"]) == (0, None)
        difference = setting["difference"]
        if accuracy is base:
            assert difference is None
            continue
        apart = [a - b for a, b in zip(accuracy, base, strict=True)]
        assert difference["mean"] == pytest.approx(statistics.fmean(apart))
        low, high = stats.ttest_1samp(apart, 0).confidence_interval(0.95)
        if difference["low"] is not None:
            assert (difference["low"], difference["high"]) == pytest.approx((low, high))
    best = max(stored["settings"], key=lambda one: one["mean"])
    assert stored["best"] == made.best.values == made.ranked[0].values == best["values"]
    with (out / "grid.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 18
    assert list(rows[0])[:5] == ["algorithm", "graph", "folder", "seed", "accuracy_mean"]
    assert float(rows[0]["accuracy_mean"]) == stored["settings"][0]["scores"][0]


def test_runs_are_paired_by_data_graph_first_weights_and_batches(small, tmp_path):
    config = small(
        "graph.kind=erdos-renyi", "graph.p=0.8", "algorithm.noise.scale=0", "model.init=independent"
    )
    made = run_grid(config, "algorithm=dsgt,lppa", tmp_path / "out", seeds=2)
    difference = made.difference(made.settings[1], made.measure)
    assert (difference.mean, difference.deviation) == (0.0, 0.0)
    for seed in (0, 1):
        folders = [tmp_path / "out" / f"{name}-seed{seed}" for name in ("dsgt", "lppa")]
        for name in ("graph.json", "partition.json"):
            assert (folders[0] / name).read_text() == (folders[1] / name).read_text()
        final = [load_file(next((folder / "checkpoints").iterdir())) for folder in folders]
        assert all(
            torch.equal(final[0][name], final[1][name]) for name in ("theta", "gamma", "grad")
        )
    assert (tmp_path / "out/dsgt-seed0/partition.json").read_text() != (
        tmp_path / "out/dsgt-seed1/partition.json"
    ).read_text()


def test_one_seed_has_no_deviation_and_no_interval(small, tmp_path):
    made = run_grid(small(), "algorithm=dsgt,dsgt,lppa", tmp_path / "out")
    setting = made.as_dict()["settings"][1]
    assert setting["label"] == "lppa"  # a name given twice is run once
    assert setting["deviation"] is None
    assert isinstance(setting["difference"]["mean"], float)
    assert setting["difference"]["low"] is None


def test_resuming_runs_only_what_has_not_ended(small, tmp_path):
    out, ran = tmp_path / "out", []

    def listener_for(label, seed):
        ran.append((label, seed))
        return ProgressListener()

    first = run_grid(small(), "algorithm=dp-dsgt", out, seeds=2, listener_for=listener_for)
    times = (out / "dp-dsgt-seed0" / "summary.json").stat().st_mtime_ns
    (out / "dp-dsgt-seed1" / "summary.json").unlink()
    ran.clear()
    options = {"seeds": 2, "resume": True, "listener_for": listener_for}
    second = run_grid(small(), "algorithm=dp-dsgt,lppa", out, **options)
    assert ran == [("dp-dsgt", 1), ("lppa", 0), ("lppa", 1)]
    assert (out / "dp-dsgt-seed0" / "summary.json").stat().st_mtime_ns == times
    assert second.settings[0].score == first.settings[0].score
    with pytest.raises(Misuse, match="not empty"):
        run_grid(small(), "algorithm=dp-dsgt", out)
    with pytest.raises(Misuse, match="another configuration"):
        run_grid(small("algorithm.lr=0.3"), "algorithm=dsgt,lppa", out, seeds=2, resume=True)
    assert not (out / "dsgt-seed0").exists()


def test_a_stopped_grid_names_the_run_and_how_to_resume(small, tmp_path):
    def listener_for(label, seed):
        return ProgressListener(
            on_step=lambda simulation: (
                (label, simulation.t) == ("lppa", 2) and signal.raise_signal(signal.SIGINT)
            )
        )

    over, out = "algorithm=dsgt,lppa", tmp_path / "out"
    with pytest.raises(Interrupted, match="in lppa, seed 0") as caught:
        run_grid(small(), over, out, listener_for=listener_for)
    assert "--resume" in str(caught.value)
    assert "tacit run" not in str(caught.value)
    resumed = run_grid(small(), over, out, resume=True)
    whole = run_grid(small(), over, tmp_path / "whole")
    assert [one.score for one in resumed.settings] == [one.score for one in whole.settings]


def test_runs_that_fail_do_not_lose_the_others(small, tmp_path):
    notes, out = [], tmp_path / "out"
    made = run_grid(small(), "algorithm.lr=0.1,1e20,soon", out, note=notes.append)
    good, diverged, wrong = made.settings
    assert good.failures == ()
    assert "seed 0: The run diverged" in diverged.failures[0]
    assert "algorithm.lr" in wrong.failures[0]
    assert made.best is made.ranked[0] is good
    assert any("cannot run" in note and "soon" in note for note in notes)
    assert "2 of 3 settings failed." in made.sentences()
    page = page_of(made, out)
    assert page.count("failed</th>") == 2
    assert "src=" not in page.replace('src="data:', "")
    # A run that diverged has not ended: it is tried again.
    again = run_grid(small(), "algorithm.lr=0.1,1e20", out, resume=True)
    assert "diverged" in again.settings[1].failures[0]


def test_runs_that_may_diverge_are_counted(small, tmp_path):
    config = small("run.allow_divergence=true")
    made = run_grid(config, "algorithm=lppa+lr=1e20,lppa", tmp_path / "out", seeds=2)
    setting = made.as_dict()["settings"][0]
    assert setting["diverged"] == 2
    assert setting["measures"]["loss_mean"] is None
    assert "(2 diverged)" in " ".join(map(str, cells(settings_table(made), "Accuracy (%)")))


def test_a_model_that_raises_fails_alone(small, tmp_path, monkeypatch):
    (tmp_path / "broken_nets.py").write_text(
        "import torch\n"
        "class Broken(torch.nn.Linear):\n"
        "    broken = True\n"
        "    def __init__(self, limit=0):\n"
        "        super().__init__(784, 10)\n"
        "        self.limit = limit\n"
        "    def forward(self, x):\n"
        "        if Broken.broken and len(x) == self.limit:\n"
        "            raise RuntimeError('out of luck')\n"
        "        return super().forward(x.flatten(1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = small("model.name=broken_nets:Broken", "model.hidden=", "run.gradients=looped")
    made = run_grid(config, "model.limit=0,60", tmp_path / "out")
    good, bad = made.settings
    assert good.failures == ()
    assert_mentions(bad.failures[0], "RuntimeError: out of luck", "error.txt")
    [trace] = (tmp_path / "out").rglob("error.txt")
    assert "in forward" in trace.read_text()
    # The next attempt starts anew.
    monkeypatch.setattr("broken_nets.Broken.broken", False)
    again = run_grid(config, "model.limit=0,60", tmp_path / "out", resume=True)
    assert [one.failures for one in again.settings] == [(), ()]


def test_a_run_that_ends_its_process_fails_alone(small, tmp_path, monkeypatch):
    """As one that is killed for want of memory does; the other process runs the rest."""
    (tmp_path / "deadly_nets.py").write_text(
        "import os, torch\n"
        "class Deadly(torch.nn.Linear):\n"
        "    def __init__(self, limit=0):\n"
        "        super().__init__(784, 10)\n"
        "        self.limit = limit\n"
        "    def forward(self, x):\n"
        "        if len(x) == self.limit and str(os.getpid()) != os.environ['PARENT']:\n"
        "            os._exit(3)\n"
        "        return super().forward(x.flatten(1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("PARENT", str(os.getpid()))
    config = small("model.name=deadly_nets:Deadly", "model.hidden=", "run.gradients=looped")
    made = run_grid(config, "model.limit=60,601,602,603", tmp_path / "out", jobs=2)
    deadly, *others = made.settings
    assert "ended with code 3" in deadly.failures[0]
    assert [len(setting.runs) for setting in others] == [1, 1, 1]
    alone = run_grid(config, "model.limit=60", tmp_path / "alone", seeds=3, jobs=2)
    failures = [failure.partition(": ")[2] for failure in alone.settings[0].failures]
    assert sorted(failure.partition(" ")[0] for failure in failures) == ["No", "The", "The"]


@pytest.mark.parametrize(
    ("overrides", "over", "options", "words"),
    [
        ((), "algorithm=dsgt", {"seeds": 0}, ["--seeds is 0", "at least 1"]),
        ((), "algorithm=dsgt,lpa", {}, ["--over algorithm", "'lpa'", "Did you mean 'lppa'?"]),
        ((), "algorithm=lppa+fresch=true", {}, ["algorithm.fresch", "Did you mean 'fresh'?"]),
        ((), "algorithm.lrr=0.1,0.2", {}, ["Did you mean 'lr'?"]),
        (("algorithm.noise.scale=-1",), "algorithm=lppa", {}, ["algorithm.noise", "-1"]),
        (("data.name=mnst",), "algorithm=dsgt,lppa", {}, ["[data]", "'mnst'"]),
        ((), "algorithm=dsgt", {"metric": "f2"}, ["--metric", "'f2'", "f1-macro"]),
        (
            ("privacy.epsilon=3.0",),
            "algorithm=dsgt,lppa",
            {},
            ["[privacy]", "none of dsgt, lppa keeps", "tacit algorithms"],
        ),
    ],
)
def test_errors_come_before_anything_is_written(small, tmp_path, overrides, over, options, words):
    message = misuse_message(run_grid, small(*overrides), over, tmp_path / "out", **options)
    assert_mentions(message, *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "command"), [("compare.json", "tacit compare"), ("sweep.json", "tacit sweep")]
)
def test_folders_of_the_older_commands_are_refused(small, tmp_path, name, command):
    (tmp_path / name).write_text("{}")
    message = misuse_message(run_grid, small(), "algorithm=dsgt", tmp_path, resume=True)
    assert_mentions(message, f"`{command}`", "another --out", "tacit report")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_jobs_give_the_same_numbers_and_messages(small, tmp_path):
    over, reports = "algorithm.lr=0.1,0.05,1e20", []

    def listener_for(label, seed):
        return ProgressListener(on_report=reports.append)

    alone = run_grid(small(), over, tmp_path / "one")
    both = run_grid(small(), over, tmp_path / "two", jobs=2, listener_for=listener_for)
    assert [one.score for one in both.settings] == [one.score for one in alone.settings]
    assert [len(one.failures) for one in both.settings] == [0, 0, 1]
    assert "The run diverged" in both.settings[2].failures[0]
    for name in ("lr=0.1-seed0", "lr=0.05-seed0"):
        folders = [tmp_path / run / name / "checkpoints" for run in ("one", "two")]
        files = sorted(path.name for path in folders[0].iterdir())
        assert files
        for file in files:
            # Metadata have times; the tensors are at the end.
            tensors = [(folder / file).read_bytes()[-10_000:] for folder in folders]
            assert tensors[0] == tensors[1]
    assert sum("steps" in report for report in reports) == 3


def test_validation_samples_judge_if_there_are_some(small, tmp_path):
    made = run_grid(small("data.validation=0.2"), "algorithm.lr=0.1", tmp_path / "out")
    assert made.stored.judged_on == "validation samples"
    [sentence] = made.sentences()
    assert sentence.startswith("Best by accuracy.mean on validation samples")
    notes = summary(tmp_path / "out" / "lr=0.1-seed0")["notes"]
    assert any("48 validation samples" in note for note in notes)


def test_any_metric_judges(small, tmp_path):
    out, over = tmp_path / "out", "algorithm=dsgt,dsgt+lr=1e-9"
    made = run_grid(small(), over, out, metric="auc", seeds=2)
    assert made.stored.metric == "auc.mean"
    first, second = made.settings
    for setting in made.settings:
        for run in setting.runs:
            assert made.measure.value(run) == run.history[-1].metrics["auc"].mean
    assert made.difference(second, made.measure).mean == pytest.approx(
        second.score.mean - first.score.mean
    )
    assert second.misleading == 2
    assert "dsgt+lr=1e-9, 2 of 2 runs" in made.alerts[-1]
    assert made.as_dict()["settings"][1]["differences"]["accuracy_mean"] is not None
    # Runs that have ended are not repeated for a metric that they did not record.
    again = run_grid(small(), over, out, metric="f1-macro", resume=True)
    assert again.best is None
    failure = again.settings[0].failures[0]
    assert "There is no column 'f1-macro.mean'. f1-macro is recorded if `metrics`" in failure


def test_less_is_better_of_losses(small, tmp_path):
    over = "algorithm.lr=1e-6,0.1"
    made = run_grid(small(), over, tmp_path / "out", metric="loss.average_model")
    assert made.best.mean == min(setting.mean for setting in made.settings)
    assert made.ranked[0] is made.best


def test_the_terminal_has_a_row_per_setting_and_the_baseline_below(small, tmp_path):
    config = small("privacy.epsilon=3.0")
    made = run_grid(config, "algorithm=private-sgd,lppa", tmp_path / "out", seeds=2)
    table = settings_table(made)
    titles = [str(column.header) for column in table.columns]
    assert titles == ["algorithm", "Accuracy (%)", "difference", "ε", "loss", "sent"]
    names = cells(table, "algorithm")
    assert names == [*(setting.label for setting in made.ranked), "majority baseline"]
    baseline = statistics.fmean(run.last.baseline for run in made.runs)
    assert float(cells(table, "Accuracy (%)")[-1]) == pytest.approx(baseline, abs=0.01)
    assert dict(zip(names, cells(table, "ε"), strict=True))["lppa"] == "none"
    further = further_table(made)
    assert [str(column.header) for column in further.columns][-1] == "95 % interval"
    assert any(" to " in cell for cell in further.columns[-1].cells)


def test_a_grid_without_guarantees_has_no_column_for_them(small, tmp_path):
    made = run_grid(small(), "algorithm=lppa", tmp_path / "out")
    assert "ε" not in [str(column.header) for column in settings_table(made).columns]
    assert ">ε<" not in page_of(made, tmp_path)
    assert made.spent == ()


def test_all_runs_on_the_same_rows_have_spent_what_they_compose_to(small, tmp_path):
    config = small("algorithm.name=private-sgd", "algorithm.noise=", "privacy.epsilon=3.0")
    out = tmp_path / "out"
    made = run_grid(config, "run.batch_size=16,20", out, seeds=2)
    budgets = [summary(folder)["privacy"] for folder in sorted(out.glob("*-seed*"))]
    steps = [summary(folder)["steps"] for folder in sorted(out.glob("*-seed*"))]
    assert len(budgets) == 4
    runs = [
        Releases(budget["noise_multiplier"], budget["sampling_rate"], count)
        for budget, count in zip(budgets, steps, strict=True)
    ]
    [spent] = made.spent
    assert (spent.runs, spent.without_guarantee, spent.unfinished) == (4, 0, 0)
    assert spent.epsilon == pytest.approx(composed_epsilon(runs, 1e-5), rel=1e-3)
    assert 3 < spent.epsilon < 12
    sentence = " ".join(made.sentences())
    assert_mentions(sentence, "4 runs on the same rows", "seeds included", "per training sample")
    assert_mentions(sentence, "the guarantee is simulated")
    assert "4 runs on the same rows" in page_of(made, out)
    stored = json.loads((out / "grid.json").read_text())["spent"]
    assert stored == [spent.as_dict()]


def test_runs_without_a_guarantee_are_not_passed_over(small, tmp_path):
    config = small("privacy.epsilon=3.0")
    over = "algorithm=private-sgd,lppa,lppa+lr=1e20"
    made = run_grid(config, over, tmp_path / "out", seeds=2)
    [spent] = made.spent
    # Runs that diverged have shown messages, too.
    assert (spent.runs, spent.without_guarantee) == (2, 4)
    assert "nothing bounds what all 6 reveal together" in " ".join(made.sentences())


def test_whole_clients_are_composed_only_where_they_hold_the_same_rows(small, tmp_path):
    private = ["algorithm.name=private-sgd", "algorithm.noise=", "privacy.epsilon=8.0"]
    config = small(*private, "privacy.unit=client", "privacy.delta=0.01")
    apart = run_grid(config, "algorithm.lr=0.1,0.2", tmp_path / "a", seeds=2)
    assert [(spent.runs, spent.without_guarantee, spent.apart) for spent in apart.spent] == [
        (2, 0, 2)
    ] * 2
    assert "Not counted: 2 whose guarantee" in " ".join(apart.sentences())
    fixed = small(*private, "privacy.unit=client", "privacy.delta=0.01", "partition.seed=0")
    together = run_grid(fixed, "algorithm.lr=0.1,0.2", tmp_path / "b", seeds=2)
    assert [(spent.runs, spent.apart) for spent in together.spent] == [(4, 0)]
    assert together.spent[0].epsilon > apart.spent[0].epsilon
    assert math.isfinite(together.spent[0].epsilon)


def test_names_of_folders_are_short_and_distinct():
    assert folder_name("lppa", "-seed1") == "lppa-seed1"
    first, second = folder_name("é" * 300 + "a", "-seed1"), folder_name("é" * 300 + "b", "-seed1")
    assert first != second
    assert len(first.encode()) <= 255
    assert "/" not in folder_name("a/b")
    assert folder_name("a/b") != folder_name("a_b")


def test_runs_with_secret_noise_are_no_simulation(small, tmp_path):
    config = small("algorithm.name=private-sgd", "algorithm.noise=", "privacy.epsilon=3.0")
    made = run_grid(config, "run.secret_noise=true,false", tmp_path / "out")
    [spent] = made.spent
    assert (spent.runs, spent.simulated) == (2, 1)
    assert "In 1 the guarantee is simulated" in " ".join(made.sentences())
