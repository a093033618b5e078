"""`tacit run`: what it prints, what it leaves, and that it does so again."""

import json
import re
import tomllib

import pytest

from support.misuse import assert_mentions

OWN = """
import torch
from dataclasses import dataclass
from torch import nn
from tacit.algorithms import Algorithm
from tacit.algorithms.tracking import TrackingState, track

class Tiny(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.last = nn.Linear(784, width), nn.Linear(width, 10)

    def forward(self, x):
        return self.last(torch.relu(self.first(x.flatten(1))))

@dataclass(frozen=True)
class Mine(Algorithm):
    lr: float
    name = "mine"
    requires = ("doubly stochastic",)

    def start(self, here) -> TrackingState:
        grad = here.grad(here.theta0)
        return TrackingState(here.theta0, grad, grad)

    def step(self, s: TrackingState, here) -> TrackingState:
        return track(s, here, self.lr, 1)
"""
KEYS = [
    "algorithm", "steps", "rounds", "clients", "parameters", "accuracy", "loss",
    "consensus_distance", "bytes_sent", "wall_seconds", "msd", "baseline", "seed",
]  # fmt: skip


def test_a_run_and_its_own_configuration_give_the_same_bits(
    tacit, tacit_here, config, tmp_path, history, newest
):
    values = ("algorithm.noise.scale=0.5", "algorithm.lr=0.05", "run.seed=3")
    options = [word for value in values for word in ("--set", value)]
    answer = tacit("run", config, "--out", "one", "--json", *options)
    assert answer.code == 0
    summary = json.loads(answer.out)  # nothing but JSON on standard output
    assert "ring(3)" in answer.err  # progress is on the error stream
    assert summary == json.loads((tmp_path / "one" / "summary.json").read_text())
    assert list(summary)[: len(KEYS)] == KEYS
    assert list(summary["accuracy"]) == ["mean", "min", "max", "average_model"]
    expected = {"algorithm": "lppa", "steps": 10, "rounds": 2, "seed": 3}
    assert expected.items() <= summary.items()

    written = tomllib.loads((tmp_path / "one" / "config.toml").read_text())
    assert written["algorithm"]["noise"] == {"law": "laplace", "scale": 0.5}
    assert (written["algorithm"]["lr"], written["run"]["seed"]) == (0.05, 3)
    assert [record["round"] for record in history("one")] == [0, 1, 2]
    assert len(list((tmp_path / "one" / "checkpoints").glob("*.safetensors"))) == 2

    page = (tmp_path / "one" / "report.html").read_text()
    assert "lppa on mnist-mini" in page
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert not re.search(r"@import|url\((?!#|data:)", page)

    again = tacit_here("run", "one/config.toml", "--out", "two")  # another process, the same bits
    assert again.code == 0
    assert history("two") == history("one")
    assert newest("two") == newest("one")
    mean = summary["accuracy"]["mean"]
    assert f"accuracy {mean:.2f} %" in again.out
    assert f"{summary['bytes_sent']:,} bytes sent" in again.out
    assert "Report: two/report.html" in again.out


def test_own_classes_are_named_by_their_path(tacit_here, config, tmp_path, history, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "own_things.py").write_text(OWN)
    text = (tmp_path / config).read_text()
    text = text.replace('name = "mlp"\nhidden = [8]', 'name = "own_things:Tiny"\nwidth = 5')
    text = re.sub(r'name = "lppa".*\n(.*\n)noise.*\n', r'name = "own_things:Mine"\n\1', text)
    (tmp_path / config).write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    answer = tacit_here("run", config, "--out", "own", "--json")
    assert answer.code == 0, answer.err
    summary = json.loads(answer.out)
    assert (summary["algorithm"], summary["parameters"]) == ("mine", 784 * 5 + 5 + 50 + 10)
    assert history("own")[-1]["loss"]["mean"] < history("own")[0]["loss"]["mean"]


def test_divergence_ends_with_exit_code_1_and_what_to_try(tacit_here, config, tmp_path, history):
    answer = tacit_here("run", config, "--out", "out", "--set", "algorithm.lr=1e20")
    assert (answer.code, answer.out) == (1, "")
    assert_mentions(
        answer.err,
        "client 0",
        "at iteration",
        "smaller step size",
        "allow_divergence",
        "out/history.jsonl",
    )
    assert [record["step"] for record in history("out")] == [0]
    assert "diverged" in json.loads((tmp_path / "out" / "summary.json").read_text())

    allowed = ["--set", "algorithm.lr=1e20", "--set", "run.allow_divergence=true"]
    answer = tacit_here("run", config, "--out", "out", "--resume", *allowed)
    assert answer.code == 0
    assert "loss not finite" in answer.out
    assert "diverged: " in answer.out
    assert len(history("out")) == 3


@pytest.mark.parametrize(
    "arguments", [["--help"], ["-h"], ["run", "-h"], ["federation", "create", "--help"]]
)
def test_help_is_printed(tacit_here, arguments):
    answer = tacit_here(*arguments)
    assert answer.code == 0
    assert "Usage: tacit" in answer.out


def test_the_command_alone_lists_its_commands(tacit_here):
    answer = tacit_here()
    shown = answer.out + answer.err
    for verb in ("demo", "run", "grid", "report", "data", "algorithms"):
        assert f" {verb} " in shown


def test_the_version_is_printed(tacit_here):
    assert re.fullmatch(r"tacit \d+\.\d+\.\d+\n", tacit_here("--version").out)


def test_the_algorithms_are_listed_with_what_they_send(tacit_here):
    answer = tacit_here("algorithms", "--parameters", "1000", "--json")
    rows = {row["name"]: row for row in json.loads(answer.out)}
    assert {"dsgt", "dp-dsgt", "lppa"} <= set(rows)
    assert (
        rows["lppa"]["bytes_per_iteration"] == rows["dsgt"]["bytes_per_iteration"] == 2 * 4 * 1000
    )
    # One row of integers on each edge of a tree, in each direction.
    assert rows["private-sgd"]["bytes_per_iteration"] == 4 * 1000
    assert rows["private-sgd"]["messages_per_iteration"] == 1
    described = tacit_here("algorithms", "lppa", "--parameters", "1000", "--json")
    facts = json.loads(described.out)
    assert rows["lppa"].items() <= facts.items()
    options = {option["name"]: option for option in facts["options"]}
    assert options["lr"]["default"] == "required"
    assert "masks" in options["fresh"]["meaning"]
    assert_mentions(tacit_here("algorithms", "lppa").out, facts["paper"], "γᵢ", "fresh", "none;")
    unknown = tacit_here("algorithms", "lpa")
    assert (unknown.code, unknown.out) == (2, "")
    assert "Did you mean 'lppa'" in unknown.err
    table = tacit_here("algorithms").out
    for name, row in rows.items():
        assert name in table
        assert row["protects"].split()[0] in table
