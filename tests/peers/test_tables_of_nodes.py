"""A federation that trains from CSV files gives the models of a simulation of the same files."""

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from chaos import ForkedFederation, announce, until_step
from federations import (
    federation,
    free_ports,
    log_of,
    models,
    relative_distance,
    run_in_turn,
)

from tacit.cli.federation_tables import describe
from tacit.config.build import build
from tacit.config.loading import load_config, make_config, with_keys
from tacit.core.errors import Misuse
from tacit.engines.simulation import Simulation
from tacit.peer.federation.audited import AuditedFederation, stand_in_task
from tacit.peer.federation.operator import add
from tacit.peer.node.allowed_code import check_allowed
from tacit.peer.node.local_data import load_local_data
from tacit.peer.node.node import NodeOptions
from tacit.peer.node.saved_node import load_node

NAMES = ["n0", "n1", "n2", "n3"]
CONFIG = """
[data]
files = "sites/{client}.csv"
label = "outcome"
classes = ["well", "ill"]

[data.schema]
age = "number"
"blood pressure" = "number"
ward = ["north", "south, east"]
score = { mean = 5, std = 2 }

[model]
name = "mlp"
hidden = [6]

[graph]
kind = "ring"

[algorithm]
name = "dsgt"
lr = 0.1

[run]
rounds = 2
iterations_per_round = 5
batch_size = 8
seed = 3
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A configuration, and a table of each site with missing values and further columns."""
    base = tmp_path_factory.mktemp("tables")
    (base / "sites").mkdir()
    (base / "clinic.toml").write_text(CONFIG, encoding="utf-8-sig")
    rng = np.random.default_rng(0)
    for number, name in enumerate(NAMES):
        with (base / "sites" / f"{name}.csv").open("w", newline="", encoding="utf-8-sig") as file:
            table = csv.writer(file)
            table.writerow(["id", "age", "ward", "blood pressure", "score", "outcome"])
            for row in range(40 + 5 * number):
                age = "" if rng.random() < 0.1 else f"{rng.normal(50 + 9 * number, 9):.1f}"
                ward = rng.choice(["north", "south, east", ""])
                ill = rng.choice(["well", "ill"])
                values = [age, ward, f"{rng.normal(80, 7):.0f}", f"{rng.normal(5, 2):.2f}", ill]
                table.writerow([f"{name}-{row}", *values])
    return base


@pytest.fixture(scope="module")
def done(base):
    """The federation after its run."""
    home = federation(base / "f", load_config(base / "clinic.toml"), clients=len(NAMES))
    options = NodeOptions(data=str(base / "sites"))
    run_in_turn([home.path], NAMES, seconds=120, options=options)
    return home


def test_nodes_and_the_simulator_train_the_same(base, done):
    experiment = build(load_config(base / "clinic.toml"))
    assert experiment.task.names == tuple(NAMES)
    simulation = Simulation(replace(experiment.setting, gradients="looped"))
    simulation.start()
    while simulation.t < experiment.steps:
        simulation.step()
    assert relative_distance(models(done), simulation.state.theta) < 1e-6


def test_all_nodes_learn_the_exact_totals_of_the_simulation(base, done):
    found = [json.loads((done.node(name).run / "columns.json").read_text()) for name in NAMES]
    assert len({tuple(one["sums"]) for one in found}) == 1
    assert len({one["data"] for one in found}) == len(NAMES)
    spec_rows = []
    for position, name in enumerate(NAMES):
        place = (done.manifest().config, len(NAMES), position, position, name)
        spec_rows.append(load_local_data(*place, str(base / "sites")).rows)
    total = sum((one.sums() for one in spec_rows[1:]), start=spec_rows[0].sums())
    assert [str(value) for value in total.values] == found[0]["sums"]
    (told,) = (line for line in log_of(done, "n0") if line["event"] == "columns standardised")
    assert "sums of squares of 2 columns" in told["by"]


def test_nodes_keep_how_rows_become_inputs(base, done):
    """With the totals of all members, and the names of the classes."""
    dataset = build(load_config(base / "clinic.toml")).dataset
    for name in NAMES:
        stored = json.loads((done.node(name).run / "model.json").read_text())
        assert stored["preprocessing"] == dataset.preprocessing
        assert stored["class_names"] == list(dataset.class_names)


def test_nodes_predict_numbers_as_the_simulator_does(base, tmp_path):
    """The target is standardised by the exact totals of all, which no node has alone."""
    text = CONFIG.replace('label = "outcome"', 'label = "score"\ntarget = "number"')
    text = text.replace('classes = ["well", "ill"]\n', "")
    text = text.replace("score = { mean = 5, std = 2 }\n", "")
    (tmp_path / "clinic.toml").write_text(text.replace('"sites/', f'"{base}/sites/'))
    config = load_config(tmp_path / "clinic.toml")
    experiment = build(config)
    home = federation(tmp_path / "f", config, clients=len(NAMES))
    run_in_turn([home.path], NAMES, seconds=120, options=NodeOptions(data=str(base / "sites")))
    simulation = Simulation(replace(experiment.setting, gradients="looped"))
    simulation.start()
    while simulation.t < experiment.steps:
        simulation.step()
    assert relative_distance(models(home), simulation.state.theta) < 1e-6
    stored = json.loads((home.node("n1").run / "model.json").read_text())
    assert stored["preprocessing"] == experiment.dataset.preprocessing
    assert stored["outputs"] is None
    summary = json.loads((home.node("n1").run / "summary.json").read_text())
    x, y = experiment.dataset.client_tests[1]
    module = load_node(home.node("n1").path, []).module(0)
    error = (module(x)[:, 0] - y).square().mean().sqrt().item()
    assert summary["metrics"]["rmse"] == pytest.approx(error, rel=1e-5)
    assert summary["metrics"]["baseline-rmse"] == pytest.approx(y.std(0, False).item(), rel=1e-5)
    # An audit of the federation has random numbers in place of its targets.
    assert stand_in_task(home.manifest()).parameters == models(home).shape[1]


def test_restarted_nodes_scale_as_before(base, done):
    """A node that resumes does not ask the others for sums: they are not waiting for it."""
    before = models(done)
    run_in_turn([done.path], NAMES, seconds=60, options=NodeOptions(data=str(base / "sites")))
    assert torch.equal(models(done), before)
    events = [line["event"] for line in log_of(done, "n1")]
    assert events.count("columns standardised") == 2
    assert "resumed" in events


def test_a_new_member_scales_as_the_others(base, done, tmp_path):
    """The totals of the first roster are passed on; the new member's rows do not change them."""
    sites = tmp_path / "sites"
    shutil.copytree(base / "sites", sites)
    shutil.copy(sites / "n0.csv", sites / "n4.csv")
    config = with_keys(load_config(base / "clinic.toml"), "run", rounds=40)
    home = federation(tmp_path / "f", config, clients=4)
    with ForkedFederation(home, save_seconds=0.5, data=str(sites)) as local:
        until_step(home, 10, NAMES)
        before = home.manifest()
        add(home.path, "n4", f"127.0.0.1:{free_ports(1)[0]}")
        announce(home, before)
        local.start("n4")
        assert local.wait(120), [(node.name, node.last_error()) for node in local.failed()]
    paths = [home.node(member.name).run / "columns.json" for member in home.members]
    assert len(paths) == 5
    totals = {tuple(json.loads(path.read_text())["sums"]) for path in paths}
    first = json.loads((done.node("n0").run / "columns.json").read_text())
    assert totals == {tuple(first["sums"])}


def test_the_manifest_has_no_path_of_the_operator(base, done):
    text = (done.path / "federation.toml").read_text()
    assert str(base) not in text
    assert 'files = "{client}.csv"' in text
    assert "all clients learn these totals" in describe(done.path)[1]["disclosure"]


def test_an_audit_of_the_federation_says_what_was_shared(done):
    subject = AuditedFederation.load(done.path).subject()
    assert subject.experiment.setting.task.names == tuple(NAMES)
    assert "all clients learn these totals" in subject.experiment.task.disclosure


def test_a_node_reads_its_rows_of_a_common_table(base, tmp_path):
    lines = ["site,age,outcome"]
    lines += [f"{name},{20 + row},{row % 2}" for row in range(20) for name in NAMES]
    (tmp_path / "all.csv").write_text("\n".join(lines))
    values = load_config(base / "clinic.toml").as_dict()
    values["data"] = {
        "file": "all.csv", "client": "site", "label": "outcome", "classes": [0, 1],
        "schema": {"age": {"mean": 30, "std": 10}},
    }  # fmt: skip
    place = (make_config(values), len(NAMES), 1, 1, "n1")
    for data in (tmp_path, tmp_path / "all.csv"):
        local = load_local_data(*place, str(data))
        assert local.rows is None
        assert local.task.parts.sizes.tolist() == [16]
    with pytest.raises(Misuse, match="no row belongs to n9"):
        load_local_data(make_config(values), 5, 4, 4, "n9", str(tmp_path))


@pytest.mark.parametrize("files", ["../{client}.csv", "/etc/{client}.csv"])
def test_a_manifest_does_not_lead_out_of_the_folder(base, files):
    config = with_keys(load_config(base / "clinic.toml"), "data", files=files)
    with pytest.raises(Misuse, match="not below --data"):
        load_local_data(config, 4, 0, 0, "n0", str(base / "sites"))
    config = with_keys(load_config(base / "clinic.toml"), "data", files="{client}.csv", test=files)
    with pytest.raises(Misuse, match="not below --data"):
        load_local_data(config, 4, 0, 0, "n0", str(base / "sites"))


def records(client):
    return [{"age": float(k), "outcome": k % 2} for k in range(20)]


def test_a_function_needs_permission(base):
    values = load_config(base / "clinic.toml").as_dict()
    values["data"] = {
        "function": f"{__name__}:records", "label": "outcome", "classes": [0, 1],
        "schema": {"age": "number"},
    }  # fmt: skip
    config = make_config(values)
    with pytest.raises(Misuse, match=f"--allow-code {__name__}"):
        check_allowed(config, ())
    check_allowed(config, (__name__,))
    local = load_local_data(config, 4, 0, 0, "n0", None)
    assert local.rows is not None
    assert torch.isfinite(local.task.parts.arrays[0]).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": None}, ["[data.schema] is not set", "age ="]),
        ({"classes": None}, ["classes of the label 'outcome' are not set"]),
        ({"label": None}, ["need shape"]),
    ],
)
def test_nodes_need_a_declared_schema(base, tmp_path, changes, words):
    values = load_config(base / "clinic.toml").as_dict()
    data = values["data"] | changes
    values["data"] = {key: value for key, value in data.items() if value is not None}
    with pytest.raises(Misuse) as caught:
        federation(tmp_path / "f", make_config(values), clients=4)
    for word in words:
        assert word in str(caught.value)


def test_directed_graphs_and_guarantees_need_public_constants(base, tmp_path):
    values = load_config(base / "clinic.toml").as_dict()
    directed = values | {
        "graph": {"kind": "directed-ring", "mixing": "sinkhorn"},
    }
    with pytest.raises(Misuse, match="a directed graph has none"):
        federation(tmp_path / "f", make_config(directed), clients=4)
    private = values | {
        "algorithm": {"name": "private-sgd", "lr": 0.1},
        "privacy": {"epsilon": 8.0, "delta": 1e-4, "samples": 150},
    }
    with pytest.raises(Misuse, match="does not cover what clients share"):
        federation(tmp_path / "f", make_config(private), clients=4)
