"""`torchrun -m tacit run`: a killed rank ends the run; the restart resumes from the checkpoint."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

MORTAL = """
import os, signal
from dataclasses import dataclass
from tacit.algorithms.lppa import LPPA
from tacit.algorithms.tracking import TrackingState

@dataclass(frozen=True)
class Mortal(LPPA):
    name = "mortal"

    def start(self, here) -> TrackingState:
        return super().start(here)

    def step(self, s: TrackingState, here) -> TrackingState:
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT") != "0"
        if here.t == 7 and os.environ.get("RANK") == "1" and not again:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(s, here)
"""


@pytest.fixture
def mortal(tmp_path, config, environment, monkeypatch):
    """A configuration of 15 iterations, in the eighth of which rank 1 is killed the first time."""
    (tmp_path / "mortal_algorithm.py").write_text(MORTAL)
    text = (tmp_path / config).read_text().replace('"lppa"', '"mortal_algorithm:Mortal"')
    (tmp_path / config).write_text(text.replace("rounds = 2", "rounds = 3"))
    environment["PYTHONPATH"] = f"{tmp_path}:{environment.get('PYTHONPATH', '')}"
    monkeypatch.syspath_prepend(tmp_path)
    return config


def test_torchrun_continues_after_a_rank_was_killed(
    tacit_here, mortal, environment, tmp_path, history
):
    assert tacit_here("run", mortal, "--out", "whole").code == 0
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    done = subprocess.run(
        [sys.executable, "-m", *launch, "-m", "tacit", "run", mortal, "--out", "out", "--json"],
        cwd=tmp_path,
        env=environment | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    # The survivor says what happened, what is left, and how to go on.
    assert "Error: Rank 0: Another rank no longer responds" in done.stderr
    assert (
        "stopped after iteration 7 of 15. The state after iteration 5 is saved. Continue with"
        in done.stderr
    )
    assert (
        "torchrun --nproc-per-node 2 -m tacit run out/config.toml --out out --resume" in done.stderr
    )
    assert "Traceback" not in done.stderr
    # The second attempt goes on from there to the end of an undisturbed run.
    assert "resumed after iteration 5" in done.stderr
    (summary,) = map(json.loads, done.stdout.splitlines())  # printed once, by the first process
    assert summary["steps"] == 15
    assert any("2 ranks" in note for note in summary["notes"])
    assert (tmp_path / "out" / "report.html").exists()
    ours, theirs = (history(folder) for folder in ("out", "whole"))
    assert (
        [record["step"] for record in ours]
        == [record["step"] for record in theirs]
        == [0, 5, 10, 15]
    )
    assert [record["bytes_sent"] for record in ours] == [record["bytes_sent"] for record in theirs]
    last = [
        load_file(max((tmp_path / folder / "checkpoints").iterdir())) for folder in ("out", "whole")
    ]
    assert last[0].keys() == last[1].keys()
    for name, rows in last[1].items():
        np.testing.assert_allclose(last[0][name], rows, rtol=0, atol=1e-5 * abs(rows).max())


def test_other_commands_fail_under_torchrun(tacit_here, config, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    answer = tacit_here("grid", config, "--over", "algorithm=dsgt")
    assert answer.code == 2
    assert "without torchrun" in answer.err


def test_a_missing_gpu_is_refused(tacit_here, config, monkeypatch, tmp_path):
    launched = {
        "RANK": 63,
        "WORLD_SIZE": 64,
        "LOCAL_RANK": 63,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": 1,
    }
    for name, value in launched.items():
        monkeypatch.setenv(name, str(value))
    answer = tacit_here("run", config, "--out", "out", "--set", "run.device=cuda")
    assert answer.code == 2
    assert "one process per GPU" in answer.err
    answer = tacit_here("run", config, "--out", "out", "--set", "run.device=cuda:0")
    assert answer.code == 2
    assert "uses its own GPU" in answer.err
    assert not (tmp_path / "out").exists()
