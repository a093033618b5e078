"""Tasks that make their own data: from a configuration to a run, a comparison and a report."""

import copy
import json
import math
import signal
import statistics

import pytest
import torch
from safetensors.torch import load_file

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.cli.grid import settings_table
from tacit.config.build import build
from tacit.config.loading import make_config, with_keys
from tacit.core.errors import Interrupted
from tacit.experiment.axes import Axis
from tacit.experiment.folder import fingerprint
from tacit.experiment.grid import grid
from tacit.experiment.run import ProgressListener, run
from tacit.report.grid_page import write_grid_report
from tacit.report.report import write_report

FILTERING = {
    "task": {"name": "adaptive-filtering", "width": 3, "seed": 4},
    "graph": {"kind": "ring", "clients": 3},
    "algorithm": {"name": "dsgt", "lr": 0.05},
    "run": {"rounds": 12, "evaluate_every": 3, "checkpoint_every": 6},
}
LOCALIZATION = FILTERING | {
    "task": {"name": "localization", "anchors": [[0, 0], [1, 0.5], [0, 1]], "target": [0.2, 0.4]}
}


def filtering(*overrides):
    return make_config(copy.deepcopy(FILTERING), overrides)


def drawn(history):
    return [
        {key: value for key, value in record.as_dict().items() if key != "wall_seconds"}
        for record in history
    ]


def test_a_section_makes_the_task_that_python_makes():
    made = build(filtering("task.flip_at=7", "task.batch_size=2"))
    task = tacit.adaptive_filtering(3, 3, seed=4, flip_at=7, batch_size=2)
    for given, expected in zip(made.task.parts.constants, task.parts.constants, strict=True):
        assert torch.equal(given, expected)
    assert torch.equal(made.task.optimum_at(7), task.optimum_at(7))
    assert made.task.batch_size == 2
    assert made.dataset is made.partition is None
    assert (made.round_length, made.steps) == (1, 12)
    assert build(filtering("run.iterations_per_round=5")).steps == 60


def test_anchors_and_targets_are_lists_of_numbers():
    task = build(make_config(LOCALIZATION)).task
    assert task.optimum.tolist() == [0.2, 0.4]
    assert task.clients == 3
    variances = build(filtering("task.variances=[1, 0.5, 2]")).task.parts.constants[2]
    assert variances.tolist() == [1, 0.5, 2]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.name=mnist-mini", ["[data] does not go with [task]", "Remove one"]),
        ("partition.kind=iid", ["[partition] does not go with [task]"]),
        ("model.name=mlp", ["[model] does not go with [task]"]),
        ("run.batch_size=32", ["run.batch_size does not go with [task]", "task.batch_size"]),
        ("task.name=3", ["task.name = 3", "string"]),
    ],
)
def test_sections_that_a_task_replaces_are_refused(override, words):
    assert_mentions(misuse_message(filtering, override), *words)


def test_a_task_needs_a_name():
    message = misuse_message(make_config, {"task": {"width": 3}})
    assert "task.name is not set. Add name to [task]." in message


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "task.name=adaptive-filter",
            ["task.name = 'adaptive-filter'", "Did you mean 'adaptive-filtering'?"],
        ),
        (
            "task.widht=3",
            [
                "task.widht is not an option of adaptive-filtering",
                "Did you mean 'width'?",
                "flip_at",
            ],
        ),
        ("task.clients=3", ["task.clients is set", "graph"]),
        ("task.dtype=float32", ["task.dtype is not an option"]),
        ("task.width=2.5", ["task.width = 2.5", "integer"]),
        ("task.exact=1", ["task.exact = 1", "boolean"]),
        ("task.variances=[1, 'x', 2]", ["task.variances = "]),
        ("task.variances=[1, 2]", ["[task]: variances has shape (2,)", "(3,)"]),
        ("task.width=0", ["[task]: width is 0"]),
        ("task.flip_at=-1", ["[task]: flip_at is -1"]),
    ],
)
def test_options_are_checked_by_name_and_type(override, words):
    assert_mentions(misuse_message(build, filtering(override)), *words)


def test_there_must_be_a_client_for_each_anchor():
    message = misuse_message(build, make_config(LOCALIZATION, ["graph.clients=4"]))
    assert "localization has 3 clients, the graph has 4" in message
    assert "graph.clients = 3" in message


def test_as_dict_omits_what_a_task_replaces_and_round_trips():
    config = filtering()
    plain = config.as_dict()
    assert set(plain) == {"task", "graph", "algorithm", "run"}
    assert "batch_size" not in plain["run"]
    assert make_config(plain).as_dict() == plain
    assert with_keys(config, "run", seed=3).task == config.task
    assert fingerprint(config) == fingerprint(make_config(plain))
    assert fingerprint(config) != fingerprint(filtering("task.seed=5"))
    assert config.task_name == "adaptive-filtering"


def test_a_run_leaves_deviations_and_no_partition(tmp_path):
    outcome = run(filtering(), tmp_path / "out")
    assert not (tmp_path / "out" / "partition.json").exists()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["accuracy"] is None
    assert summary["msd"] == outcome.history[-1].msd > 0
    assert [record.step for record in outcome.history] == [0, 3, 6, 9, 12]
    again = run(outcome.folder.read_config(), tmp_path / "again")
    assert drawn(again.history) == drawn(outcome.history)


def test_a_stopped_run_resumes_to_the_same_bits(tmp_path):
    whole = run(filtering(), tmp_path / "whole")
    stop = ProgressListener(
        on_step=lambda simulation: simulation.t == 7 and signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(Interrupted, match="Stopped after iteration 7"):
        run(filtering(), tmp_path / "stopped", listener=stop)
    resumed = run(filtering(), tmp_path / "stopped", resume=True)
    assert drawn(resumed.history) == drawn(whole.history)
    for name, tensor in load_file(max(whole.folder.checkpoints.iterdir())).items():
        assert torch.equal(load_file(max(resumed.folder.checkpoints.iterdir()))[name], tensor)


def test_a_grid_and_its_page_are_in_decibels(tmp_path):
    axis = Axis.parse("algorithm=dsgt,dp-dsgt+inject=every")
    made = grid(filtering(), [axis], tmp_path / "c", seeds=2)
    first, other = made.settings
    levels = []
    for setting in made.settings:
        summaries = [
            json.loads((tmp_path / "c" / f"{setting.label}-seed{s}" / "summary.json").read_text())
            for s in (0, 1)
        ]
        level = [10 * math.log10(summary["msd"]) for summary in summaries]
        assert setting.score.mean == pytest.approx(statistics.fmean(level))
        assert setting.score.deviation == pytest.approx(statistics.stdev(level))
        levels.append(level)
    assert made.difference(first, made.measure) is None
    apart = [b - a for a, b in zip(*levels, strict=True)]
    difference = made.difference(other, made.measure)
    assert difference.mean == pytest.approx(statistics.fmean(apart))
    assert made.best.mean == min(first.mean, other.mean)
    stored = json.loads((tmp_path / "c" / "grid.json").read_text())
    assert stored["settings"][0]["measures"]["msd_db"]["mean"] == first.score.mean
    assert (stored["metric"], stored["judged_on"]) == ("msd", "the task's own evaluation")
    columns = [column.header for column in settings_table(made).columns]
    assert columns == ["algorithm", "MSD (dB)", "difference", "loss", "sent"]
    page = write_grid_report(made, tmp_path / "report.html").read_text()
    assert "Mean-square deviation" in page
    assert "MSD (dB)" in page
    assert f"{first.score.mean:.1f} ± " in page
    assert "Accuracy" not in page
    one = write_report(
        [tmp_path / "c" / "dsgt-seed0"], tmp_path / "one.html", title="A run"
    ).read_text()
    assert f"{levels[0][0]:.1f} dB" in one
