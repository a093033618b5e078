"""`tacit export`: the file, loaded by its own reader, computes what the run's model does."""

import json
import os
import shutil
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import tacit
from tacit.cli.app import app

CONFIG = """
[data]
name = "mnist-mini"
limit_train = 120
limit_test = 40
[graph]
clients = 3
[algorithm]
name = "dsgt"
lr = 0.05
[run]
rounds = 1
batch_size = 10
"""
OWN_MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(784, 784, bias=False).requires_grad_(False)
        self.first = nn.Linear(784, 12)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(12, 10)
        self.register_buffer("scale", torch.tensor(0.5))
    def forward(self, x):
        x = x.flatten(1) + self.scale * self.embed(x.flatten(1))
        return self.last(self.drop(torch.relu(self.first(x))))
"""


def call(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("export")
    (base / "config.toml").write_text(CONFIG)
    out = base / "run"
    assert call("run", base / "config.toml", "--out", out).exit_code == 0
    return out


@pytest.fixture(scope="module")
def inputs():
    return torch.rand(7, 1, 28, 28, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("client", ["0", "2", "average"])
def test_torch_and_safetensors_hold_the_state_dict(folder, tmp_path, client, inputs):
    chosen = client if client == "average" else int(client)
    module = tacit.load(folder).module(chosen)
    expected = module.state_dict()
    done = call("export", folder, "--client", client, "--format", "torch", "--out", tmp_path / "a")
    assert "Model: " in done.output
    loaded = torch.load(tmp_path / "a", weights_only=True)
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    call("export", folder, "--client", client, "--out", tmp_path / "b.safetensors")
    again = load_file(tmp_path / "b.safetensors")
    assert all(torch.equal(again[name], expected[name]) for name in expected)
    theta = tacit.load(folder).theta
    theta = theta.mean(0) if client == "average" else theta[chosen]
    assert torch.equal(torch.cat([x.reshape(-1) for x in loaded.values()]), theta)
    with safe_open(tmp_path / "b.safetensors", "pt") as file:
        facts = json.loads(file.metadata()["tacit"])
    assert facts == json.loads((tmp_path / "b.safetensors.json").read_text())
    assert facts["client"] == chosen
    assert facts["classes"] == 10
    assert facts["class_names"] == [str(digit) for digit in range(10)]
    assert facts["inputs"] == [{"name": "input", "shape": [1, 28, 28], "dtype": "float32"}]


def run_onnx(path, *arrays):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    feeds = {name: array.numpy() for name, array in zip(names, arrays, strict=True)}
    return session, torch.from_numpy(session.run(None, feeds)[0])


@pytest.mark.parametrize("samples", [1, 7])
def test_onnx_gives_the_same_outputs_for_any_number_of_samples(folder, tmp_path, inputs, samples):
    path = tmp_path / "model.onnx"
    call("export", folder, "--client", "1", "--format", "onnx", "--out", path)
    session, output = run_onnx(path, inputs[:samples])
    module = tacit.load(folder).module(1)
    torch.testing.assert_close(output, module(inputs[:samples]), rtol=1e-4, atol=1e-5)
    facts = json.loads(session.get_modelmeta().custom_metadata_map["tacit"])
    assert facts["class_names"][3] == "3"
    assert facts["data_section"]["name"] == "mnist-mini"


def test_an_own_model_with_frozen_parameters_and_buffers(tmp_path, monkeypatch, inputs):
    (tmp_path / "own_export_net.py").write_text(OWN_MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = tmp_path / "config.toml"
    config.write_text(CONFIG + '[model]\nname = "own_export_net:Net"\ninit = "module"\n')
    folder = tmp_path / "run"
    assert call("run", config, "--out", folder).exit_code == 0
    net = sys.modules["own_export_net"].Net()
    for form, load in (
        ("torch", lambda path: torch.load(path, weights_only=True)),
        ("safetensors", load_file),
    ):
        path = tmp_path / form
        call("export", folder, "--client", "0", "--format", form, "--out", path)
        net.load_state_dict(load(path))
        assert torch.equal(net.eval()(inputs), tacit.load(folder).module(0)(inputs))
    path = tmp_path / "model.onnx"
    call("export", folder, "--client", "0", "--format", "onnx", "--out", path)
    torch.testing.assert_close(run_onnx(path, inputs)[1], net(inputs), rtol=1e-4, atol=1e-5)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.dense = nn.Embedding(11, 6), nn.Linear(6 + 2, 3)

    def forward(self, tokens, extra):
        return self.dense(torch.cat([self.table(tokens).mean(1), extra], 1))


def test_a_run_from_python_with_named_inputs(tmp_path):
    from tacit.experiment.export import write_onnx

    parts = [
        {
            "tokens": torch.randint(11, (8, 5)),
            "extra": torch.randn(8, 2),
            "labels": torch.randint(3, (8,)),
        }
        for _ in range(3)
    ]
    task = tacit.Task(TwoInputs(), parts, batch_size=4)
    graph = tacit.Topology.ring(3).mixing("metropolis")
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=3)
    folder = run.save(tmp_path / "run")
    done = call("export", folder, "--format", "torch", "--out", tmp_path / "model.pt")
    assert done.exit_code == 0
    module = TwoInputs()
    module.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    tokens, extra = torch.randint(11, (6, 5)), torch.randn(6, 2)
    torch.testing.assert_close(module(tokens, extra), run.module()(tokens, extra))
    write_onnx(run.module(), tacit.load(folder).layout, {}, tmp_path / "model.onnx")
    session, output = run_onnx(tmp_path / "model.onnx", tokens, extra)
    assert [one.name for one in session.get_inputs()] == ["tokens", "extra"]
    torch.testing.assert_close(output, module(tokens, extra), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--client", "9"], "number from 0 to 2"),
        (["--client", "oslo"], "number from 0 to 2"),
        (["--format", "pickle"], "pickle"),
        (["--out", "/dev/null/model"], "Cannot write"),
    ],
)
def test_bad_input_is_said(folder, words, message):
    done = CliRunner().invoke(app, ["export", str(folder), *words])
    assert done.exit_code != 0
    assert message in done.output + str(done.exception)


def test_clients_with_names_are_found_by_them(folder, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    summary, run = json.loads((copy / "summary.json").read_text()), tacit.load(folder)
    names = {"names": ["average", "bern", "1"]}
    (copy / "summary.json").write_text(json.dumps(summary | names))
    # The mean of all models is not the model of a client with that name.
    for client, whose in (("bern", 1), ("1", 2), ("average", "average")):
        call("export", copy, "--client", client, "--format", "torch", "--out", tmp_path / "m")
        found, expected = torch.load(tmp_path / "m", weights_only=True), run.state_dict(whose)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    # "0" could be a name or a position.
    for wrong in ("rome", "0"):
        with pytest.raises(tacit.Misuse, match="one of average, bern, 1, a number"):
            call("export", copy, "--client", wrong)


def test_a_folder_without_a_run_is_said(tmp_path):
    with pytest.raises(tacit.Misuse, match="is not a run folder"):
        call("export", tmp_path)


def test_a_run_from_python_as_onnx_says_what_to_do(tmp_path):
    parts = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(3)]
    task = tacit.Task(nn.Linear(4, 3), parts)
    graph = tacit.Topology.ring(3).mixing("metropolis")
    folder = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=1).save(tmp_path / "run")
    with pytest.raises(tacit.Misuse, match=r"made in Python.*--module package\.module:MyModel"):
        call("export", folder, "--format", "onnx")
    wrong = {
        "nowhere:Net": "cannot be imported",
        "json:loads": "cannot be made",
        "torch.nn:Tanh": "does not fit a Tanh",
    }
    for name, message in wrong.items():
        with pytest.raises(tacit.Misuse, match=message):
            call("export", folder, "--format", "onnx", "--module", name)
    assert not list(folder.glob("*.onnx*"))
    assert not [name for name in os.listdir(folder) if name.endswith(".part")]


SAVED_MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.embed = nn.Linear(6, 4, bias=False)
        self.back = nn.Linear(4, 6, bias=False)
        self.back.weight = nn.Parameter(torch.zeros(6, 4))
        self.same = nn.Linear(6, 4, bias=False)
        self.same.weight = self.embed.weight
        self.last = nn.Linear(4, 3)
        self.register_buffer("scale", torch.rand(6))
    def forward(self, x):
        x = self.frozen(x) * self.scale
        return self.last(torch.tanh(self.embed(x)) + self.same(self.back(self.embed(x))))
"""


@pytest.mark.parametrize("client", ["1", "average"])
def test_a_run_from_python_as_onnx_with_its_module(tmp_path, monkeypatch, client):
    """Frozen parameters and buffers are random in each new module: they come from the folder."""
    (tmp_path / "saved_export_net.py").write_text(SAVED_MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    from saved_export_net import Net

    parts = [(torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(3)]
    task = tacit.Task(Net(), parts)
    graph = tacit.Topology.ring(3).mixing("metropolis")
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=3)
    folder, path = run.save(tmp_path / "run"), tmp_path / "model.onnx"
    words = ("export", folder, "--format", "onnx", "--out", path, "--client", client)
    assert call(*words, "--module", "saved_export_net:Net").exit_code == 0
    x = torch.randn(5, 6)
    expected = run.module(client if client == "average" else int(client))(x)
    torch.testing.assert_close(run_onnx(path, x)[1], expected, rtol=1e-4, atol=1e-5)


def test_local_parameters_in_a_file_are_named(folder, tmp_path):
    assert "Caution" not in call("export", folder, "--out", tmp_path / "shared").output
    (tmp_path / "config.toml").write_text(f'{CONFIG}[model]\nname = "linear"\nlocal = ["*bias"]\n')
    own = tmp_path / "run"
    assert call("run", tmp_path / "config.toml", "--out", own).exit_code == 0
    done = call("export", own, "--client", "0", "--out", tmp_path / "personal")
    (bias,) = json.loads((tmp_path / "personal.json").read_text())["local"]
    assert bias in load_file(tmp_path / "personal")
    assert f"local parameters ({bias})" in " ".join(done.output.split())
    assert "no guarantee covers them" in " ".join(done.output.split())
