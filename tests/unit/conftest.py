"""A small experiment that every test here can change."""

import copy

import pytest

from tacit.config.loading import make_config

TINY = {
    "data": {"name": "mnist-mini", "limit_train": 240, "limit_test": 60},
    "model": {"name": "mlp", "hidden": [8]},
    "graph": {"kind": "ring", "clients": 3},
    "algorithm": {"name": "lppa", "lr": 0.1, "noise": {"law": "laplace", "scale": 0.01}},
    "run": {"rounds": 3, "batch_size": 16, "checkpoint_every": 1},
}


@pytest.fixture
def tiny():
    """Plain values; `tiny("run.rounds=1", ...)` gives the configuration with overrides."""
    return lambda *overrides: make_config(copy.deepcopy(TINY), overrides)


@pytest.fixture
def tiny_private():
    """The same with an algorithm that keeps a guarantee."""
    keys = {"algorithm": {"name": "private-sgd", "lr": 0.5}, "privacy": {"epsilon": 3.0}}
    return lambda *overrides: make_config(copy.deepcopy(TINY | keys), overrides)


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """Put a module of the user's on the Python path."""

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return write
