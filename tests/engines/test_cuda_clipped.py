"""Sums of clipped gradients on a GPU: those of the CPU, the same bits, captured, never waiting."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from tacit.core.devices import float32_products
from tacit.core.randomness import Philox
from tacit.engines.capture.graphs import captured
from tacit.engines.gradients.objective import HostedObjective
from tacit.gradients import masked_sums
from tacit.gradients.products import OuterProducts
from tacit.tasks import Task
from tacit.tasks.parts import Parts
from tacit.tasks.poisson import PoissonSample

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
BOUND, RATE = 0.1, 0.1


@pytest.fixture(autouse=True)
def _products_in_full_precision():
    """As in a run: torch computes convolutions in TF32 otherwise."""
    with float32_products():
        yield


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


def normed():
    """No chain of our layers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.GroupNorm(2, 8), nn.Linear(8, 10))


class Attending(nn.Module):
    """Attention over the rows of an image, with a table of positions and a layer used twice."""

    def __init__(self):
        super().__init__()
        self.into, self.places = nn.Linear(28, 16), nn.Embedding(28, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.last = nn.Linear(16, 10)

    def forward(self, x):
        x = self.into(x[:, 0]) + self.places(torch.arange(28, device=x.device))
        return self.last(self.layer(self.layer(x)).mean(1))


def task_of(make, sizes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    total = sum(sizes)
    x = torch.randn(total, 1, 28, 28, generator=generator).to(dtype)
    y = torch.randint(10, (total,), generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = make().to(dtype)
    parts = Parts.split((x, y), torch.arange(total).split(list(sizes)))
    return Task(module, parts, batch_size=1)


def hosted(task, device):
    ids = torch.arange(task.clients)
    task = task.to(device)
    return HostedObjective(task, ids.tolist(), task.loader(ids, 5, device), "looped", 5, device)


def drawn(objective, tick, rate=RATE):
    philox = Philox(1, 1)
    return objective.poisson_sample(rate, lambda ids, width: philox.words("s", tick, ids, width))


def models(objective, shared):
    theta = objective.theta0()
    if shared:
        return theta[:1].expand_as(theta)
    shift = torch.arange(len(theta), device=theta.device, dtype=theta.dtype)[:, None]
    return theta * (1 + 0.1 * shift)


@pytest.mark.parametrize("make", [network, normed, Attending])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [True, False])
def test_sums_are_those_of_the_cpu(make, dtype, shared):
    task = task_of(make, (300, 20, 1, 500), dtype)
    here, there = hosted(task, "cpu"), hosted(task, "cuda")
    for tick in range(3):
        sample = drawn(here, tick)
        assert torch.equal(sample.index, drawn(there, tick).index)
        expected = here.clipped_sum_of(models(here, shared), sample, BOUND)
        found = there.clipped_sum_of(models(there, shared), sample, BOUND)
        again = there.clipped_sum_of(models(there, shared), sample, BOUND)
        assert torch.equal(found, again)
        tolerance = 1e-4 if dtype == torch.float32 else 1e-10
        error = (found.cpu() - expected).norm(dim=1)
        assert bool((error <= tolerance * BOUND * sample.counts.clamp(min=1)).all())
        assert bool((found.cpu()[sample.counts == 0] == 0).all())


def test_no_sample_counts_more_than_the_bound():
    there = hosted(task_of(network, (64,)), "cuda")
    theta = models(there, True)
    for bound in (1e-3, 0.1, 0.7):
        for one in range(64):
            sample = PoissonSample(torch.tensor([one]), torch.tensor([1]), torch.tensor([1]), 1.0)
            assert float(there.clipped_sum_of(theta, sample, bound).double().norm()) <= bound


@pytest.mark.parametrize("counts", [(300, 0, 1, 700), (2000,), (2,) * 500])
def test_kernels_of_sums_do_what_tensor_operations_do(counts):
    """And no bit of a client's sum depends on the samples of others."""
    pytest.importorskip("triton")
    generator = torch.Generator("cuda").manual_seed(0)
    samples, width = sum(counts) + 24, 70 * 37 + 1100 + 37
    right, left, rows = (
        torch.randn(samples, numbers, generator=generator, device="cuda")
        for numbers in (70, 37, 1100)
    )
    right[1, 3], rows[0, 5] = math.inf, math.nan
    blocks = [OuterProducts(right, left), OuterProducts(rows), OuterProducts(left)]
    assert masked_sums._kernels(blocks) is not None
    bounds = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], device="cuda")
    found, expected, again = torch.empty(3, len(counts), width, device="cuda")
    masked_sums.write_masked_sums(blocks, BOUND, bounds, found)
    masked_sums.multiply_masked(blocks, BOUND, bounds, expected)
    errors = (found.double() - expected.double()).norm(dim=1).cpu()
    assert bool((errors <= 2.0**-22 * BOUND * torch.tensor(counts)).all())
    others = torch.arange(samples, device="cuda") >= counts[0]
    changed = [block.without(others) for block in blocks]
    masked_sums.write_masked_sums(changed, BOUND, bounds, again)
    assert torch.equal(again[0], found[0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_gradients_that_are_not_finite_count_as_zero(bad):
    task = task_of(network, (40, 40))
    task.parts.arrays[0][3, 0, 5, 5] = bad
    here, there = hosted(task, "cpu"), hosted(task, "cuda")
    sample = drawn(here, 0, 1.0)
    found = there.clipped_sum_of(models(there, True), sample, BOUND).cpu()
    assert bool(found.isfinite().all())
    expected = here.clipped_sum_of(models(here, True), sample, BOUND)
    assert float((found - expected).norm(dim=1).max()) <= 1e-4 * BOUND * 40


def test_a_thousand_clients():
    task = task_of(network, [1 + k % 5 for k in range(1000)])
    here, there = hosted(task, "cpu"), hosted(task, "cuda")
    sample = drawn(here, 0, 0.5)
    found = there.clipped_sum_of(models(there, True), sample, BOUND).cpu()
    expected = here.clipped_sum_of(models(here, True), sample, BOUND)
    assert float((found - expected).norm(dim=1).max()) <= 1e-4 * BOUND * 5


def test_a_draw_beyond_the_capacity_is_not_truncated():
    task = task_of(network, (300, 200))
    here, there = hosted(task, "cpu"), hosted(task, "cuda")
    large = drawn(here, 0, 1.0)
    small = drawn(here, 0, 0.1)
    beyond = replace(large, rate=small.rate)
    for shared in (True, False):
        expected = here.clipped_sum_of(models(here, shared), large, BOUND)
        found = there.clipped_sum_of(models(there, shared), beyond, BOUND).cpu()
        assert float((found - expected).norm(dim=1).max()) <= 1e-4 * BOUND * 300


@pytest.mark.parametrize("shared", [True, False])
def test_the_work_can_be_captured_and_does_not_wait(shared):
    there = hosted(task_of(network, (300, 20, 500)), "cuda")
    theta = models(there, shared)
    place = there.clipped_sums.place(theta, drawn(there, 0))
    out = torch.empty(theta.shape, device="cuda")
    replay = captured(
        lambda: there.clipped_sums.write_on(theta, place, BOUND, out), theta.device, warm_up=2
    )
    samples = [drawn(there, tick) for tick in range(5)]
    expected = [there.clipped_sum_of(theta, sample, BOUND) for sample in samples]
    torch.cuda.set_sync_debug_mode("error")
    found = []
    try:
        for sample in samples:
            assert place.load(sample)
            replay()
            found.append(out.clone())
            there.clipped_sum_of(theta, sample, BOUND)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
