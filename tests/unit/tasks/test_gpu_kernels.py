"""GPU kernels in Triton's interpreter, if Triton is installed."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tacit import models
from tacit.engines.gradients import objective as gradients, strategies
from tacit.engines.gradients.objective import HostedObjective
from tacit.tasks import Task


def test_our_kernels_do_what_tensor_operations_do():
    pytest.importorskip("triton")
    script = Path(__file__).with_name("interpreted_kernels.py")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "29 cases agree" in done.stdout


def test_kernels_are_launched_in_grids_that_cuda_allows():
    """For many parameters, clients and samples; needs neither Triton nor a GPU."""
    script = Path(__file__).with_name("recorded_grids.py")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "19 sizes can be launched" in done.stdout


@pytest.mark.parametrize("together", [1, 2, 7])
def test_one_pass_is_captured_per_size(together, monkeypatch):
    captured = []

    def capture(work, theta, index):  # as on a GPU, without capturing anything
        captured.append(len(theta))
        return work

    monkeypatch.setattr(gradients, "captured_pass", capture)
    generator = torch.Generator().manual_seed(0)
    parts = [(torch.rand(12, 6, generator=generator), torch.arange(12) % 3) for _ in range(7)]
    task = Task(models.mlp((6,), 3, hidden=[4]), parts, batch_size=5, init="independent")
    hosted = HostedObjective(
        task, range(7), task.loader(torch.arange(7), 0, "cpu"), "stacked", 0, "cpu"
    )
    monkeypatch.setitem(strategies.WORKSPACE, "cpu", together * hosted._backend.workspace)
    theta, out = hosted.theta0(), torch.full_like(hosted.theta0(), torch.nan)
    for number in range(gradients.BEFORE_CAPTURE + 3):
        hosted._replay(theta, hosted.loader.indices(number), out)
        assert torch.equal(out, hosted.grad(theta, number))
    assert sorted(captured) == {1: [1], 2: [1, 2], 7: [7]}[together]
