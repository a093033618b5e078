"""Own tables on the command line: run, resume, compare, audit and schemas."""

import csv
import json
import os
import random

import pytest
import torch

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
    assert "0 north, 1 south, 2 west" in answer.out
    found = json.loads((clinics / "a" / "audit.json").read_text())
    assert found["victims"] == [1]
    assert found["answer"]["limits"][0] == "Clients: 0 north, 1 south, 2 west."
    assert "Audit of dsgt on own data" in (clinics / "a" / "report.html").read_text()
    assert any("all clients learn these totals" in remark for remark in found["remarks"])

    compare = ("compare", config, "--algorithms", "dsgt,lppa", "--seeds", "1")
    assert tacit_here(*compare, "--out", clinics / "c").code == 0

    # What people share names no folder of this machine, and an exported model no client.
    export = ("export", out, "--client", "average", "--format", "safetensors")
    assert tacit_here(*export, "--out", clinics / "model.safetensors").code == 0
    facts = (clinics / "model.safetensors.json").read_text()
    pages = [clinics / folder / "report.html" for folder in ("out", "a", "c")]
    for text in (facts, *(page.read_text() for page in pages)):
        assert str(clinics) not in text
        assert "{client}.csv" in text
    assert not any(client in facts for client in summary["names"])


def test_an_export_says_how_rows_become_inputs(tacit_here, clinics):
    config, out, model = clinics / "clinics.toml", clinics / "out", clinics / "m.safetensors"
    assert tacit_here("run", config, "--out", out).code == 0
    assert tacit_here("export", out, "--client", "south", "--out", model).code == 0
    facts = json.loads((clinics / "m.safetensors.json").read_text())
    features = facts["preprocessing"]["features"]
    assert [(one["column"], one.get("category")) for one in features] == [
        ("age", None),
        ("ward", "A"),
        ("ward", "B"),
    ]

    def inputs(row):
        for one in features:
            value = row[one["column"]]
            if "category" in one:
                yield float(value == one["category"])
            else:
                yield (float(value) - one["mean"]) / one["std"] if value else 0.0

    with open(clinics / "sites" / "south.csv") as file:
        rows = sorted(list(inputs(row)) for row in csv.DictReader(file))
    dataset = tacit.data.from_tables(str(clinics / "sites/{client}.csv"), label="outcome")
    south = dataset.clients.index("south")
    x = torch.cat([dataset.client_parts[south][0], dataset.client_tests[south][0]])
    assert sorted(x.tolist()) == [pytest.approx(row, abs=1e-6) for row in rows]


OWN_ROWS = """
import random

def records(client):
    rng = random.Random(client)
    return [{"age": rng.gauss(50, 9), "outcome": rng.choice("01")} for _ in range(30)]
"""


def sweep_table(folder):
    found = json.loads((folder / "sweep.json").read_text())
    return {tuple(cell["settings"].values()): cell["scores"] for cell in found["cells"]}


def test_a_sweep_over_keys_of_own_tables(tacit_here, clinics):
    # Names in the file are relative to the file, those on the command line to where it runs.
    words = [
        "sweep", "clinics.toml", "--over", "data.files=sites/{client}.csv,{client}.csv",
        "--over", "data.test=0.1,0.3", "--metric", "auc", "--set", "run.rounds=1", "--out", "out",
    ]  # fmt: skip
    answer = tacit_here(*words)
    assert answer.code == 0, answer.err
    assert "data.files={client}.csv, data.test=0.1 cannot run" in answer.err
    assert "rows that no run has seen" in answer.out
    found = sweep_table(clinics / "out")
    assert [len(scores) for scores in found.values()] == [1, 1, 0, 0]
    assert tacit_here(*words, "--resume", "--json").code == 0
    assert sweep_table(clinics / "out") == found
    table = clinics / "sites" / "west.csv"
    table.write_text(table.read_text() + "\n44,A,ill")
    answer = tacit_here(*words, "--resume")
    assert answer.code == 2
    assert "the files that it names have changed" in answer.err


@pytest.mark.slow
def test_a_sweep_over_clients_of_a_function_in_two_processes(tacit, clinics):
    (clinics / "own_rows.py").write_text(OWN_ROWS)
    files = 'files = "sites/{client}.csv"'
    text = (clinics / "clinics.toml").read_text(encoding="utf-8-sig")
    (clinics / "clinics.toml").write_text(text.replace(files, 'function = "own_rows:records"'))
    words = (
        "sweep", "clinics.toml", "--over", "graph.clients=3,4", "--set", "run.rounds=1",
        "--metric", "auc",
    )  # fmt: skip
    path = os.pathsep.join([str(clinics), os.environ.get("PYTHONPATH", "")])
    for out, jobs in (("one", "1"), ("two", "2")):
        answer = tacit(*words, "--jobs", jobs, "--out", out, PYTHONPATH=path)
        assert answer.code == 0, answer.err
    assert sweep_table(clinics / "one") == sweep_table(clinics / "two")


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
    answer = tacit_here("data", "schema", clinics / "sites" / "north.csv", "--label", "outcom")
    assert answer.code == 2
    assert "Did you mean 'outcome'?" in answer.err


def test_a_sweep_chooses_on_rows_that_clients_hold_out(tacit_here, clinics):
    chosen = ("--over", "algorithm.lr=0.01,0.5", "--metric", "auc.mean")
    options = ("--set", "data.validation=0.25", "--set", "run.metrics=['auc']")
    answer = tacit_here("sweep", clinics / "clinics.toml", *chosen, *options, "--out", "grid")
    assert answer.code == 0, answer.err
    assert "Best by auc.mean on validation samples: algorithm.lr=" in answer.out
