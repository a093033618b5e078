import csv
import json
import math
import statistics

import pytest

from support.misuse import assert_mentions, misuse_message
from tacit.core.errors import Misuse
from tacit.experiment.folder import RunFolder, folder_name
from tacit.experiment.sweep import Axis, Sweep, SweepCell, combine, sweep, write_page


@pytest.fixture
def small(tiny):
    return lambda *overrides: tiny("run.rounds=1", *overrides)


def axes(*texts):
    return [Axis.parse(text) for text in texts]


def test_a_grid_has_every_combination():
    cells = combine(axes("a.b=1,2", "c.d=x,[3,4],y"), None, 0)
    assert len(cells) == 6
    assert cells[0] == {"a.b": "1", "c.d": "x"}
    assert cells[4] == {"a.b": "2", "c.d": "[3,4]"}


def test_random_combinations_are_different_and_follow_from_the_seed():
    over = axes("a.lr=log:1e-3:1", "a.n=int:2:4", "a.p=uniform:-1:1", "a.kind=x,y")
    cells = combine(over, 40, 0)
    assert len({tuple(cell.values()) for cell in cells}) == 40
    assert combine(over, 10, 0) == cells[:10]
    assert combine(over, 10, 1) != cells[:10]
    rates = [float(cell["a.lr"]) for cell in cells]
    assert all(1e-3 <= rate <= 1 for rate in rates)
    # As many below the geometric mean of the ends as above, roughly.
    assert 10 < sum(rate < 10**-1.5 for rate in rates) < 30
    assert {cell["a.n"] for cell in cells} == {"2", "3", "4"}
    assert all(-1 <= float(cell["a.p"]) <= 1 for cell in cells)
    assert {cell["a.kind"] for cell in cells} == {"x", "y"}


def test_a_small_grid_has_fewer_combinations_than_are_asked_for():
    assert len(combine(axes("a.b=1,2"), 10, 0)) == 2


@pytest.mark.parametrize(
    ("texts", "draws", "words"),
    [
        ([], None, ["nothing to sweep over"]),
        (["a.b=1", "a.b=2"], None, ["a.b", "twice"]),
        (["run.seed=1,2"], None, ["--seeds"]),
        (["a.b=log:1:2"], None, ["range", "--random"]),
        (["a.b=1"], 0, ["--random is 0"]),
        ([f"a.k{n}=0,1,2,3,4,5,6,7,8,9" for n in range(5)], None, ["100,000 combinations"]),
    ],
)
def test_combinations_that_make_no_sense(texts, draws, words):
    assert_mentions(misuse_message(combine, axes(*texts), draws, 0), *words)


@pytest.mark.parametrize(
    "text",
    ["lr", "=1", "a.lr=", "a.lr=1,,2", "a.lr=log:0:1", "a.lr=log:x:1", "a.n=int:3:3",
     "a.p=uniform:1", "a.p=uniform:nan:1"],
)  # fmt: skip
def test_an_axis_of_another_form_is_refused(text):
    assert_mentions(misuse_message(Axis.parse, text), "--over")


def test_a_sweep_is_recomputed_from_its_runs(small, tmp_path):
    out = tmp_path / "out"
    found = sweep(small(), axes("algorithm.lr=1e-6,0.1", "graph.kind=ring,complete"), out, seeds=2)
    assert found.metric == "accuracy.mean"
    assert found.judged_on == "test samples"
    stored = json.loads((out / "sweep.json").read_text())
    assert stored == found.as_dict()
    assert [cell["settings"]["algorithm.lr"] for cell in stored["cells"]] == ["1e-6"] * 2 + [
        "0.1"
    ] * 2
    for cell in stored["cells"]:
        scores = [
            RunFolder(out / name).read_history().column("accuracy.mean")[-1]
            for name in cell["folders"]
        ]
        assert cell["scores"] == scores
        assert cell["mean"] == statistics.fmean(scores)
        assert cell["deviation"] == statistics.stdev(scores)
        configs = [RunFolder(out / name).read_config() for name in cell["folders"]]
        assert [config.run.seed for config in configs] == [0, 1]
        assert {config.graph.kind for config in configs} == {cell["settings"]["graph.kind"]}
    best = max(stored["cells"], key=lambda cell: cell["mean"])
    assert stored["best"] == best["settings"]
    assert found.ranked[0].settings == best["settings"]
    with (out / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert float(rows[0]["accuracy.mean"]) == stored["cells"][0]["scores"][0]


def test_cells_that_fail_do_not_lose_the_others(small, tmp_path):
    notes = []
    found = sweep(small(), axes("algorithm.lr=0.1,1e20,soon"), tmp_path / "out", note=notes.append)
    good, diverged, wrong = found.cells
    assert good.failures == ()
    assert "diverged" in diverged.failures[0]
    assert "algorithm.lr" in wrong.failures[0]
    assert found.best is good
    assert found.ranked[0] is good
    assert any("cannot run" in note and "soon" in note for note in notes)
    assert "2 of 3 combinations failed." in found.sentences()
    page = write_page(found, tmp_path / "out" / "report.html", "Title").read_text()
    assert page.count("failed</th>") == 2
    assert "src=" not in page.replace('src="data:', "")


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
    found = sweep(config, axes("model.limit=0,60"), tmp_path / "out")
    good, bad = found.cells
    assert good.failures == ()
    assert_mentions(bad.failures[0], "RuntimeError: out of luck", "error.txt")
    [trace] = (tmp_path / "out").rglob("error.txt")
    assert "in forward" in trace.read_text()
    # The next attempt starts anew.
    monkeypatch.setattr("broken_nets.Broken.broken", False)
    again = sweep(config, axes("model.limit=0,60"), tmp_path / "out", resume=True)
    assert [cell.failures for cell in again.cells] == [(), ()]


def test_nothing_runs_if_no_cell_can(small, tmp_path):
    message = misuse_message(sweep, small(), axes("algorithm.lrr=0.1,0.2"), tmp_path / "out")
    assert "Did you mean 'lr'?" in message
    assert not (tmp_path / "out").exists()


def test_finished_runs_are_not_repeated(small, tmp_path):
    out, over = tmp_path / "out", axes("algorithm.lr=0.05,0.1")
    first = sweep(small(), over, out)
    [folder] = first.cells[1].folders
    times = (first.cells[0].folders[0] / "summary.json").stat().st_mtime_ns
    (folder / "summary.json").unlink()
    more = axes("algorithm.lr=0.05,0.1,0.2")
    second = sweep(small(), more, out, resume=True)
    assert second.cells[:2] == first.cells
    assert (first.cells[0].folders[0] / "summary.json").stat().st_mtime_ns == times
    with pytest.raises(Misuse, match="not empty"):
        sweep(small(), over, out)
    with pytest.raises(Misuse, match="another configuration"):
        sweep(small("run.batch_size=8"), over, out, resume=True)


def test_jobs_give_the_same_numbers_and_messages(small, tmp_path):
    over = axes("algorithm.lr=0.1,0.05,1e20")
    reports = []

    def listener_for(label, seed):
        from tacit.experiment.run import ProgressListener

        return ProgressListener(on_report=reports.append)

    alone = sweep(small(), over, tmp_path / "one")
    both = sweep(small(), over, tmp_path / "two", jobs=2, listener_for=listener_for)
    assert [cell.scores for cell in both.cells] == [cell.scores for cell in alone.cells]
    assert [len(cell.failures) for cell in both.cells] == [0, 0, 1]
    assert "The run diverged" in both.cells[2].failures[0]
    for ours, theirs in zip(both.cells[:2], alone.cells[:2], strict=True):
        [one], [two] = ours.folders, theirs.folders
        names = [path.name for path in sorted((one / "checkpoints").iterdir())]
        assert names
        for name in names:
            # Metadata have times; the tensors are at the end.
            tensors = [(run / "checkpoints" / name).read_bytes()[-10_000:] for run in (one, two)]
            assert tensors[0] == tensors[1]
    assert sum("steps" in report for report in reports) == 3


def test_validation_samples_judge_if_there_are_some(small, tmp_path):
    found = sweep(small("data.validation=0.2"), axes("algorithm.lr=0.1"), tmp_path / "out")
    assert found.judged_on == "validation samples"
    [sentence] = found.sentences()
    assert sentence.startswith("Best by accuracy.mean on validation samples")
    summary = json.loads((found.cells[0].folders[0] / "summary.json").read_text())
    assert any("48 validation samples" in note for note in summary["notes"])


def test_another_metric_and_less_is_better():
    def cell(value, *failures):
        return SweepCell({"a": str(value)}, (value,), failures, 1.0, ())

    cells = (cell(3.0), cell(1.0), cell(0.5, "failed"), cell(math.nan))
    found = Sweep(("a",), cells, (0,), "loss.mean", "test samples")
    assert found.best is cells[1]
    assert found.ranked[:2] == [cells[1], cells[0]]
    assert Sweep(("a",), cells, (0,), "accuracy.mean", "x").best is cells[0]
    assert Sweep(("a",), cells[2:], (0,), "loss.mean", "x").best is None


def test_any_metric_judges(small, tmp_path):
    over = axes("algorithm.lr=1e-6,0.1")
    found = sweep(small(), over, tmp_path / "out", metric="auc")
    assert found.metric == "auc.mean"
    for cell in found.cells:
        [folder] = cell.folders
        assert cell.scores == (RunFolder(folder).read_history()[-1].metrics["auc"].mean,)
    message = misuse_message(sweep, small(), over, tmp_path / "x", metric="acuracy.mean")
    assert_mentions(message, "'acuracy.mean'", "Did you mean 'accuracy.mean'?")
    assert not (tmp_path / "x").exists()
    # Runs that have ended are not repeated for a metric that they did not record.
    again = sweep(small(), over, tmp_path / "out", metric="f1-macro", resume=True)
    assert again.best is None
    assert "There is no column 'f1-macro.mean'" in again.cells[0].failures[0]


def test_names_of_folders_are_short_and_distinct():
    assert folder_name("lppa", "-seed1") == "lppa-seed1"
    first, second = folder_name("é" * 300 + "a", "-seed1"), folder_name("é" * 300 + "b", "-seed1")
    assert first != second
    assert len(first.encode()) <= 255
    assert "/" not in folder_name("a/b")
    assert folder_name("a/b") != folder_name("a_b")
