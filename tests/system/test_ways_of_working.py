"""Three users from their own data to a model and a report: a paper, a hospital, ten minutes."""

import csv
import json
import random
import re
import socket
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import tacit as library
from support.misuse import assert_mentions

ROOT = Path(__file__).parents[2]
SITES = ("bern", "oslo", "porto")


@pytest.fixture
def sites(tmp_path):
    """A table per clinic, with values missing: older patients and those of ward A are often ill."""
    (tmp_path / "sites").mkdir()
    source = random.Random(7)
    for shift, name in enumerate(SITES):
        with (tmp_path / "sites" / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["id", "age", "ward", "pressure", "outcome"])
            for number in range(60):
                age, ward = source.gauss(50 + 3 * shift, 12), source.choice("ABC")
                risk = (age - 50) / 12 + (1.5 if ward == "A" else -0.75) + source.gauss(0, 0.4)
                row = [f"{age:.1f}", ward, f"{source.gauss(125, 12):.0f}"]
                if number % 10 == 3:
                    row[(number // 10) % 3] = ""
                table.writerow([number, *row, "ill" if risk > 0 else "well"])
    return tmp_path / "sites"


def write_paper(folder, algorithms, seeds=3):
    """Simulate each algorithm with each seed on the tables, with a model of one's own."""
    dataset = library.data.from_tables(
        str(folder / "sites" / "{client}.csv"), label="outcome", ignore=["id"], test=0.3
    )
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    task = library.Task(model, dataset, batch_size=8, init="same")
    graph = library.Topology.ring(3).mixing("metropolis")
    folders = []
    for name, algorithm in algorithms.items():
        for seed in range(seeds):
            found = library.run(
                task, algorithm, graph, steps=40, seed=seed, record_every=20, metrics=["auc", "f1"]
            )
            folders.append(found.save(folder / "runs" / f"{name}-{seed}"))
    return dataset, model, found, folders


def test_a_researcher_writes_a_paper(tacit_here, sites, tmp_path):
    algorithms = {"dsgt": library.DSGT(lr=0.3), "lppa": library.LPPA(lr=0.3, fresh=True)}
    dataset, model, last, runs = write_paper(tmp_path, algorithms)
    options = ("--out", "paper.html", "--csv", "--latex", "--figures", "pdf")
    shown = tacit_here("report", *runs, *options)
    assert shown.code == 0, shown.err
    assert_mentions(shown.out, "Report: paper.html", "paper-differences.csv", "paper-table.tex")

    with (tmp_path / "paper-differences.csv").open() as file:
        rows = {row["measure"]: row for row in csv.DictReader(file)}
    difference = rows["accuracy_mean"]
    assert (difference["runs"], difference["less"], difference["seeds"]) == ("lppa", "dsgt", "3")
    pairs = [
        library.load(runs[3 + seed]).history[-1].accuracy.mean
        - library.load(runs[seed]).history[-1].accuracy.mean
        for seed in range(3)
    ]
    assert float(difference["mean"]) == pytest.approx(sum(pairs) / 3, abs=1e-6)
    loss = rows["loss_mean"]
    assert float(loss["low"]) < float(loss["mean"]) < float(loss["high"])
    table = (tmp_path / "paper-table.tex").read_text()
    assert_mentions(table, r"\toprule", "dsgt", "lppa", r"\bottomrule")
    assert (tmp_path / "paper-figures" / "accuracy.pdf").read_bytes().startswith(b"%PDF")
    assert "paired" in (tmp_path / "paper.html").read_text()

    audit = library.audit(last, "curious(oslo)", victim="bern", attacks=False, iterations=4)
    assert str(audit.answer).startswith("Is it safe to take part? ")
    assert audit.answer.level == "leaks"

    assert tacit_here("export", runs[-1], "--out", "model.safetensors").code == 0
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    right = (model(dataset.test.x).argmax(1) == dataset.test.y).float().mean()
    average = library.load(runs[-1]).history[-1].accuracy.average_model
    assert 100 * float(right) == pytest.approx(average, abs=1e-3)
    assert average > 70


SECTIONS = """
[model]
name = "mlp"
hidden = [8]

[graph]
kind = "ring"

[algorithm]
name = "lppa"
lr = 0.5
fresh = true

[run]
rounds = 3
iterations_per_round = 15
batch_size = 8
metrics = ["auc", "f1"]
"""


def inputs_of(row, features):
    """A raw row of a table as inputs, as the facts of an exported model say."""
    for one in features:
        value = row[one["column"]]
        if "category" in one:
            yield float(value == one["category"])
        else:
            yield (float(value) - one["mean"]) / one["std"] if value else 0.0


def share_right(model, facts, table):
    """On which share of the raw rows of a CSV file a model is right."""
    with table.open() as file:
        rows = list(csv.DictReader(file))
    features, names = facts["preprocessing"]["features"], facts["class_names"]
    x = torch.tensor([list(inputs_of(row, features)) for row in rows], dtype=torch.float32)
    found = [names[k] for k in model(x).argmax(1)]
    return sum(one == row["outcome"] for one, row in zip(found, rows, strict=True)) / len(rows)


def free_ports(count):
    """Ports of this machine that nothing listens to."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def test_a_hospital_goes_from_tables_to_predictions(tacit, tacit_here, sites, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    tables = [sites / f"{name}.csv" for name in SITES]
    schema = tacit_here("data", "schema", *tables, "--label", "outcome", "--ignore", "id")
    assert schema.code == 0, schema.err
    text = schema.out.replace("[data]", '[data]\nfiles = "sites/{client}.csv"', 1) + SECTIONS
    (tmp_path / "clinic.toml").write_text(text)
    assert tomllib.loads(text)["data"]["schema"]["ward"] == ["A", "B", "C"]

    ran = tacit_here("run", "clinic.toml", "--out", "first")
    assert ran.code == 0, ran.err
    assert_mentions(ran.out, "accuracy", "majority baseline", "auc", "f1", *SITES)
    audited = tacit_here("audit", "first", "--victim", "oslo", "--no-attacks")
    assert audited.code == 0, audited.err
    assert_mentions(audited.out, "gradients of client oslo exactly", "curious(bern,porto)")
    assert tacit_here("report", "first", "--out", "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert_mentions(page, "Is it safe to take part?", "No: gradients leak exactly", "oslo", "AUC")
    assert str(tmp_path) not in page

    done = tacit_here("export", "first", "--format", "safetensors", "--out", "first.safetensors")
    assert done.code == 0, done.err
    facts = json.loads((tmp_path / "first.safetensors.json").read_text())
    module = library.load(tmp_path / "first").module("average")
    module.load_state_dict(load_file(tmp_path / "first.safetensors"))
    for table in tables:
        assert share_right(module, facts, table) > 0.7

    nodes = zip(SITES, free_ports(3), strict=True)
    created = tacit_here(
        "federation", "create", "clinic", "--config", "clinic.toml",
        "--nodes", ",".join(f"{name}=127.0.0.1:{port}" for name, port in nodes),
    )  # fmt: skip
    assert created.code == 0, created.err
    up = tacit("federation", "up", "clinic", "--data", "sites")
    assert up.code == 0, up.err
    assert_mentions(up.out, *SITES, "majority baseline", "Models: clinic/trial-1/nodes/*/run/")
    node = Path("clinic", "trial-1", "nodes", "porto")
    done = tacit_here("export", node, "--format", "onnx", "--out", "node.onnx")
    assert done.code == 0, done.err
    session = runtime.InferenceSession(tmp_path / "node.onnx", providers=["CPUExecutionProvider"])
    (only,) = session.get_inputs()
    simulated = facts["preprocessing"]["features"]
    facts = json.loads((tmp_path / "node.onnx.json").read_text())

    def predict(x):
        return session.run(None, {only.name: x.numpy()})[0]

    assert share_right(predict, facts, sites / "porto.csv") > 0.7
    # The nodes computed the means and deviations in a masked sum; they are those of the simulation.
    for ours, theirs in zip(facts["preprocessing"]["features"], simulated, strict=True):
        assert ours == pytest.approx(theirs)


def readme_commands():
    """The commands of the README's first blocks for the command line, as lists of words."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Command line")[2]
    lines = re.findall(r"^tacit [^\n#]*", "\n".join(re.findall(r"```bash.*?```", text, re.S)), re.M)
    return [re.findall(r'"[^"]*"|\S+', line)[1:] for line in lines]


def test_ten_minutes_with_the_first_commands(tacit_here, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    found = readme_commands()
    ran, audited, exported = ([word.strip('"') for word in words] for words in found[:3])
    assert [ran[0], audited[0], exported[0], found[3]] == ["run", "audit", "export", ["demo"]]

    shown = tacit_here(*ran, "--set", "data.limit_train=1000")
    assert shown.code == 0, shown.err
    assert_mentions(shown.out, "accuracy", "majority baseline", "Report: runs/first/report.html")
    assert "Not known: not audited" in (tmp_path / "runs" / "first" / "report.html").read_text()
    shown = tacit_here(*audited)
    assert shown.code == 0, shown.err
    assert_mentions(shown.out, "curious(1,4)", "EXPOSED", "Report: runs/first/report.html")
    shown = tacit_here("report", "runs/first")
    assert shown.code == 0, shown.err
    page = (tmp_path / "runs" / "first" / "report.html").read_text()
    assert_mentions(page, "Is it safe to take part?", "curious(1,4)", "Configuration")
    assert tacit_here(*exported).code == 0
    assert (tmp_path / "runs" / "model.safetensors").stat().st_size > 1000
