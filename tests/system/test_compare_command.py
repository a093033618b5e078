"""`tacit compare`: the table, the pairs, and going on where it was left."""

import json
import statistics

from tacit.report.numbers import format_pair


def test_a_comparison_is_printed_paired_and_stored(tacit_here, config, tmp_path):
    names = "dsgt,lppa,lppa+fresh=true"
    options = f"--algorithms {names} --seeds 2 --out c --set run.seed=5"
    answer = tacit_here("compare", config, *options.split())
    assert answer.code == 0, answer.err
    stored = json.loads((tmp_path / "c" / "compare.json").read_text())
    assert stored["seeds"] == [5, 6]
    assert [row["label"] for row in stored["rows"]] == names.split(",")
    first = None
    for row in stored["rows"]:
        folders = [tmp_path / "c" / f"{row['label']}-seed{seed}" for seed in (5, 6)]
        accuracy = [
            json.loads((f / "summary.json").read_text())["accuracy"]["mean"] for f in folders
        ]
        first = first or accuracy
        mean, deviation = statistics.fmean(accuracy), statistics.stdev(accuracy)
        assert row["accuracy"] == {"mean": mean, "deviation": deviation}
        assert format_pair(mean, deviation, ".2f") in answer.out
        if accuracy is not first:
            apart = [a - b for a, b in zip(accuracy, first, strict=True)]
            assert row["difference"] == {
                "mean": statistics.fmean(apart),
                "deviation": statistics.stdev(apart),
            }
            assert f"{statistics.fmean(apart):+.2f}" in answer.out
    assert "Report: c/report.html" in answer.out
    assert "fresh=true" in (tmp_path / "c" / "report.html").read_text()
    assert "dsgt (seed 5)" in answer.err


def test_without_noise_lppa_is_dsgt_and_finished_runs_are_not_run_again(
    tacit_here, config, tmp_path
):
    options = "--seeds 1 --out c --json --set algorithm.noise.scale=0"
    command = ["compare", config, *options.split()]
    answer = tacit_here(*command, "--algorithms", "dsgt,lppa")
    assert answer.code == 0, answer.err
    dsgt, lppa = json.loads(answer.out)["rows"]
    assert lppa["difference"]["mean"] == 0
    assert (lppa["loss"], lppa["bytes_sent"]) == (dsgt["loss"], dsgt["bytes_sent"])

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "c").glob("*/summary.json")}
    assert len(before) == 2
    assert tacit_here(*command, "--algorithms", "dsgt,lppa").code == 2
    again = tacit_here(*command, "--algorithms", "dsgt,lppa,dp-dsgt", "--resume")
    assert again.code == 0, again.err
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert json.loads(again.out)["rows"][:2] == [dsgt, lppa]
    assert "dp-dsgt (seed 0)" in again.err
    assert "lppa (seed 0)" not in again.err
    assert json.loads((tmp_path / "c" / "compare.json").read_text()) == json.loads(again.out)


def test_a_diverged_run_ends_the_comparison_and_is_named(tacit_here, config):
    answer = tacit_here(
        "compare", config, "--algorithms", "lppa", "--out", "c", "--set", "algorithm.lr=1e20"
    )
    assert (answer.code, answer.out) == (1, "")
    assert "lppa, seed 0" in answer.err
