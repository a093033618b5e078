"""Every algorithm on a GPU: results of the CPU, the same bits every time, captured iterations."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from capturable import CANNOT, FALLING, GRAPH, VARIANTS, N, case, digits

import tacit
from support.integer_noise import integers
from tacit.algorithms.algorithm import tensors_of
from tacit.compression.subsets import random_subset
from tacit.core import discrete_gaussian, integer_noise, randomness
from tacit.core.discrete_gaussian import DiscreteGaussian, Table
from tacit.core.native.gpu import gpu_usable
from tacit.core.randomness import Philox, derive_key, words
from tacit.engines.capture.graphs import captured
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.record.transcript import Transcript
from tacit.tasks.batches import MiniBatchSource
from tacit.tasks.metrics.metric import METRICS
from tacit.tasks.parts import Parts

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def advanced(algorithm, device, steps=12, **options):
    """The run of an algorithm, or of a variant by its name, after some iterations."""
    algorithm, task = case(algorithm) if isinstance(algorithm, str) else (algorithm, digits())
    simulation = Simulation(
        Setting(algorithm, task, GRAPH, seed=3, device=device, gradients="stacked"), **options
    )
    simulation.start()
    for _ in range(steps):
        simulation.step()
    return simulation


@pytest.mark.parametrize("name", VARIANTS)
def test_results_are_those_of_the_cpu(name):
    there, here = advanced(name, "cuda"), advanced(name, "cpu")
    assert there.captured == (name not in CANNOT)
    assert any("not captured" in remark for remark in there.remarks) == (name in CANNOT)
    for field, rows in tensors_of(here.state).items():
        torch.testing.assert_close(getattr(there.state, field).cpu(), rows, rtol=1e-6, atol=1e-8)
    assert there.net.bytes_sent == here.net.bytes_sent
    losses = [simulation.observe().loss for simulation in (there, here)]
    # Runs with a guarantee record none.
    if losses != [None, None]:
        assert losses[0].mean == pytest.approx(losses[1].mean, rel=1e-6)


@pytest.mark.filterwarnings("error")
def test_metrics_are_those_of_the_cpu():
    """And nothing in them warns that it may give other bits the next time."""
    records, draw = [], torch.Generator().manual_seed(1)
    x = torch.randn(80, 3, generator=draw, dtype=torch.float64)
    y = torch.randint(4, (80,), generator=draw)
    module = torch.nn.Linear(3, 4).double()
    task = tacit.Task(module, [(x, y)] * N, batch_size=4, test=(x, y), init="same")
    task = replace(task, client_tests=[(x[i::N], y[i::N]) for i in range(N)])
    for device in ("cpu", "cuda", "cuda"):
        algorithm = tacit.DSGT(lr=0.1)
        metrics = [name for name, metric in METRICS.items() if "classes" in metric.kinds]
        setting = Setting(algorithm, task, GRAPH, seed=3, device=device, metrics=metrics)
        simulation = Simulation(replace(setting, gradients="stacked"))
        simulation.start()
        for _ in range(6):
            simulation.step()
        records.append(simulation.observe())
    here, there, again = records
    assert set(here.metrics) > {"auc", "f1", "brier", "log-loss"}
    for name, values in here.per_client.items():
        assert there.per_client[name] == pytest.approx(values, rel=1e-4, nan_ok=True)
    assert (there.metrics, there.own_test) == (again.metrics, again.own_test)
    assert there.baseline == here.baseline


@pytest.mark.parametrize("name", ["lppa", "lppa fresh", "defl-vp", "edsg-rms"])
def test_captured_iterations_give_the_computed_results(name):
    straight = advanced(name, "cuda", transcript=Transcript())
    assert not straight.captured
    for field, rows in tensors_of(straight.state).items():
        torch.testing.assert_close(
            getattr(advanced(name, "cuda").state, field), rows, rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in CANNOT])
def test_iterations_do_not_wait_for_the_gpu(name):
    """Although epochs of unequal clients begin at different iterations."""
    simulation = advanced(name, "cuda")
    assert simulation.captured
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            simulation.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert simulation.t == 32


@pytest.mark.parametrize("batch", [3, 4, 128])
def test_batches_of_unequal_clients_are_those_of_the_cpu(batch):
    sizes = [batch * (1 + k % 5) + k for k in range(40)]
    parts = Parts.split((torch.arange(sum(sizes)),), torch.arange(sum(sizes)).split(sizes))
    ids = torch.arange(len(sizes))
    source = MiniBatchSource(parts, batch)
    here, there = (source.loader(ids, ids, 3, device) for device in ("cpu", "cuda"))
    for number in range(12):
        assert torch.equal(there.indices(number).cpu(), here.indices(number))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_bits_twice(name):
    one, two = (tensors_of(advanced(name, "cuda").state) for _ in range(2))
    assert all(torch.equal(rows, two[field]) for field, rows in one.items())


def test_a_state_that_was_read_does_not_change():
    simulation = advanced(tacit.DSGT(lr=FALLING), "cuda", 6)
    assert simulation.captured
    taken = simulation.state
    before = taken.theta.clone()
    simulation.step()
    assert torch.equal(taken.theta, before)
    assert not torch.equal(simulation.state.theta, before)


def test_a_restored_run_is_captured_again():
    straight = advanced(tacit.LPPA(lr=FALLING, fresh=True), "cuda", 10)
    half = advanced(tacit.LPPA(lr=FALLING, fresh=True), "cuda", 5)
    again = advanced(tacit.LPPA(lr=FALLING, fresh=True), "cuda", 0)
    again.restore(half.checkpoint("mark"))
    while again.t < 10:
        again.step()
    assert again.captured
    torch.testing.assert_close(again.state.theta, straight.state.theta, rtol=1e-12, atol=1e-12)
    assert again.net.bytes_sent == straight.net.bytes_sent


def test_work_that_launches_nothing_cannot_be_captured():
    """Its replay would compute nothing, without an error."""
    device = torch.device("cuda")
    with pytest.raises(UserWarning, match="empty"):
        captured(lambda: None, device)
    with pytest.raises(ZeroDivisionError):
        captured(lambda: 1 // 0, device)
    count = torch.zeros(1, device=device)
    captured(lambda: count.add_(1), device)()
    assert count.item() == 1


def test_divergence_is_noticed_in_captured_iterations():
    task = tacit.quadratic(
        torch.eye(2, dtype=torch.float64).repeat(N, 1, 1), torch.ones(N, 2).double()
    )
    simulation = Simulation(
        Setting(tacit.DSGT(lr=1e60), task, GRAPH, device="cuda"), allow_divergence=True
    )
    simulation.start()
    for _ in range(9):
        simulation.step()
    assert simulation.captured
    simulation.check()
    assert simulation.diverged is not None
    assert int(simulation.diverged.split()[-1]) > 3


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 18378), (70_000, 2)])
def test_words_are_those_of_the_cpu(rows, columns):
    device = torch.device("cuda")
    assert gpu_usable(device)
    source, target = torch.arange(rows), torch.arange(rows) * 7 + 1
    for key, tick in ((derive_key(3, "noise"), 12), (1, (1 << 31) + 7)):
        there = words(key, tick, source.to(device), target.to(device), range(columns))
        assert torch.equal(there.cpu(), words(key, tick, source, target, range(columns)))
    ticks = torch.arange(rows) % 5 + 1  # each row at its own
    there = words(3, ticks.to(device), source.to(device), target.to(device), range(columns))
    assert torch.equal(there.cpu(), words(3, ticks, source, target, range(columns)))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 18379), (70_000, 3)])
@pytest.mark.parametrize("factor", [0, 1, 300])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("by_kernel", [True, False])
def test_integer_noise_is_that_of_the_cpu(rows, columns, factor, dtype, by_kernel, monkeypatch):
    if not by_kernel:
        monkeypatch.setattr(randomness, "gpu_usable", lambda device: False)
        monkeypatch.setattr(integer_noise, "gpu_usable", lambda device: False)
    noise = (Philox(3, columns), "n", DiscreteGaussian(factor), torch.arange(rows))
    on_gpu = (*noise[:3], noise[3].cuda())

    def added(here, tag, law, source, tick):
        onto = torch.full((rows, columns), 2**31 - 9, dtype=dtype, device=source.device)
        total = onto[0].clone()
        here.add_integers(tag, law, tick, source, onto)
        here.add_integers(tag, law, tick, source, total)
        return onto.cpu(), total.cpu(), integers(here, tag, law, tick, source, columns).cpu()

    expected = added(*noise, 12)
    for tick in (12, torch.tensor([12], device="cuda")):
        for one, other in zip(added(*on_gpu, tick), expected, strict=True):
            assert torch.equal(one, other)


def test_integer_noise_can_be_captured():
    here, law, source = Philox(3, 501), DiscreteGaussian(7), torch.arange(4)
    device, tick = torch.device("cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    total = torch.zeros(501, dtype=torch.int32, device=device)
    rows, there = torch.zeros(4, 501, dtype=torch.int32, device=device), source.to(device)

    def work():
        rows.copy_(integers(here, "n", law, tick, there, 501))
        total.zero_()
        here.add_integers("n", law, tick, there, total)

    replay = captured(work, device, warm_up=1)
    for now in (1, 2, 7):
        tick.fill_(now)
        replay()
        expected = integers(here, "n", law, now, source, 501)
        assert torch.equal(rows.cpu(), expected)
        assert torch.equal(total.cpu(), expected.sum(0, dtype=torch.int32))


def test_ties_of_integer_noise_are_decided_as_on_the_cpu(monkeypatch):
    """With thresholds that begin like half of the words drawn; some of them several times."""
    source, width = torch.arange(3), 1000
    key, rng = derive_key(5, "integers", "n"), np.random.default_rng(1)
    drawn = words(key, 6, source, torch.zeros_like(source), range(2 * width)).flatten()[::2]
    further = rng.integers(0, 1 << 32, (len(drawn), 2, 3)).tolist()
    values = sorted(
        (word & 0x7FFFFFFF) << 96 | a << 64 | b << 32 | c
        for word, rest in zip(drawn.tolist(), further, strict=True)
        for a, b, c in rest
    )
    tables = {device: Table.of(values, device) for device in ("cpu", "cuda")}
    for module in (discrete_gaussian, integer_noise):
        monkeypatch.setattr(module, "base_table", lambda device: tables[device.type])
    on_cpu, on_gpu = (
        integers(Philox(5, width), "n", DiscreteGaussian(7), 6, source.to(device), width).cpu()
        for device in ("cpu", "cuda")
    )
    assert torch.equal(on_cpu, on_gpu)


@pytest.mark.parametrize(
    ("width", "k"), [(300, 150), (18378, 7351), (4096, 1), (1_000_003, 400_000), (300, 200)]
)
def test_subsets_are_those_of_the_cpu(width, k):
    seed = torch.arange(12).view(6, 2) * 0x0F1E2D3C
    assert torch.equal(random_subset(seed.cuda(), width, k).cpu(), random_subset(seed, width, k))


def test_streams_are_those_of_the_cpu():
    task = tacit.adaptive_filtering(N, width=3, seed=1)
    here, there = (
        tacit.run(task, tacit.ALGORITHMS["dsg"](lr=0.05), GRAPH, steps=40, seed=2, device=device)
        for device in ("cpu", "cuda")
    )
    torch.testing.assert_close(there.theta.cpu(), here.theta, rtol=1e-6, atol=1e-8)
