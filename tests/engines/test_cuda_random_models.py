"""Models that draw for their samples on a GPU: the trajectory of the CPU, captured."""

import pytest
import torch
from capturable import GRAPH, N
from random_models import random_task
from test_random_models import ALGORITHMS, CASES
from torch import nn

import tacit
from support import suited
from tacit.algorithms.algorithm import tensors_of
from tacit.core.sample_keys import fold, sample_keys, words
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def advanced(algorithm, task, device, gradients, steps=12):
    setting = Setting(algorithm, task, GRAPH, seed=3, device=device, gradients=gradients)
    simulation = Simulation(setting)
    simulation.start()
    for _ in range(steps):
        simulation.step()
    return simulation


def test_the_gpu_draws_the_same_words():
    keys = fold(sample_keys(1, 2, 50), 3)
    assert torch.equal(words(keys.cuda(), 33).cpu(), words(keys, 33))


@pytest.mark.parametrize("gradients", ["stacked"])
@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_results_are_those_of_the_cpu(name, batch_size, gradients):
    task = random_task(N, batch_size)
    algorithm, task = suited.suited(ALGORITHMS[name], task, GRAPH, steps=40)
    there = advanced(algorithm, task, "cuda", gradients)
    here = advanced(algorithm, task, "cpu", gradients)
    assert there.captured
    for field, rows in tensors_of(here.state).items():
        torch.testing.assert_close(getattr(there.state, field).cpu(), rows, rtol=1e-6, atol=1e-8)


def test_iterations_with_adapters_and_attention_are_captured():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    module = nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 2))
    adapted = tacit.models.lora(module, rank=2, train=["2"]).double()
    parts = [(torch.randn(9, 5, 8).double(), torch.arange(9) % 2) for _ in range(N)]
    task = tacit.Task(adapted, parts, batch_size=3)
    algorithm = tacit.LPPA(lr=0.05)
    there = advanced(algorithm, task, "cuda", "stacked")
    assert there.captured
    here = advanced(algorithm, task, "cpu", "stacked")
    torch.testing.assert_close(there.state.theta.cpu(), here.state.theta, rtol=1e-6, atol=1e-8)
