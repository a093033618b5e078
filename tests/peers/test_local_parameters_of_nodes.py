"""Nodes have the local parameters that the simulator has, and store them."""

import io
import json

import pytest
import torch
from federations import (
    PRIVATE,
    federation,
    models,
    plan,
    relative_distance,
    run_in_turn,
    simulated,
)
from safetensors.torch import load_file
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core.errors import Misuse
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.node import Node, NodeOptions
from tacit.peer.node.saved_node import load_node

MODEL = {"name": "mlp", "hidden": [16], "local": ["3"], "local_lr": 0.1}
PLANS = {
    "lppa": plan({"name": "lppa", "lr": 0.05, "fresh": True}, model=MODEL, clients=3),
    "dsgt, local steps": plan(
        {"name": "dsgt", "lr": 0.05, "local_steps": 2}, model=MODEL, clients=3
    ),
    "private-sgd": plan(
        {**PRIVATE, "local_steps": 2},
        privacy={"epsilon": 50.0, "delta": 0.1, "unit": "client", "samples": 120},
        model=MODEL,
        clients=3,
    ),
}


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    base = tmp_path_factory.mktemp("local")
    made = {
        label: federation(base / f"f{number}", config, 3)
        for number, (label, config) in enumerate(PLANS.items())
    }
    run_in_turn([home.path for home in made.values()], [f"n{i}" for i in range(3)], seconds=120)
    return made


@pytest.mark.parametrize("label", PLANS)
def test_the_models_are_those_of_the_simulator(homes, label):
    found, expected = models(homes[label]), simulated(homes[label])
    assert found.shape == (3, 16 * 784 + 16 + 170)
    assert relative_distance(found, expected) < 1e-6
    assert not torch.equal(found[0, -170:], found[1, -170:])


def test_a_node_continues_with_its_local_parameters(homes):
    home = homes["lppa"]
    folder = home.node("n0")
    stored = load_file(sorted((folder.run / "checkpoints").glob("*step*.safetensors"))[-1])
    assert stored["local parameters"].shape == (1, 170)
    node = Node(folder, NodeOptions(), EventLog(io.StringIO(), "n0"))
    assert node.personal is None
    node._resume(node._newest)
    assert torch.equal(node.personal, stored["local parameters"])
    assert torch.equal(node._whole_model[0], models(home)[0])


def test_a_node_exports_its_own_model(homes, tmp_path):
    home, path = homes["lppa"], tmp_path / "model"
    words = ["export", str(home.node("n1").path), "--format", "torch", "--out", str(path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "model.json").read_text())["client"] == "n1"
    refused = CliRunner().invoke(app, [*words, "--client", "average"])
    assert isinstance(refused.exception, Misuse)
    saved = load_node(home.node("n1").path, ())
    module = saved.module("n1")
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert torch.equal(theta, models(home)[1])
    module.load_state_dict(torch.load(path, weights_only=True))


def test_a_node_that_has_not_finished_has_no_model(tmp_path):
    home = federation(tmp_path / "new", PLANS["lppa"], 3)
    with pytest.raises(Misuse, match="no final model"):
        load_node(home.node("n0").path, ())
