"""`tacit sweep`, and runs in several processes."""

import json
import signal
import time

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.quick
def test_a_sweep_prints_a_table_and_writes_a_page(tacit_here, config, tmp_path):
    result = tacit_here(
        "sweep", config, "--over", "algorithm.lr=0.01,0.1", "--over", "graph.kind=ring,complete",
        "--set", "run.rounds=1", "--out", "out",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "Best by accuracy.mean on test samples" in result.out
    assert "data.validation" in result.out
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("/history.jsonl") == 4
    assert "Parallel coordinates" in page
    as_json = tacit_here(
        "sweep", config, "--over", "algorithm.lr=0.01,0.1", "--over", "graph.kind=ring,complete",
        "--set", "run.rounds=1", "--out", "out", "--resume", "--json",
    )  # fmt: skip
    assert len(json.loads(as_json.out)["cells"]) == 4


@pytest.mark.quick
def test_changed_kinds_say_what_they_drop(tacit_here, config):
    result = tacit_here(
        "run", config, "--set", "algorithm.name=dsgt", "--set", "run.rounds=1", "--out", "out"
    )
    assert result.code == 0, result.err
    assert "Note: algorithm.noise" in result.err


def test_ctrl_c_ends_all_runs_and_resume_goes_on(start, tacit_here, config, tmp_path):
    words = (
        "sweep", config, "--over", "algorithm.lr=0.01,0.1,0.2", "--set", "run.rounds=60",
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
    read = [json.loads((tmp_path / name / "sweep.json").read_text()) for name in ("out", "whole")]
    assert read[0] == read[1]
    assert len(stopped) == 2


def test_workers_end_when_their_parent_is_killed(start, config, tmp_path):
    process = start(
        "sweep", config, "--over", "algorithm.lr=0.01,0.1", "--set", "run.rounds=100000",
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


def test_a_comparison_with_jobs_equals_one_without(tacit_here, config, tmp_path):
    words = ("compare", config, "--algorithms", "dsgt,lppa", "--seeds", "2")
    one = tacit_here(*words, "--jobs", "1", "--out", "one")
    assert one.code == 0, one.err
    two = tacit_here(*words, "--jobs", "2", "--out", "two")
    assert two.code == 0, two.err
    assert (tmp_path / "one" / "compare.json").read_bytes() == (
        tmp_path / "two" / "compare.json"
    ).read_bytes()
