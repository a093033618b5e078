"""The examples run, in a shorter version."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# With the bundled digits instead of the papers' data.
SHORT_PAPER = "run.rounds=1 run.iterations_per_round=2 data.name=mnist-mini run.batch_size=8"
SHORT = {
    "adaptive-filtering": "run.rounds=6 run.evaluate_every=2 task.flip_at=3",
    "localization": "run.rounds=6 run.evaluate_every=2",
    "digits-missing": "run.rounds=2 run.iterations_per_round=2 "
    "data.limit_train=300 data.limit_test=50",
    "pdmm-mnist": SHORT_PAPER,
    "private": "run.rounds=2 run.iterations_per_round=2 run.batch_size=40 "
    "data.limit_train=300 data.limit_test=50",
    "private-mnist": SHORT_PAPER,
    "defl-vp-fashion-mnist": SHORT_PAPER,
}


@pytest.fixture
def short(tacit_here):
    """Run the shorter version of an example."""

    def running(name, *arguments):
        sets = [word for override in SHORT[name].split() for word in ("--set", override)]
        answer = tacit_here("run", EXAMPLES / f"{name}.toml", *sets, *arguments)
        assert answer.code == 0, answer.err
        return answer.out

    return running


@pytest.mark.parametrize("name", ["adaptive-filtering", "localization"])
def test_a_task_with_streaming_data(short, tacit_here, tmp_path, history, name):
    summary = json.loads(short(name, "--out", "one", "--json"))
    assert summary["steps"] == summary["rounds"] == 6
    assert summary["accuracy"] is None
    assert [record["step"] for record in history("one")] == [0, 2, 4, 6]
    assert all(record["msd"] > 0 for record in history("one"))
    printed = short(name, "--out", "two")
    assert f"mean-square deviation {10 * math.log10(summary['msd']):.1f} dB" in printed
    assert "accuracy" not in printed
    assert history("two") == history("one")
    page = (tmp_path / "two" / "report.html").read_text()
    assert f"on {name}</h1>" in page
    assert "MSD (dB)" in page
    both = tacit_here("report", "one", "two", "--out", "both.html")
    assert both.code == 0, both.err
    assert "MSD (dB)" in (tmp_path / "both.html").read_text()


def test_digits_that_each_client_misses(short, tmp_path, history):
    summary = json.loads(short("digits-missing", "--out", "one", "--json"))
    assert summary["clients"] == 5
    assert 0 <= summary["accuracy"]["mean"] <= 100
    assert summary["msd"] is None
    table = json.loads((tmp_path / "one" / "partition.json").read_text())
    for client, counts in enumerate(table["counts"]):
        assert [label for label in range(10) if not counts[label]] == [2 * client, 2 * client + 1]


@pytest.mark.parametrize("name", ["pdmm-mnist", "defl-vp-fashion-mnist"])
def test_an_example_of_another_family(short, name):
    summary = json.loads(short(name, "--out", "one", "--json"))
    assert summary["steps"] == 2
    assert summary["bytes_sent"] > 0


def test_an_example_with_a_guarantee(short):
    summary = json.loads(short("private", "--out", "one", "--json"))
    assert summary["steps"] == 4
    privacy = summary["privacy"]
    assert privacy["honest"] == 4
    assert 2.9 < privacy["spent"] <= privacy["epsilon"] == 3


def test_an_example_with_a_guarantee_is_compared_with_an_algorithm_that_has_none(tacit_here):
    sets = [word for override in SHORT["private-mnist"].split() for word in ("--set", override)]
    options = "--out c --over algorithm=private-sgd,decor+lr=10.0+correlation=3.0,lppa+lr=0.5"
    command = ["grid", EXAMPLES / "private-mnist.toml", *sets, *options.split()]
    answer = tacit_here(*command)
    assert answer.code == 0, answer.err
    rows = [line.split("│") for line in answer.out.splitlines() if line.startswith("│")]
    # Further metrics have fewer columns.
    rows = [row for row in rows if len(row) == 8]
    epsilons = {row[1].strip().split("+")[0]: row[4].strip() for row in rows}
    assert epsilons.pop("majority baseline") == ""
    assert epsilons == {"private-sgd": "3", "decor": "3", "lppa": "none"}


def test_an_example_is_compared_with_algorithms_that_lack_its_options(tacit_here):
    """Options of the file's algorithm are not used for others; options of none are an error."""
    sets = [word for override in SHORT["localization"].split() for word in ("--set", override)]
    options = "--over algorithm=dsg,pdmm"
    command = ["grid", EXAMPLES / "localization.toml", *sets, *options.split()]
    answer = tacit_here(*command, "--out", "c")
    assert answer.code == 0
    for option in ("matrix", "protection"):
        assert re.search(f"algorithm.{option} = .* is dropped: 'dsg' has no such", answer.err)
    answer = tacit_here(*command, "--set", "algorithm.fresh=true", "--out", "d")
    assert answer.code == 2
    assert "algorithm.fresh is an option of none of" in answer.err


def test_adapters_are_trained_between_five_clients(tmp_path):
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "lora.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "3,650 of 21,378 parameters are trained and travel" in ran.stdout
    first, *_, last = map(float, re.findall(r"accuracy ([\d.]+) %", ran.stdout))
    (merged,) = re.findall(r"merged average model: ([\d.]+) %", ran.stdout)
    assert first < 70
    assert min(last, float(merged)) > 85


@pytest.mark.slow
def test_own_last_layers_help_clients_with_different_digits(tmp_path):
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "local_heads.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    shared, own = map(float, re.findall(r"([\d.]+)%", ran.stdout.split("mean")[1])[:2])
    assert own > shared + 4
