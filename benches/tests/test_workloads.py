from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tacit.tasks.flat import FlatModule
from tacit_benches import plain, sim
from tacit_benches.benchmark import BenchOptions
from tacit_benches.plain import pass_batches, plain_loop
from tacit_benches.workloads import W1, W2, W3, W4, W5, W6, W6B, W6S, W7, W8, WORKLOADS

CPU = torch.device("cpu")
TINY = {"clients": 3, "samples": 4, "batch_size": 2}
TINY_TEXT = {"dim": 8, "heads": 2, "feedforward": 16, "layers": 2}
TINY_OPTIONS = {
    "W6": {"shape": (3, 8, 8), "options": {"width": 4, "groups": 2}},
    "W7": {"shape": (6,), "options": TINY_TEXT},
    "W8": {"shape": (6,), "options": TINY_TEXT},
}


def parameters(workload):
    return sum(p.numel() for p in workload.module().parameters())


def test_iterations_and_client_steps():
    iterations = [workload.iterations for workload in (W1, W2, W3, W4, W5, W6, W6B, W6S, W7, W8)]
    assert iterations == [18, 3, 3, 93, 2, 2, 2, 2, 2, 2]
    assert [w.client_steps for w in (W1, W2, W3)] == [180, 300, 3_000]
    assert W4.client_steps * W4.rounds == 23_250
    assert W1.rounds == 10


def test_models():
    conv = [m for m in W1.module().modules() if isinstance(m, nn.Conv2d)]
    assert [(m.out_channels, m.kernel_size) for m in conv] == [(16, (5, 5)), (32, (5, 5))]
    assert parameters(W2) == parameters(W3) == 784 * 64 + 64 + 64 * 10 + 10
    assert parameters(W1) == parameters(W4) == parameters(W5)


def test_large_models():
    assert parameters(W6) == parameters(W6B) == 11_173_962
    assert parameters(W6S) == 701_466
    assert parameters(W7) == 3_244_042
    # Rank 8 for four linear layers in each of six blocks, and the last layer.
    adapters = 6 * 8 * (4 * 256 + 2 * 256 + 2 * 5 * 256)
    assert FlatModule(W8.module()).width == adapters + 257 * 10


def test_precisions_have_names():
    for one in (W6, W6B, W7, W8):
        found = {name: w.precision for name, w in WORKLOADS.items() if name.startswith(one.name)}
        found = {name: p for name, p in found.items() if name.split("-")[0] == one.name}
        assert found == {
            one.name: "float32", f"{one.name}-tf32": "tf32", f"{one.name}-bf16": "bf16"
        }  # fmt: skip


def test_tokens():
    small = replace(W7, **TINY, **TINY_OPTIONS["W7"])
    x = small.images().x
    assert x.shape == (12, 6)
    assert x.dtype == torch.int64
    assert int(x.min()) >= 0
    assert 100 < int(x.max()) < 256


@pytest.mark.parametrize("name", ["W6", "W7", "W8", "W7-bf16"])
def test_both_limits(monkeypatch, name):
    tiny = replace(WORKLOADS[name], **TINY, **TINY_OPTIONS[name[:2]])
    monkeypatch.setitem(sim.KNOWN, name, tiny)
    seen = []

    def record(module, x, y, order, precision):
        seen.append((tuple(order.shape), precision))
        pass_batches(module, x, y, order, precision)

    monkeypatch.setattr(plain, "pass_batches", record)
    (result,) = sim.measure(BenchOptions((name,), CPU, repeats=2))
    # After a warm-up, the limits in turn: each client's batch, and all of them together.
    assert seen == [((6, 2), tiny.precision), ((2, 6), tiny.precision)] * 3
    row = result.as_dict()
    assert row["workload"] == name
    assert row["precision"] == tiny.precision
    assert 0 < row["one_batch_low"] <= row["one_batch_ratio"] <= row["one_batch_high"]
    assert row["one_batch_seconds"] > 0
    assert row["captured"] is False
    assert row["peak_memory_bytes"] is None
    assert row["parameters"] == FlatModule(tiny.module()).width


def test_peak_memory(monkeypatch):
    memory = {"now": 700, "peak": 900}
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: memory.update(now=100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: memory["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: memory["peak"])
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda device: memory.update(peak=memory["now"])
    )
    peak = sim.PeakMemory(torch.device("cuda"))
    memory["now"] = 150
    assert peak.of(lambda: None) == 50
    assert peak.of(lambda: memory.update(peak=400)) == 300


@pytest.mark.parametrize(
    ("precision", "allowed"), [("float32", False), ("tf32", True), ("bf16", False)]
)
def test_limits_use_tf32_only_where_we_do(monkeypatch, precision, allowed):
    switches = torch.backends.cuda.matmul, torch.backends.cudnn
    before, found = [switch.allow_tf32 for switch in switches], []
    monkeypatch.setattr(
        plain, "pass_batches", lambda *_: found.extend(switch.allow_tf32 for switch in switches)
    )
    small = replace(W2, clients=4, precision=precision)
    plain_loop(small, small.images(), CPU, torch.get_num_threads())()
    assert found == [allowed] * 2
    assert [switch.allow_tf32 for switch in switches] == before


def test_limits_in_bfloat16():
    kinds = []

    class Watched(nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            kinds.append(out.dtype)
            return out

    module, order = Watched(4, 3), torch.tensor([[0, 1]])
    for precision in ("float32", "tf32", "bf16"):
        pass_batches(module, torch.randn(2, 4), torch.tensor([0, 1]), order, precision)
        # Gradients of float32 parameters are float32.
        assert module.weight.grad.dtype == torch.float32
    assert kinds == [torch.float32, torch.float32, torch.bfloat16]


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
    small = replace(W2, clients=4)
    batches = []
    monkeypatch.setattr(
        plain, "pass_batches", lambda module, x, y, order, _: batches.extend(map(len, order))
    )
    threads = torch.get_num_threads()
    plain_loop(small, small.images(), CPU, threads, one_batch=one_batch)()
    assert batches == sizes
