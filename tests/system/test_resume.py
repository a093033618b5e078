"""Runs that were stopped, killed or damaged resume to the same bits."""

import json
import shlex
import signal
import time

import pytest

GATED = """
import os, time
from dataclasses import dataclass
from tacit.algorithms.lppa import LPPA
from tacit.algorithms.tracking import TrackingState

@dataclass(frozen=True)
class Gated(LPPA):
    name = "gated"

    def start(self, here) -> TrackingState:
        return super().start(here)

    def step(self, s: TrackingState, here) -> TrackingState:
        gate = os.environ.get("GATE")
        if gate and here.t == 7:  # in the middle of the second round
            open(gate + "-reached", "w").close()
            while not os.path.exists(gate):
                time.sleep(0.02)
        return super().step(s, here)
"""
INTERRUPTING = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


@pytest.fixture
def gated(tmp_path, config, environment, monkeypatch):
    """A configuration of 15 iterations that waits in the eighth for the file named by $GATE."""
    (tmp_path / "gated_algorithm.py").write_text(GATED)
    text = (tmp_path / config).read_text().replace('"lppa"', '"gated_algorithm:Gated"')
    (tmp_path / config).write_text(text.replace("rounds = 2", "rounds = 3"))
    environment["PYTHONPATH"] = str(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return config


@pytest.fixture
def signalled(start, gated, tmp_path):
    """Start runs, signal each in its eighth iteration, and return how they ended."""

    def going(**signals):
        running = {name: start("run", gated, "--out", f"{name} run", GATE=name) for name in signals}
        for name, process in running.items():
            while not (tmp_path / f"{name}-reached").exists():
                assert process.poll() is None, process.communicate()[1]
                time.sleep(0.02)
            process.send_signal(signals[name])
            (tmp_path / name).touch()
        return {
            name: (*process.communicate(timeout=60), process.returncode)
            for name, process in running.items()
        }

    return going


def test_stopped_and_killed_runs_resume_to_the_same_bits(
    signalled, tacit, tacit_here, gated, tmp_path, history, newest
):
    assert tacit_here("run", gated, "--out", "whole").code == 0
    ends = signalled(stopped=signal.SIGINT, ended=signal.SIGTERM, killed=signal.SIGKILL)

    for name in ("stopped", "ended"):  # Ctrl-C and a polite kill: a checkpoint, and how to go on
        out, err, code = ends[name]
        assert (code, out) == (130, "")
        assert "Stopped after iteration 8 of 15; the state is saved." in err
        assert "Traceback" not in err
        saved = [path.name for path in (tmp_path / f"{name} run" / "checkpoints").iterdir()]
        assert sorted(saved) == ["step-000000005.safetensors", "step-000000008.safetensors"]
    assert ends["killed"][2] == -signal.SIGKILL
    for name in ends:
        assert [record["step"] for record in history(f"{name} run")] == [0, 5]
        assert not (tmp_path / f"{name} run" / "summary.json").exists()

    program, *printed = shlex.split(ends["stopped"][1].strip().splitlines()[-1])
    assert program == "tacit"
    answer = tacit(*printed, "--json")  # the command that was printed, as it was printed
    assert answer.code == 0, answer.err
    assert "resumed after iteration 8" in answer.err
    assert json.loads(answer.out)["steps"] == 15
    for name, step in (("ended", 8), ("killed", 5)):
        answer = tacit_here("run", gated, "--out", f"{name} run", "--resume")
        assert answer.code == 0, answer.err
        assert f"resumed after iteration {step}" in answer.err
    for name in ends:
        assert history(f"{name} run") == history("whole")
        assert newest(f"{name} run") == newest("whole")
        assert set(newest("whole")) == {"theta", "gamma", "grad"}


def test_a_damaged_checkpoint_is_skipped(tacit_here, config, tmp_path, history, newest):
    tacit_here("run", config, "--out", "out")
    records, tensors = history("out"), newest("out")
    last = max((tmp_path / "out" / "checkpoints").iterdir())
    half = last.read_bytes()[: last.stat().st_size // 2]
    last.unlink()  # tensors read from it lie in the old file
    last.write_bytes(half)
    answer = tacit_here("run", config, "--out", "out", "--resume")
    assert answer.code == 0, answer.err
    assert "resumed after iteration 5" in answer.err
    assert history("out") == records
    assert newest("out") == tensors


def test_a_stop_before_training_leaves_nothing(tacit, config, tmp_path):
    (tmp_path / "interrupting.py").write_text(INTERRUPTING)
    options = "--out out --set model.name=interrupting:X"
    answer = tacit("run", config, *options.split(), PYTHONPATH=str(tmp_path))
    assert answer.code == 130
    assert "Traceback" not in answer.err
    assert not (tmp_path / "out").exists()
