"""Tables and figures for papers: the numbers are SciPy's, LaTeX is escaped, figures are files."""

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import tacit
from tacit.core.errors import Misuse
from tacit.report.finished_run import read_run
from tacit.report.groups import group_runs
from tacit.report.paper_files import (
    differences_csv,
    latex_tables,
    means_csv,
    runs_csv,
    write_paper_files,
)
from tacit.report.rendering import latex

SEEDS = range(4)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two algorithms, four seeds each, and one more with a seed of its own."""
    base, draw = tmp_path_factory.mktemp("runs"), torch.Generator().manual_seed(0)
    x = torch.randn(3, 30, 5, generator=draw)
    y = (x[..., 0] > 0).long()
    parts = list(zip(x, y, strict=True))
    task = tacit.Task(
        nn.Linear(5, 2), parts, batch_size=5, test=(x.flatten(0, 1), y.flatten()), init="same"
    )
    graph = tacit.Topology.ring(3).mixing("metropolis")
    plan = [(tacit.DSGT(lr=0.05), seed) for seed in SEEDS]
    plan += [(tacit.DPSGD(lr=0.5), seed) for seed in (*SEEDS, 9)]
    return [
        tacit.run(task, algorithm, graph, steps=8, seed=seed, metrics=["auc"]).save(
            base / f"{algorithm.name}-{seed}"
        )
        for algorithm, seed in plan
    ]


@pytest.fixture(scope="module")
def groups(folders):
    return group_runs([read_run(folder) for folder in folders])


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def finals(groups, place):
    return {run.summary.seed: run.last.accuracy.mean for run in groups[place].runs}


def test_every_run_has_a_line(groups):
    lines = rows(runs_csv(groups))
    assert len(lines) == 9
    assert {line["algorithm"] for line in lines} == {"dsgt", "d-psgd"}
    assert float(lines[0]["accuracy_mean"]) == finals(groups, 0)[0]
    assert lines[0]["diverged"] == ""
    assert "epsilon" not in lines[0]


def test_means_are_those_of_scipy(groups):
    lines = [line for line in rows(means_csv(groups)) if line["measure"] == "accuracy_mean"]
    values = list(finals(groups, 1).values())
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert int(lines[1]["seeds"]) == 5
    assert float(lines[1]["mean"]) == pytest.approx(np.mean(values))
    assert float(lines[1]["deviation"]) == pytest.approx(np.std(values, ddof=1))
    assert (float(lines[1]["low"]), float(lines[1]["high"])) == pytest.approx(tuple(expected))


def test_differences_use_the_seeds_that_both_have(groups):
    first, second = finals(groups, 0), finals(groups, 1)
    own, base = [second[s] for s in SEEDS], [first[s] for s in SEEDS]
    [line] = [one for one in rows(differences_csv(groups)) if one["measure"] == "accuracy_mean"]
    expected = stats.ttest_rel(own, base).confidence_interval(0.95)
    assert int(line["seeds"]) == 4
    assert (line["runs"], line["less"]) == ("d-psgd", "dsgt")
    assert float(line["mean"]) == pytest.approx(np.mean(np.subtract(own, base)))
    assert (float(line["low"]), float(line["high"])) == pytest.approx(tuple(expected))


def test_further_metrics_have_a_line_in_every_table(groups):
    for text in (means_csv(groups), differences_csv(groups)):
        assert "auc_mean" in {line["measure"] for line in rows(text)}
    assert (
        float(rows(runs_csv(groups))[0]["auc_mean"]) == groups[0].runs[0].last.metrics["auc"].mean
    )
    assert "& AUC &" in latex_tables(groups)


def test_equal_differences_have_no_interval(groups):
    [line] = [one for one in rows(differences_csv(groups)) if one["measure"] == "bytes_sent"]
    assert (line["deviation"], line["low"], line["high"]) == ("0.0", "", "")
    same = [groups[0], replace(groups[0], label="again")]
    assert "no interval where the deviation over seeds is zero" in latex_tables(same)
    assert "$[" not in latex_tables(same)


def test_one_seed_has_a_mean_and_no_interval(groups):
    single = [replace(groups[0], runs=groups[0].runs[:1])]
    [line] = [one for one in rows(means_csv(single)) if one["measure"] == "loss_mean"]
    assert math.isfinite(float(line["mean"]))
    assert line["low"] == line["high"] == line["deviation"] == ""
    assert r"\pm" not in latex_tables(single)
    assert "over up to 5 seeds" in latex_tables(groups)
    assert "over 4 seeds" in latex_tables(groups[:1])
    assert differences_csv(single).count("\n") == 1


def test_latex_has_one_line_per_group_and_escapes(groups):
    odd = [replace(groups[0], label=r"a_b & 50% #1 {x} \y ~ ^ $"), groups[1]]
    text = latex_tables(odd)
    escaped = r"a\_b \& 50\% \#1 \{x\} \textbackslash{}y \textasciitilde{} \textasciicircum{} \$"
    assert latex(odd[0].label) == escaped
    assert f"    {escaped} & $" in text
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert len(body) == 2
    columns = text.split(r"\begin{tabular}{")[1].split("}")[0]
    assert all(line.count(" & ") == len(columns) - 1 for line in body)
    differences = text.split(r"\midrule")[2].split(r"\bottomrule")[0].strip().splitlines()
    assert [line.split(" & ")[1] for line in differences] == [r"Accuracy (\%)", "AUC", "Loss"]
    assert all(line.strip().startswith("d-psgd & ") for line in differences)
    assert "$[" in differences[0]
    assert r"\toprule" in text
    assert r"\times 10^{" in text


def test_the_files_are_written_beside_the_report(groups, tmp_path):
    page = tmp_path / "out" / "report.html"
    written = write_paper_files(groups, page, csv=True, latex=True, figures="pdf")
    names = {path.name for path in written}
    assert {"report-runs.csv", "report-means.csv", "report-differences.csv"} <= names
    assert {"report-table.tex", "accuracy.pdf", "loss.pdf", "graph.pdf"} <= names
    for path in written:
        assert path.stat().st_size > 100
        if path.suffix == ".pdf":
            content = path.read_bytes()
            assert content.startswith(b"%PDF")
            assert b"/Type3" not in content
    again = write_paper_files(groups, tmp_path / "again.html", figures="pdf")
    assert again[0].read_bytes() == (page.parent / "report-figures" / again[0].name).read_bytes()


def test_a_file_in_the_way_is_said(groups, tmp_path):
    (tmp_path / "report-runs.csv").mkdir()
    with pytest.raises(Misuse, match="Cannot write"):
        write_paper_files(groups, tmp_path / "report.html", csv=True)
