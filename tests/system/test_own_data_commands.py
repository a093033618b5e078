"""Own tables on the command line: run, resume, grid, audit and schemas."""

import json
import os
import random
import re

import pytest
import torch
from safetensors.torch import load_file

import tacit

CONFIG = """
[data]
files = "sites/{client}.csv"
label = "outcome"

[model]
name = "linear"

[graph]
kind = "ring"

[algorithm]
name = "dsgt"
lr = 0.1

[run]
rounds = 2
batch_size = 4
"""


@pytest.fixture
def clinics(tmp_path):
    """A configuration with a byte-order mark, and three tables beside it."""
    (tmp_path / "sites").mkdir()
    (tmp_path / "clinics.toml").write_text(CONFIG, encoding="utf-8-sig")
    rng = random.Random(0)
    for client in ("north", "south", "west"):
        lines = ["age,ward,outcome"]
        for row in range(20):
            age = "" if row == 3 else f"{rng.gauss(50, 9):.1f}"
            lines.append(f"{age},{rng.choice('AB')},{('well', 'ill')[row % 2]}")
        (tmp_path / "sites" / f"{client}.csv").write_text("\n".join(lines))
    return tmp_path


def test_from_tables_to_reports(tacit_here, clinics):
    config, out = clinics / "clinics.toml", clinics / "out"
    answer = tacit_here("run", config, "--out", out)
    assert answer.code == 0
    assert "3 clients, 3 inputs from 2 columns" in answer.err
    summary = json.loads((out / "summary.json").read_text())
    assert summary["names"] == ["north", "south", "west"]
    page = (out / "report.html").read_text()
    assert "sums of squares of 1 column" in page
    assert "Accuracy, own test sets" in page
    assert "<h3>Majority baseline, own test sets" not in page
    counts = json.loads((out / "partition.json").read_text())
    assert counts["classes"] == ["ill", "well"]

    audit = ("audit", out, "--victim", "south", "--no-attacks", "--iterations", "4")
    answer = tacit_here(*audit, "--out", clinics / "a")
    assert answer.code == 0
    assert "gradients of client south exactly" in answer.out
    assert "curious(north)" in answer.out
    found = json.loads((clinics / "a" / "audit.json").read_text())
    assert found["victims"] == [1]
    assert found["names"] == summary["names"]
    assert found["answer"]["reason"].startswith(
        "Client north can compute gradients of client south"
    )
    page = (clinics / "a" / "report.html").read_text()
    assert "Audit of dsgt on own data" in page
    assert "client north about client south" in page  # the heat map
    assert "curious(north) about client south" in page  # the timeline and the proofs
    assert ">west</text>" in page  # the graph
    assert "north%2Csouth" in page or "north,south" in page  # the edges as CSV
    words = json.dumps([found["answer"], found["summary"], found["remarks"], page])
    assert re.search(r"[Cc]lients? \d|curious\(\d|\bg\[\d", words) is None
    by_name = ("audit", out, "--adversary", "curious(west)", "--no-attacks", "--iterations", "2")
    assert tacit_here(*by_name, "--out", clinics / "b").code == 0
    assert any("all clients learn these totals" in remark for remark in found["remarks"])

    grid = ("grid", config, "--over", "algorithm=dsgt,lppa")
    assert tacit_here(*grid, "--out", clinics / "c").code == 0

    # What people share names no folder of this machine, and an exported model no client.
    export = ("export", out, "--client", "average", "--format", "safetensors")
    assert tacit_here(*export, "--out", clinics / "model.safetensors").code == 0
    facts = (clinics / "model.safetensors.json").read_text()
    pages = [clinics / folder / "report.html" for folder in ("out", "a", "c")]
    for text in (facts, *(page.read_text() for page in pages)):
        assert str(clinics) not in text
        assert "{client}.csv" in text
    assert not any(client in facts for client in summary["names"])


OWN_ROWS = """
import random

def records(client):
    rng = random.Random(client)
    return [{"age": rng.gauss(50, 9), "outcome": rng.choice("01")} for _ in range(30)]
"""


def grid_scores(folder):
    found = json.loads((folder / "grid.json").read_text())
    return {tuple(one["values"].values()): one["scores"] for one in found["settings"]}


def test_a_grid_over_keys_of_own_tables(tacit_here, clinics):
    # Names in the file are relative to the file, those on the command line to where it runs.
    words = [
        "grid", "clinics.toml", "--over", "data.files=sites/{client}.csv,{client}.csv",
        "--over", "data.test=0.1,0.3", "--metric", "auc", "--set", "run.rounds=1", "--out", "out",
    ]  # fmt: skip
    answer = tacit_here(*words)
    assert answer.code == 0, answer.err
    assert "files={client}.csv, test=0.1 cannot run" in answer.err
    assert "rows that no run has seen" in answer.out
    found = grid_scores(clinics / "out")
    assert [len(scores) for scores in found.values()] == [1, 1, 0, 0]
    assert tacit_here(*words, "--resume", "--json").code == 0
    assert grid_scores(clinics / "out") == found
    table = clinics / "sites" / "west.csv"
    table.write_text(table.read_text() + "\n44,A,ill")
    answer = tacit_here(*words, "--resume")
    assert answer.code == 2
    assert "the files that it names have changed" in answer.err


@pytest.mark.slow
def test_a_grid_over_clients_of_a_function_in_two_processes(tacit, clinics):
    (clinics / "own_rows.py").write_text(OWN_ROWS)
    files = 'files = "sites/{client}.csv"'
    text = (clinics / "clinics.toml").read_text(encoding="utf-8-sig")
    (clinics / "clinics.toml").write_text(text.replace(files, 'function = "own_rows:records"'))
    words = (
        "grid", "clinics.toml", "--over", "graph.clients=3,4", "--set", "run.rounds=1",
        "--metric", "auc",
    )  # fmt: skip
    path = os.pathsep.join([str(clinics), os.environ.get("PYTHONPATH", "")])
    for out, jobs in (("one", "1"), ("two", "2")):
        answer = tacit(*words, "--jobs", jobs, "--out", out, PYTHONPATH=path)
        assert answer.code == 0, answer.err
    assert grid_scores(clinics / "one") == grid_scores(clinics / "two")


def test_numbers_to_predict(tacit_here, clinics):
    """From a table to models in three formats, which predict in the unit of the target."""
    config, out = clinics / "clinics.toml", clinics / "out"
    rng = random.Random(1)
    for path in (clinics / "sites").iterdir():
        ages = [rng.gauss(50, 9) for _ in range(40)]
        lines = [f"{age:.1f},{300 + 2 * age + rng.gauss(0, 3):.1f}" for age in ages]
        path.write_text("\n".join(["age,stay", *lines]))
    stay = ("--set", "data.label=stay")
    answer = tacit_here("run", config, *stay, "--set", "data.target=regression", "--out", out)
    assert answer.code == 2
    assert '"number" for a regression' in answer.err
    target = (*stay, "--set", "data.target=number")
    assert tacit_here("run", config, *target, "--set", "run.rounds=8", "--out", out).code == 0
    summary = json.loads((out / "summary.json").read_text())
    error, baseline = (summary["metrics"][name]["mean"] for name in ("rmse", "baseline-rmse"))
    assert error < 0.5 * baseline
    assert "alerts" not in summary
    page = (out / "report.html").read_text()
    assert "RMSE of predicting the mean" in page
    assert "target stay (mean" in page

    dataset = tacit.data.from_tables(
        str(clinics / "sites/{client}.csv"), label="stay", target="number"
    )
    x, y = dataset.test.x, dataset.test.y
    run = tacit.load(out)
    expected = run.module("average")(x)[:, 0].detach()
    assert float((expected - y).square().mean().sqrt()) == pytest.approx(
        summary["metrics"]["rmse"]["average_model"], rel=1e-5
    )
    for form, suffix in (("torch", "pt"), ("safetensors", "safetensors"), ("onnx", "onnx")):
        file = clinics / f"model.{suffix}"
        export = ("export", out, "--client", "average", "--format", form, "--out", file)
        assert tacit_here(*export).code == 0
        assert json.loads(file.with_name(f"{file.name}.json").read_text())["classes"] is None
    for state in (torch.load(clinics / "model.pt"), load_file(clinics / "model.safetensors")):
        raw = x @ state["1.weight"].T + state["1.bias"]
        assert torch.allclose(state["2.mean"] + state["2.std"] * raw[:, 0], expected)
    session = pytest.importorskip("onnxruntime").InferenceSession(clinics / "model.onnx")
    (found,) = session.run(None, {"input": x.numpy()})
    assert torch.allclose(torch.from_numpy(found)[:, 0], expected)

    # A model that has not learned is told apart from one that has.
    bad = clinics / "bad"
    slow = ("--set", "run.rounds=1", "--set", "algorithm.lr=1e-6")
    answer = tacit_here("run", config, *target, *slow, "--out", bad)
    assert "does not beat predicting the mean" in answer.out + answer.err
    audit = ("audit", bad, "--victim", "south", "--iterations", "2", "--out", clinics / "a")
    answer = tacit_here(*audit, "--seconds", "1", "--restarts", "1")
    assert answer.code == 0
    printed = " ".join(answer.out.split())
    assert "inversion of" in printed
    assert "membership inference: it needs a model that classifies inputs" in printed


def test_a_changed_table_is_another_run(tacit_here, clinics):
    config, out = clinics / "clinics.toml", clinics / "out"
    assert tacit_here("run", config, "--out", out).code == 0
    table = clinics / "sites" / "west.csv"
    table.write_text(table.read_text() + "\n50,A,ill\n")
    answer = tacit_here("run", config, "--out", out, "--resume")
    assert answer.code == 2
    assert "another configuration" in answer.err


def test_a_schema_for_tables(tacit_here, clinics):
    answer = tacit_here("data", "schema", clinics / "sites" / "north.csv", "--label", "outcome")
    assert answer.out.splitlines()[-2:] == ['age = "number"', 'ward = ["A", "B"]']
    number = ("--label", "age", "--target", "number", "--ignore", "outcome")
    (clinics / "ages.csv").write_text("age,ward,outcome\n30,A,ill\n40,B,well\n")
    answer = tacit_here("data", "schema", clinics / "ages.csv", *number)
    assert answer.out.splitlines() == [
        "[data]", 'label = "age"', 'target = "number"', "", "[data.schema]", 'ward = ["A", "B"]'
    ]  # fmt: skip
    answer = tacit_here("data", "schema", clinics / "sites" / "north.csv", "--label", "outcom")
    assert answer.code == 2
    assert "Did you mean 'outcome'?" in answer.err
    (clinics / "well.csv").write_text("age,outcome\n30,well\n40,well\n")
    answer = tacit_here("data", "schema", clinics / "well.csv", "--label", "outcome")
    assert answer.code == 0
    assert 'classes = ["well"]' in answer.out
    assert "always 'well' here: add the classes that others have" in answer.err


def test_a_configuration_of_another_dialect(tacit_here, clinics):
    sites = clinics / "sites"
    lines = (sites / "west.csv").read_text().replace(",", ";").replace(".", ",")
    (sites / "west.csv").write_text(lines.replace("well", "gesund"), encoding="latin-1")
    config = clinics / "clinics.toml"
    answer = tacit_here("run", config, "--out", clinics / "out")
    assert answer.code == 2
    printed = " ".join(answer.err.split())
    assert "16 problems" in printed
    assert "column 'age': '45,3' is not a number (and in 1 more row)." in printed
    assert "and 6 more" in printed
    read = ("--set", "data.read.decimal=','", "--set", "data.files='sites/{client}.csv'")
    recode = ("--set", "data.recode={outcome={gesund='well'}}")
    assert tacit_here("run", config, *read, *recode, "--out", clinics / "out").code == 2
    for name in ("north", "south"):
        table = sites / f"{name}.csv"
        table.write_text(table.read_text().replace(",", ";").replace(".", ","))
    answer = tacit_here("run", config, *read, *recode, "--out", clinics / "out")
    assert answer.code == 0, answer.err
    assert "classes ill, well" in answer.err
    schema = ("data", "schema", sites / "west.csv", "--label", "outcome", "--read", "decimal=,")
    answer = tacit_here(*schema)
    assert answer.out.splitlines()[4:6] == ["[data.read]", 'decimal = ","']


def test_a_grid_chooses_on_rows_that_clients_hold_out(tacit_here, clinics):
    chosen = ("--over", "algorithm.lr=0.01,0.5", "--metric", "auc.mean")
    options = ("--set", "data.validation=0.25", "--set", "run.metrics=['auc']")
    answer = tacit_here("grid", clinics / "clinics.toml", *chosen, *options, "--out", "grid")
    assert answer.code == 0, answer.err
    assert "Best by auc.mean on validation samples: algorithm.lr=" in answer.out
