"""`tacit grid`: the table, the page, its folder for other commands, and several processes."""

import json
import shlex
import signal
import time

import pytest

pytestmark = pytest.mark.slow

LR_AND_GRAPH = ("--over", "algorithm.lr=0.01,0.1", "--over", "graph=ring,complete")


@pytest.mark.quick
def test_a_grid_is_printed_stored_reported_and_audited(tacit_here, config, tmp_path):
    options = ("--over", "algorithm=dsgt,lppa", "--seeds", "2", "--set", "run.rounds=1")
    answer = tacit_here("grid", config, *options, "--out", "out")
    assert answer.code == 0, answer.err
    assert "Best by accuracy.mean on test samples" in answer.out
    assert "data.validation" in answer.out
    assert "95 % interval" in answer.out
    assert "Report: out/report.html" in answer.out
    assert "dsgt (seed 0)" in answer.err
    assert "Note: algorithm.noise" in answer.err
    page = tmp_path / "out" / "report.html"
    assert page.read_text().count("/history.jsonl") == 4
    assert "Parallel coordinates" in page.read_text()
    again = tacit_here("grid", config, *options, "--out", "out", "--resume", "--json")
    stored = json.loads((tmp_path / "out" / "grid.json").read_text())
    assert json.loads(again.out) == stored
    assert len(stored["settings"]) == 2

    audit = tacit_here("audit", "out", "--no-attacks", "-n", "2", "--adversary", "curious(1)")
    assert audit.code == 0, audit.err
    assert "lppa" in audit.out
    assert (tmp_path / "out" / "dsgt-seed0" / "audit.json").is_file()
    assert not (tmp_path / "out" / "dsgt-seed1" / "audit.json").exists()
    assert "Safe to take part?" in page.read_text()

    page.unlink()
    report = tacit_here("report", "out", "--csv", "--latex")
    assert report.code == 0, report.err
    assert "Parallel coordinates" in page.read_text()
    assert "Safe to take part?" in page.read_text()
    assert "dsgt" in (tmp_path / "out" / "report-table.tex").read_text()
    means = (tmp_path / "out" / "report-means.csv").read_text().splitlines()
    assert any(line.startswith("lppa,accuracy_mean,2,") for line in means)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("command", "line"),
    [
        (
            "compare a.toml --algorithms dsgt,lppa+noise.scale=0.5 --metric auc --out c --resume",
            "grid a.toml --over algorithm=dsgt,lppa+noise.scale=0.5 --metric auc --out c --resume "
            "--seeds 3",
        ),
        (
            "compare a.toml --seeds=2 --algorithms=dsgt --set 'a.b=[1, 2]'",
            "grid a.toml --seeds=2 --over algorithm=dsgt --set 'a.b=[1, 2]'",
        ),
        (
            "sweep a.toml --over algorithm.lr=log:1e-3:1 --random 5 --jobs 2",
            "grid a.toml --over algorithm.lr=log:1e-3:1 --random 5 --jobs 2",
        ),
    ],
)
def test_the_commands_before_answer_with_the_line_that_does_the_same(tacit_here, command, line):
    answer = tacit_here(*shlex.split(command))
    assert (answer.code, answer.out) == (2, "")
    assert f"  tacit {line}\n" in answer.err


@pytest.mark.quick
def test_a_grid_of_which_nothing_ends_fails(tacit_here, config, tmp_path):
    over = ("--over", "algorithm.lr=1e20,1e21")
    answer = tacit_here("grid", config, *over, "--out", "out")
    assert answer.code == 1
    assert "2 of 2 settings failed." in answer.out
    assert "lr=1e20: seed 0: The run diverged" in answer.out
    assert tacit_here("report", "out").code == 2


@pytest.mark.quick
def test_changed_kinds_say_what_they_drop(tacit_here, config):
    result = tacit_here(
        "run", config, "--set", "algorithm.name=dsgt", "--set", "run.rounds=1", "--out", "out"
    )
    assert result.code == 0, result.err
    assert "Note: algorithm.noise" in result.err


def test_ctrl_c_ends_all_runs_and_resume_goes_on(start, tacit_here, config, tmp_path):
    words = (
        "grid", config, "--over", "algorithm.lr=0.01,0.1,0.2", "--set", "run.rounds=60",
        "--jobs", "2", "--out", "out",
    )  # fmt: skip
    process = start(*words)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "out").glob("*/checkpoints/step-*"))) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in err
    stopped = sorted(path.name for path in (tmp_path / "out").iterdir())
    resumed = tacit_here(*words, "--resume", "--jobs", "1")
    assert resumed.code == 0, resumed.err
    assert "resumed after iteration" in resumed.err
    whole = tacit_here(*words[:-1], "whole", "--jobs", "1")
    assert whole.code == 0, whole.err
    assert scores(tmp_path / "out") == scores(tmp_path / "whole")
    assert len(stopped) == 2


def test_workers_end_when_their_parent_is_killed(start, config, tmp_path):
    process = start(
        "grid", config, "--over", "algorithm.lr=0.01,0.1", "--set", "run.rounds=100000",
        "--jobs", "2", "--out", "out",
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "out").glob("*/checkpoints/step-*"))) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    histories = list((tmp_path / "out").glob("*/history.jsonl"))
    sizes = None
    while sizes != (sizes := [path.stat().st_size for path in histories]):
        assert time.monotonic() < deadline
        time.sleep(1)


def scores(folder):
    stored = json.loads((folder / "grid.json").read_text())
    return {one["label"]: one["scores"] for one in stored["settings"]}


def test_a_grid_with_jobs_equals_one_without(tacit_here, config, tmp_path):
    words = ("grid", config, *LR_AND_GRAPH, "--seeds", "2")
    for jobs in ("1", "2"):
        answer = tacit_here(*words, "--jobs", jobs, "--out", jobs)
        assert answer.code == 0, answer.err
    assert scores(tmp_path / "1") == scores(tmp_path / "2")
