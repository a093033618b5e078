"""Fixtures that run `tacit`: as a process, or through its entry point in this process."""

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tacit.cli import main

BASE = """\
[data]
name = "mnist-mini"
limit_train = 240
limit_test = 60

[model]
name = "mlp"
hidden = [8]

[graph]
kind = "ring"
clients = 3

[algorithm]
name = "lppa"
lr = 0.1
noise = { law = "laplace", scale = 0.01 }

[run]
rounds = 2
batch_size = 16
checkpoint_every = 1
"""


@dataclass
class CommandResult:
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def config(tmp_path):
    """A small experiment in the folder where commands run."""
    path = tmp_path / "base.toml"
    path.write_text(BASE)
    return path.name


@pytest.fixture
def environment():
    """The environment, with the threads of this process: another number rounds sums differently."""
    return os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads()), "COLUMNS": "120"}


@pytest.fixture
def start(tmp_path, environment):
    """Start `tacit` as a process in the test's folder."""
    running = []

    def starting(*arguments, **variables):
        process = subprocess.Popen(
            [sys.executable, "-m", "tacit", *arguments],
            cwd=tmp_path,
            env=environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield starting
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def tacit(start):
    """Run `tacit` as a process and wait for it."""

    def running(*arguments, **variables):
        process = start(*arguments, **variables)
        out, err = process.communicate(timeout=300)
        return CommandResult(process.returncode, out, err)

    return running


@pytest.fixture
def tacit_here(tmp_path, monkeypatch, capsys):
    """Call the entry point: a new process takes three seconds to import torch.

    `answer` is what the user types.
    """

    def running(*arguments, answer=""):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        monkeypatch.setattr(sys, "argv", ["tacit", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "120")
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    return running


@pytest.fixture
def type_line(tacit_here):
    """Call the entry point with a line and further words; returns the exit code and all output."""

    def running(line, *more, answer=""):
        done = tacit_here(*line.split(), *more, answer=answer)
        return done.code, done.out + done.err

    return running


@pytest.fixture
def history(tmp_path):
    """The records of a run without their times."""

    def reading(folder):
        lines = (tmp_path / folder / "history.jsonl").read_text().splitlines()
        return [
            {k: v for k, v in json.loads(line).items() if k != "wall_seconds"} for line in lines
        ]

    return reading


@pytest.fixture
def newest(tmp_path):
    """The bytes of all tensors in the newest checkpoint of a run."""
    from safetensors.torch import load_file

    def reading(folder):
        tensors = load_file(max((tmp_path / folder / "checkpoints").glob("*.safetensors")))
        return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}

    return reading


@pytest.fixture
def contents(tmp_path):
    """All files below the test's folder with their bytes."""

    def reading(folder="."):
        root = Path(tmp_path, folder)
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }

    return reading
