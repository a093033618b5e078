from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tacit.bench.sim import pass_batches, plain_loop
from tacit.bench.workloads import W1, W2, W3, W4, W5, WORKLOADS


def parameters(workload):
    return sum(p.numel() for p in workload.module().parameters())


def test_iterations_and_client_steps():
    iterations = {name: workload.iterations for name, workload in WORKLOADS.items()}
    assert iterations == {"W1": 18, "W2": 3, "W3": 3, "W4": 93, "W5": 2}
    assert [w.client_steps for w in (W1, W2, W3)] == [180, 300, 3_000]
    assert W4.client_steps * W4.rounds == 23_250
    assert W1.rounds == 10


def test_models():
    conv = [m for m in W1.module().modules() if isinstance(m, nn.Conv2d)]
    assert [(m.out_channels, m.kernel_size) for m in conv] == [(16, (5, 5)), (32, (5, 5))]
    assert parameters(W2) == parameters(W3) == 784 * 64 + 64 + 64 * 10 + 10
    assert parameters(W1) == parameters(W4) == parameters(W5)


def test_images():
    images = W2.images()
    assert images.x.shape == (6_000, 1, 28, 28)
    assert images.y.shape == (6_000,)
    assert images.source == "random"
    assert torch.equal(images.x, W2.images().x)
    task = W2.task(images)
    assert (task.clients, task.batch_size, task.steps_per_epoch) == (100, 20, 3)
    assert torch.equal(task.parts.of(7)[0], images.x[420:480])


def test_w4_is_the_papers_protocol(monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    graph = W4.graph(W4.clients)
    assert graph.topology.directed
    assert {(i, (i + 1) % 5) for i in range(5)} <= set(map(tuple, graph.edges.tolist()))
    assert np.allclose(graph.weights.sum(0), 1)
    assert np.allclose(graph.weights.sum(1), 1)
    small = replace(W4, samples=16, batch_size=8)
    images = small.images()
    assert images.test is None
    simulation = small.simulation(images, torch.device("cpu"))
    lr = simulation.algorithm.lr
    # A round has two iterations here.
    assert [lr(0), lr(1), lr(2)] == pytest.approx([0.02, 0.02, 0.019])
    assert simulation.algorithm.noise.scale == 0.025
    assert not simulation.algorithm.fresh
    assert not torch.equal(simulation.here.theta0[0], simulation.here.theta0[1])


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.seen = []

    def forward(self, x):
        self.seen.append(x)
        return self.layer(x)


def test_pass_batches():
    module = Counting()
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    order = torch.tensor([[0, 1], [4, 5], [2, 3]])
    pass_batches(module, x, y, order)
    assert all(torch.equal(seen, x[batch]) for seen, batch in zip(module.seen, order, strict=True))
    loss = nn.functional.cross_entropy(module.layer(x[2:4]), y[2:4])
    assert torch.allclose(
        module.layer.weight.grad, torch.autograd.grad(loss, module.layer.weight)[0]
    )


@pytest.mark.parametrize(("one_batch", "sizes"), [(False, [20] * 12), (True, [80] * 3)])
def test_plain_loop_has_the_samples_of_a_round(monkeypatch, one_batch, sizes):
    small = replace(W2, clients=4, one_batch=one_batch)
    batches = []
    monkeypatch.setattr(
        "tacit.bench.sim.pass_batches", lambda module, x, y, order: batches.extend(map(len, order))
    )
    plain_loop(small, small.images(), torch.device("cpu"), torch.get_num_threads())()
    assert batches == sizes
