"""`[model] local` from the command line: run, resume, load and export."""

import json

import pytest
import torch

import tacit as package

CONFIG = """
[data]
name = "mnist-mini"
limit_train = 200
limit_test = 50
[partition]
kind = "dirichlet"
alpha = 0.3
[model]
name = "mlp"
hidden = [12]
local = ["3"]
[graph]
clients = 4
[algorithm]
name = "dsgt"
lr = 0.1
[run]
rounds = 4
batch_size = 5
checkpoint_every = 2
gradients = "looped"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    return path


def test_a_resumed_run_has_the_same_bits_and_its_models_can_be_exported(
    config, tacit_here, tmp_path
):
    whole, part = tmp_path / "whole", tmp_path / "part"
    tacit_here("run", config, "--out", whole)
    tacit_here("run", config, "--out", part)
    expected = package.load(whole)
    assert expected.local.shape == (4, 130)
    assert expected.theta.shape == (4, 12 * 784 + 12)
    assert not torch.equal(expected.local[0], expected.local[1])
    newest = sorted((part / "checkpoints").glob("*.safetensors"))[-1]
    newest.unlink()
    (part / "summary.json").unlink()
    tacit_here("run", part / "config.toml", "--out", part, "--resume")
    found = package.load(part)
    assert torch.equal(found.local, expected.local)
    assert torch.equal(found.theta, expected.theta)
    notes = json.loads((part / "summary.json").read_text())["notes"]
    assert any("130 of 9,550 numbers (3.weight, 3.bias)" in note for note in notes)
    tacit_here("export", part, "--client", "2", "--format", "torch", "--out", tmp_path / "m.pt")
    state = torch.load(tmp_path / "m.pt", weights_only=True)
    assert torch.equal(state["3.bias"], expected.local[2, -10:])
    assert torch.equal(state["1.bias"], expected.theta[2, -12:])
    assert list(state) == ["1.weight", "1.bias", "3.weight", "3.bias"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ('model.local=["nose"]', r"\[model\].*'nose'.*Known: 1, 3"),
        ('model.local="3"', "model.local"),
        ("model.local_lr=-1.0", r"\[model\].*local_lr"),
        ('model.local=["*"]', "nothing would travel"),
    ],
)
def test_bad_input_is_said(config, tmp_path, override, message):
    from tacit.config.build import build
    from tacit.config.loading import load_config

    with pytest.raises(package.Misuse, match=message):
        build(load_config(config, [override]))


def test_a_guarantee_for_one_sample_is_refused_before_anything_is_written(config, tmp_path):
    from tacit.config.loading import load_config
    from tacit.experiment.run import run

    overrides = [
        "algorithm.name=private-sgd",
        "privacy.epsilon=8",
        "privacy.delta=0.001",
    ]
    with pytest.raises(package.Misuse, match="void a guarantee for one sample"):
        run(load_config(config, overrides), tmp_path / "out")
    assert not (tmp_path / "out" / "config.toml").exists()


def test_runs_without_local_parameters_keep_their_fingerprint(config):
    from tacit.config.loading import load_config, make_config
    from tacit.experiment.folder import fingerprint

    plain = load_config(config, []).as_dict()
    del plain["model"]["local"]
    made = make_config(plain)
    assert "local" not in made.as_dict()["model"]
    assert fingerprint(made) != fingerprint(load_config(config, []))
