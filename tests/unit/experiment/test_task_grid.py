"""Grids of a task in Python: names and objects, the same folder as that of the command."""

import pytest
import torch

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.report.finished_grid import read_grid


@pytest.fixture
def task():
    draw = torch.Generator().manual_seed(0)
    return tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.randn(5, 2, generator=draw))


@pytest.fixture
def private_task():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(3, 40, 4, generator=draw)
    parts = list(zip(x, (x[..., 0] > 0).long(), strict=True))
    test = x.flatten(0, 1), (x[..., 0] > 0).long().flatten()
    return tacit.Task(torch.nn.Linear(4, 2), parts, batch_size=8, test=test)


def test_a_grid_takes_names_and_objects_and_varies_lists(task, tmp_path):
    complete = tacit.Topology.complete(5).mixing("metropolis")
    algorithms = ["dsgt", tacit.LPPA(lr=0.3, noise=tacit.Laplace(0.01))]
    made = tacit.grid(
        task, algorithms, ["ring", complete], lr=[0.05, 0.1], seeds=2, steps=20, out=tmp_path
    )
    assert made.stored.keys == ["algorithm", "graph", "lr"]
    assert len(made.settings) == 8
    assert [len(setting.runs) for setting in made.settings] == [2] * 8
    assert read_grid(tmp_path).as_dict() == made.as_dict()
    names = {run.summary.algorithm for run in made.runs}
    assert names == {"dsgt", "lppa"}
    assert {run.settings["algorithm.lr"] for run in made.runs} == {0.05, 0.1}
    expected = tacit.run(task, tacit.DSGT(lr=0.1), complete, steps=20, seed=1)
    (setting,) = (
        one
        for one in made.settings
        if (one.values["algorithm"], one.values["lr"]) == ("dsgt", "0.1")
        and one.values["graph"].startswith("complete")
    )
    assert setting.runs[1].history[-1].loss == expected.history[-1].loss
    assert "Parallel coordinates" in (tmp_path / "report.html").read_text()


class Unfinished(tacit.DSGT):
    """An own algorithm with a mistake in it."""

    name = "unfinished"

    def step(self, state, here):
        raise RuntimeError("no step yet")


def test_what_own_code_raises_fails_alone(task, tmp_path):
    made = tacit.grid(task, ["dsgt", Unfinished(lr=0.1)], lr=0.1, steps=2, out=tmp_path)
    assert [len(setting.runs) for setting in made.settings] == [1, 0]
    assert "RuntimeError: no step yet" in made.settings[1].failures[0]
    assert "in step" in (tmp_path / "unfinished-seed0" / "error.txt").read_text()


def test_a_metric_that_no_run_records_is_refused_before_they_run(task, tmp_path):
    call = {"lr": 0.1, "steps": 5, "metric": "acuracy", "out": tmp_path}
    assert_mentions(misuse_message(tacit.grid, task, "dsgt", **call), "metric", "'acuracy'")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")
def test_a_promise_is_for_those_that_keep_one_and_composes(private_task, tmp_path):
    made = tacit.grid(
        private_task,
        ["private-sgd", "dsgt"],
        lr=0.1,
        seeds=2,
        epochs=1,
        privacy=tacit.Privacy(epsilon=3, delta=1e-3),
        out=tmp_path,
    )
    [spent] = made.spent
    assert (spent.runs, spent.without_guarantee) == (2, 2)
    assert spent.epsilon > 3
    assert made.stored.metric == "accuracy.mean"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 5, "epochs": 5}, ["steps", "epochs", "Give one"]),
        ({}, ["steps", "epochs"]),
        ({"steps": 5, "seeds": 0}, ["seeds"]),
        ({"steps": 5, "graph": "rign"}, ["graph", "'rign'"]),
        ({"steps": 5, "algorithm": ["dsgt", "dsgd"]}, ["'dsgd'", "Did you mean"]),
        ({"steps": 5, "lrr": 0.1}, ["'lrr'", "Did you mean 'lr'?"]),
    ],
)
def test_arguments_that_make_no_sense(task, tmp_path, options, words):
    call = {"algorithm": "dsgt", "lr": 0.1, "out": tmp_path} | options
    assert_mentions(misuse_message(tacit.grid, task, **call), *words)
