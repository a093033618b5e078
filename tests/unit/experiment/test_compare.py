import io
import json
import signal
import statistics

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from support.misuse import assert_mentions, misuse_message
from tacit.cli.metric_tables import further_metrics
from tacit.cli.runs import comparison_table
from tacit.core.errors import Diverged, Interrupted, Misuse
from tacit.experiment.compare import compare, make_variant, split_outside_brackets
from tacit.experiment.run import ProgressListener
from tacit.report.report import write_report


def options(config, label, *others):
    return make_variant(config, label, [label, *others]).algorithm


@pytest.fixture
def small(tiny):
    return lambda *overrides: tiny("run.rounds=1", *overrides)


def test_a_variant_keeps_the_options_its_algorithm_has(tiny):
    made = options(tiny("algorithm.fresh=true"), "dsgt", "lppa")
    assert (made.name, made.options) == ("dsgt", {"lr": 0.1})
    made = options(tiny("algorithm.fresh=true"), "dp-dsgt", "lppa")
    assert made.options == {"lr": 0.1, "noise": {"law": "laplace", "scale": 0.01}}


def test_a_variant_sets_further_options(tiny):
    made = options(tiny(), "lppa+fresh=true+noise.scale=0.5+lr=0.2")
    assert made.options == {"lr": 0.2, "noise": {"law": "laplace", "scale": 0.5}, "fresh": True}


def test_a_variant_changes_nothing_but_the_algorithm(tiny):
    before, after = tiny().as_dict(), make_variant(tiny(), "dsgt", ["dsgt", "lppa"]).as_dict()
    del before["algorithm"], after["algorithm"]
    assert before == after


def test_rows_are_recomputed_from_the_summaries(small, tmp_path):
    out = tmp_path / "out"
    labels = ["dsgt", "dp-dsgt", "lppa+fresh=true"]
    comparison = compare(small("run.seed=4", "algorithm.fresh=true"), labels, 3, out)
    assert comparison.seeds == [4, 5, 6]
    stored = json.loads((out / "compare.json").read_text())
    assert stored == comparison.as_dict()
    assert [row["label"] for row in stored["rows"]] == labels
    summaries = {
        label: [
            json.loads((out / f"{label}-seed{seed}" / "summary.json").read_text())
            for seed in (4, 5, 6)
        ]
        for label in labels
    }
    assert [path.name for path in comparison.folders] == [
        f"{label}-seed{s}" for label in labels for s in (4, 5, 6)
    ]
    base = [summary["accuracy"]["mean"] for summary in summaries["dsgt"]]
    for row in stored["rows"]:
        runs = summaries[row["label"]]
        accuracy = [summary["accuracy"]["mean"] for summary in runs]
        losses = [summary["loss"]["mean"] for summary in runs]
        assert row["accuracy"] == {
            "mean": statistics.fmean(accuracy),
            "deviation": statistics.stdev(accuracy),
        }
        assert row["loss"] == {
            "mean": statistics.fmean(losses),
            "deviation": statistics.stdev(losses),
        }
        assert row["bytes_sent"] == statistics.fmean(summary["bytes_sent"] for summary in runs)
        assert row["diverged"] == 0
        apart = [a - b for a, b in zip(accuracy, base, strict=True)]
        paired = {"mean": statistics.fmean(apart), "deviation": statistics.stdev(apart)}
        assert row["difference"] == (None if row["label"] == "dsgt" else paired)


def test_runs_are_paired_by_data_graph_first_weights_and_batches(small, tmp_path):
    config = small(
        "graph.kind=erdos-renyi", "graph.p=0.8", "algorithm.noise.scale=0", "model.init=independent"
    )
    comparison = compare(config, ["dsgt", "lppa"], 2, tmp_path / "out")
    assert comparison.rows[1].difference == (0.0, 0.0)
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


def test_one_seed_has_no_deviation(small, tmp_path):
    row = compare(small(), ["dsgt", "dsgt", "lppa"], 1, tmp_path / "out").as_dict()["rows"][1]
    assert row["label"] == "lppa"  # a name given twice is run once
    assert row["accuracy"]["deviation"] is None
    assert isinstance(row["difference"]["mean"], float)


def test_resuming_runs_only_what_has_not_ended(small, tmp_path):
    out = tmp_path / "out"
    ran = []

    def listener_for(label, seed):
        ran.append((label, seed))
        return ProgressListener()

    first = compare(small(), ["dp-dsgt"], 2, out, listener_for=listener_for)
    times = [(folder / "summary.json").stat().st_mtime_ns for folder in first.folders]
    (out / "dp-dsgt-seed1" / "summary.json").unlink()
    ran.clear()
    second = compare(small(), ["dp-dsgt", "lppa"], 2, out, resume=True, listener_for=listener_for)
    assert ran == [("dp-dsgt", 1), ("lppa", 0), ("lppa", 1)]
    assert (first.folders[0] / "summary.json").stat().st_mtime_ns == times[0]
    assert second.rows[0] == first.rows[0]
    assert json.loads((out / "compare.json").read_text()) == second.as_dict()


def test_a_stopped_comparison_names_the_run_and_how_to_resume(small, tmp_path):
    def listener_for(label, seed):
        return ProgressListener(
            on_step=lambda simulation: (
                (label, simulation.t) == ("lppa", 2) and signal.raise_signal(signal.SIGINT)
            )
        )

    with pytest.raises(Interrupted, match="in lppa, seed 0") as caught:
        compare(small(), ["dsgt", "lppa"], 1, tmp_path / "out", listener_for=listener_for)
    assert "--resume" in str(caught.value)
    assert "tacit run" not in str(caught.value)
    resumed = compare(small(), ["dsgt", "lppa"], 1, tmp_path / "out", resume=True)
    assert resumed.rows == compare(small(), ["dsgt", "lppa"], 1, tmp_path / "whole").rows


def test_a_diverged_run_is_named_and_does_not_count_as_finished(small, tmp_path):
    for resume in (False, True):
        with pytest.raises(Diverged, match="lppa, seed 0"):
            compare(small("algorithm.lr=1e20"), ["lppa"], 1, tmp_path / "out", resume=resume)


def test_runs_that_may_diverge_are_counted(small, tmp_path):
    config = small("algorithm.lr=1e20", "run.allow_divergence=true")
    row = compare(config, ["lppa"], 2, tmp_path / "out").as_dict()["rows"][0]
    assert row["diverged"] == 2
    assert row["loss"] == {"mean": None, "deviation": None}


@pytest.mark.parametrize(
    ("overrides", "labels", "seeds", "words"),
    [
        ((), ["dsgt"], 0, ["--seeds is 0", "at least 1"]),
        ((), [], 1, ["--algorithms", "at least one"]),
        ((), ["dsgt", "lpa"], 1, ["--algorithms", "'lpa'", "Did you mean 'lppa'?"]),
        ((), ["json:loads"], 1, ["--algorithms = 'json:loads'", "dataclass"]),
        ((), ["lppa+fresch=true"], 1, ["algorithm.fresch", "Did you mean 'fresh'?"]),
        ((), ["lppa+fresh"], 1, ["'fresh'", "key=value"]),
        ((), ["lppa+fresh.x=1"], 1, ["'fresh.x=1'", "table"]),
        (
            ("algorithm.rho=1.0",),
            ["dsgt", "dp-dsgt"],
            1,
            ["algorithm.rho", "dsgt, dp-dsgt", "Remove"],
        ),
        (("algorithm.noise.scale=-1",), ["dsgt", "lppa"], 1, ["algorithm.noise", "-1"]),
        (("data.name=mnst",), ["dsgt", "lppa"], 1, ["[data]", "'mnst'"]),
    ],
)
def test_errors_of_a_comparison_come_before_anything_is_written(
    small, tmp_path, overrides, labels, seeds, words
):
    assert_mentions(
        misuse_message(compare, small(*overrides), labels, seeds, tmp_path / "out"), *words
    )
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_not_empty_is_refused(small, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert "not empty" in misuse_message(compare, small(), ["dsgt"], 1, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_resuming_with_another_configuration_is_refused_before_any_run(small, tmp_path):
    compare(small(), ["lppa"], 1, tmp_path / "out")
    with pytest.raises(Misuse, match="another configuration"):
        compare(small("algorithm.lr=0.3"), ["dsgt", "lppa"], 1, tmp_path / "out", resume=True)
    assert not (tmp_path / "out" / "dsgt-seed0").exists()


def test_variants_may_choose_within_families_and_use_tables(small):
    config = small()
    labels = [
        "defl-vp+codec=qsgd+codec.bits=8",
        'pdmm+solver={solver="inner",mu=0.1,steps=2}+rho=0.5',
    ]
    assert split_outside_brackets(",".join(labels), ",") == labels
    first, second = (make_variant(config, label, labels).algorithm for label in labels)
    assert first.options["codec"] == {"codec": "qsgd", "bits": 8}
    assert second.options["solver"] == {"solver": "inner", "mu": 0.1, "steps": 2}
    assert second.options["rho"] == 0.5


def test_a_promise_is_for_the_algorithms_that_can_keep_it(small, tmp_path):
    config = small("privacy.epsilon=3.0", "algorithm.noise.scale=0.01")
    labels = ["private-sgd", "lppa", "decor"]
    variants = {label: make_variant(config, label, labels) for label in labels}
    promised = {label: variant.privacy is not None for label, variant in variants.items()}
    assert promised == {"private-sgd": True, "lppa": False, "decor": True}
    comparison = compare(config, labels, 2, tmp_path / "out")
    epsilons = {row.label: row.epsilon for row in comparison.rows}
    assert epsilons["lppa"] is None
    assert epsilons["private-sgd"] == pytest.approx(3.0, rel=1e-3)
    assert epsilons["decor"] == pytest.approx(3.0, rel=1e-3)
    assert [row["epsilon"] for row in comparison.as_dict()["rows"]] == list(epsilons.values())
    column = comparison_table(comparison).columns[3]
    assert (column.header, list(column.cells)) == ("ε", ["3", "none", "3", ""])
    page = write_report(comparison.folders, tmp_path / "report.html", title="t").read_text()
    assert page.count(">ε</th>") == 1
    assert ">none</td>" in page


def test_without_any_guarantee_there_is_no_column_for_it(small, tmp_path):
    comparison = compare(small(), ["lppa"], 1, tmp_path / "out")
    assert [column.header for column in comparison_table(comparison).columns][:2] == [
        "algorithm",
        "accuracy, %",
    ]
    page = write_report(comparison.folders, tmp_path / "report.html", title="t").read_text()
    assert ">ε<" not in page


def test_sums_without_noise_have_no_guarantee(small, tmp_path):
    config = small("privacy.epsilon=inf")
    (row,) = compare(config, ["private-sgd"], 1, tmp_path / "out").rows
    assert row.epsilon is None


def test_a_promise_that_none_keeps_is_an_error(small, tmp_path):
    message = misuse_message(
        compare, small("privacy.epsilon=3.0"), ["dsgt", "lppa"], 1, tmp_path / "out"
    )
    assert_mentions(message, "[privacy]", "none of dsgt, lppa keeps", "tacit algorithms")
    assert not (tmp_path / "out").exists()


def test_differences_are_of_the_chosen_metric(small, tmp_path):
    labels = ["dsgt", "dsgt+lr=1e-9"]
    comparison = compare(small(), labels, 2, tmp_path / "out", metric="auc")
    first, second = comparison.rows
    assert comparison.metric == "auc"
    expected = second.metrics["auc"][0] - first.metrics["auc"][0]
    assert second.difference[0] == pytest.approx(expected)
    assert first.baseline == second.baseline > 0
    assert second.misleading == 2
    assert "dsgt+lr=1e-9, 2 of 2 runs" in comparison.alerts[-1]
    stored = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert stored["metric"] == "auc"
    assert stored["rows"][1]["metrics"]["auc"]["mean"] == second.metrics["auc"][0]
    table = comparison_table(comparison)
    assert [column.header for column in table.columns] == ["algorithm", "auc", "difference", "sent"]
    assert "loss" in further_metrics(comparison).columns[0].cells
    (console := Console(width=80, record=True, file=io.StringIO())).print(table)
    assert labels[1] in console.export_text()
    assert [str(column.header) for column in comparison_table(comparison).columns][1] == "auc"
    names, owners, _, differences = (
        list(column.cells) for column in further_metrics(comparison).columns
    )
    assert names[:2] == ["accuracy, %"] * 2
    assert owners[:3] == [*labels, "majority baseline"]
    mean = second.differences["accuracy"][0]
    assert mean == pytest.approx(second.accuracy[0] - first.accuracy[0])
    assert differences[1].startswith(f"{mean:+.2f} ± ")
    assert stored["rows"][1]["differences"]["auc"]["mean"] == second.difference[0]


def test_accuracies_have_the_baseline_below_them(small, tmp_path):
    comparison = compare(small(), ["dsgt"], 1, tmp_path / "out")
    labels, values, *_ = (list(column.cells) for column in comparison_table(comparison).columns)
    assert labels == ["dsgt", "majority baseline"]
    assert float(values[1]) == pytest.approx(comparison.rows[0].baseline, abs=0.01)


def test_an_unknown_metric_is_refused_before_anything_runs(small, tmp_path):
    message = misuse_message(compare, small(), ["dsgt"], 1, tmp_path / "out", metric="f2")
    assert_mentions(message, "--metric", "'f2'", "f1-macro")
    assert not (tmp_path / "out").exists()
