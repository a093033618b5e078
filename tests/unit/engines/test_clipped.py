"""Sums of clipped gradients of single samples, by all backends against a plain loop."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.nn import functional

import tacit
from tacit import models
from tacit.core import native
from tacit.core.errors import Caution, Misuse
from tacit.core.randomness import Philox
from tacit.core.workers import WorkerPool
from tacit.engines.gradients import clipped, device_samples
from tacit.engines.gradients.clipped import ClippedSums, pieces
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.gradients.sample_passes import SampleBackend
from tacit.gradients.workspace import WORKSPACE
from tacit.tasks import Task
from tacit.tasks.poisson import PoissonSample

CLASSES = 4
WAYS = ("taped", "looped")


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def labels(count, seed=1):
    return torch.randint(CLASSES, (count,), generator=torch.Generator().manual_seed(seed))


def module_of(make, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().to(dtype)


def task_of(module, shape, sizes=(6, 3, 5), batch_size=1, **options):
    dtype = next(module.parameters()).dtype
    parts = [
        (draw(size, *shape, seed=k, dtype=dtype), labels(size, seed=k))
        for k, size in enumerate(sizes)
    ]
    return Task(module, parts, batch_size=batch_size, **options)


def objective(task, pool=None, clients=None):
    ids = torch.arange(task.clients) if clients is None else torch.tensor(clients)
    return HostedObjective(
        task, ids.tolist(), task.loader(ids, 5, "cpu"), "looped", 5, "cpu", pool or WorkerPool(1)
    )


def with_backend(task, way, pool=None):
    hosted = objective(task, pool)
    backend = SampleBackend.of(task, way)
    hosted.__dict__["clipped_sums"] = ClippedSums(backend, hosted.loader, hosted.pool)
    return hosted


def sample_of(counts, samples, seed=3):
    """Random samples, some of them several times, for clients with these counts."""
    total = sum(counts)
    index = torch.randint(samples, (total,), generator=torch.Generator().manual_seed(seed))
    return PoissonSample(index, torch.tensor(counts), torch.tensor(counts), 1.0)


def by_hand(task, theta, sample, bound):
    """Each client's sum, sample by sample in float64."""
    out = torch.zeros(theta.shape, dtype=torch.float64)
    owner = torch.repeat_interleave(sample.counts)
    for client, one in zip(owner.tolist(), sample.index.tolist(), strict=True):
        point = theta[client].clone().requires_grad_()
        own = [array[one : one + 1] for array in task.parts.arrays]
        (gradient,) = torch.autograd.grad(task.loss(point, *own), point)
        size = float(gradient.double().norm())
        if math.isfinite(size):
            out[client] += gradient.double() * min(1.0, bound / size if size else 1.0)
    return out


def scattered(task, scale=0.1):
    n = task.clients
    noise = draw(n, task.parameters, seed=7).to(task.dtype)
    return task.initial(0, range(n)) + scale * noise


def assert_same(found, expected, bound, terms):
    """Equal up to rounding: sums of `terms` numbers of norm at most `bound`."""
    eps = torch.finfo(found.dtype).eps
    error = float((found.double() - expected).norm(dim=1).max())
    assert error <= 60 * max(eps, 1e-12) * bound * max(1, terms)


IMAGE = (2, 12, 11)
CNN = lambda: nn.Sequential(  # noqa: E731
    nn.Conv2d(2, 3, 4, stride=2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Conv2d(3, 5, 2),
    nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(60, 7), nn.Tanh(), nn.Linear(7, CLASSES),
)  # fmt: skip
COUNTS = [(7, 3, 4), (0, 9, 1), (0, 0, 2), (5, 0, 0), (1, 1, 1)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float64, 0.5), (torch.float32, 0.5), (torch.float64, 1e9)]
)
@pytest.mark.parametrize("counts", COUNTS[:3])
@pytest.mark.parametrize("shared", [True, False])
def test_every_backend_sums_clipped_gradients(way, dtype, counts, shared, bound):
    task = task_of(module_of(CNN, dtype), IMAGE)
    theta = scattered(task)
    theta = theta[:1].expand_as(theta) if shared else theta
    sample = sample_of(counts, 14)
    expected = by_hand(task, theta, sample, bound)
    assert bool(expected.abs().sum(1).gt(0).eq(sample.counts > 0).all())
    found = with_backend(task, way).clipped_sum_of(theta, sample, bound)
    scale = max(bound if bound < 1e6 else 0.0, float(expected.norm(dim=1).max()))
    assert_same(found, expected, scale, 14)
    assert bool((found[sample.counts == 0] == 0).all())


@st.composite
def chains(draw_value):
    """A chain of layers and the shape of its inputs."""
    whole = lambda low, high: draw_value(st.integers(low, high))  # noqa: E731
    layers = []
    channels, height, width = shape = (whole(1, 2), whole(3, 9), whole(3, 9))
    for _ in range(whole(0, 4)):
        kind = draw_value(st.sampled_from(["convolution", "max", "mean", "activation"]))
        if kind == "convolution":
            layer = nn.Conv2d(
                channels,
                whole(1, 6),
                (whole(1, 5), whole(1, 3)),
                stride=(whole(1, 3), whole(1, 2)),
                padding=(whole(0, 2), whole(0, 1)),
                dilation=(whole(1, 2), whole(1, 2)),
                bias=draw_value(st.booleans()),
            )
        elif kind in ("max", "mean"):
            size, step = whole(1, 3), whole(1, 3)
            layer = nn.MaxPool2d(size, step) if kind == "max" else nn.AvgPool2d(size)
        else:
            layer = draw_value(st.sampled_from([nn.ReLU, nn.Sigmoid, nn.Tanh]))()
        try:
            _, channels, height, width = layer(torch.zeros(1, channels, height, width)).shape
        except RuntimeError:
            continue  # a window larger than its image
        layers.append(layer)
    hidden = whole(1, 5)
    last = [
        nn.Linear(channels * height * width, hidden, bias=draw_value(st.booleans())), nn.Tanh(),
        nn.Linear(hidden, CLASSES),
    ]  # fmt: skip
    return nn.Sequential(*layers, nn.Flatten(), *last), shape


@settings(max_examples=60, deadline=None)
@given(
    chain=chains(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    counts=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    bound=st.sampled_from([1e-3, 0.3, 10.0]),
    shared=st.booleans(),
)
def test_chains_clip_what_autograd_clips(chain, dtype, counts, bound, shared):
    module, shape = chain
    task = task_of(module.to(dtype), shape)
    theta = scattered(task, 0.3)
    theta = theta[:1].expand_as(theta) if shared else theta
    sample = sample_of(counts, 14)
    expected = by_hand(task, theta, sample, bound)
    found = with_backend(task, "taped").clipped_sum_of(theta, sample, bound)
    scale = max(bound, float(expected.norm(dim=1).max()))
    # Products of layers round differently from torch's convolutions.
    assert_same(found, expected, scale, 30)


@pytest.fixture
def tensor_operations(monkeypatch):
    """As where there was no C compiler."""
    monkeypatch.setattr(native, "_library", lambda: None)


@pytest.mark.usefixtures("tensor_operations")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("counts", COUNTS[:2])
@pytest.mark.parametrize("shared", [True, False])
def test_tensor_operations_do_what_compiled_loops_do(dtype, counts, shared):
    task = task_of(module_of(CNN, dtype), IMAGE)
    theta = scattered(task)
    theta = theta[:1].expand_as(theta) if shared else theta
    sample = sample_of(counts, 14)
    found = with_backend(task, "taped").clipped_sum_of(theta, sample, 0.5)
    assert_same(found, by_hand(task, theta, sample, 0.5), 0.5, 28)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_sums_are_those_of_opacus():
    opacus = pytest.importorskip("opacus")
    module = module_of(CNN)
    task = task_of(module, IMAGE, sizes=(14,))
    sample, bound = sample_of((14,), 14), 0.4
    theta = task.initial(0, [0])
    found = objective(task).clipped_sum_of(theta, sample, bound)
    theirs = opacus.GradSampleModule(module, loss_reduction="sum")
    optimizer = opacus.optimizers.DPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=1.0), noise_multiplier=0.0, max_grad_norm=bound,
        expected_batch_size=14, loss_reduction="sum",
    )  # fmt: skip
    x, y = (array[sample.index] for array in task.parts.arrays)
    functional.cross_entropy(theirs(x), y, reduction="sum").backward()
    norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in theirs.parameters()])
    assert bool(norms.norm(dim=0).gt(bound).any())
    optimizer.clip_and_accumulate()
    total = torch.cat([p.summed_grad.flatten() for p in theirs.parameters()])
    # Opacus adds 10⁻⁶ to each norm.
    torch.testing.assert_close(found[0], total, rtol=1e-4, atol=1e-5 * bound)


CRITERIA = {
    "cross-entropy": (functional.cross_entropy, None),
    "smoothed": (lambda o, y: functional.cross_entropy(o, y, label_smoothing=0.1), None),
    "mse": (functional.mse_loss, (CLASSES,)),
    "sum": (lambda o, y: functional.cross_entropy(o, y, reduction="sum"), None),
    "module": (nn.CrossEntropyLoss(), None),
}


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("way", WAYS)
def test_the_loss_of_a_sample_is_the_criterion_of_one_output(name, way):
    criterion, targets = CRITERIA[name]
    parts = [
        (draw(5, 6, seed=k), labels(5, seed=k) if targets is None else draw(5, *targets, seed=k))
        for k in range(3)
    ]
    module = module_of(lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES)))
    task = Task(module, parts, loss=criterion, batch_size=2)
    theta, sample = scattered(task), sample_of((4, 0, 3), 15)
    found = with_backend(task, way).clipped_sum_of(theta, sample, 0.2)
    assert_same(found, by_hand(task, theta, sample, 0.2), 0.2, 7)


def regression(theta, x, y):
    return (x @ theta - y).square().mean() + 0.1 * theta.square().sum()


def test_any_loss_of_a_vector():
    parts = [(draw(size, 6, seed=k), draw(size, seed=k + 9)) for k, size in enumerate((4, 5))]
    task = Task(draw(6), parts, loss=regression, batch_size=2)
    hosted, sample = objective(task), sample_of((6, 2), 9)
    theta = scattered(task)
    found = hosted.clipped_sum_of(theta, sample, 0.7)
    assert hosted.clipped_sums.backend.way == "taped"
    assert_same(found, by_hand(task, theta, sample, 0.7), 0.7, 8)


def test_a_loss_that_cannot_be_batched_is_looped():
    def forked(theta, x):
        value = (x * theta).sum(1)
        return (value if float(value.detach().sum()) > 0 else 2 * value).mean()

    task = Task(draw(3).abs(), [draw(5, 3)], loss=forked, batch_size=1)
    task.parts.arrays[0].abs_()
    hosted, sample = objective(task), sample_of((4,), 5)
    theta = task.initial(0, [0])
    with pytest.warns(Caution, match="one by one.*float"):
        found = hosted.clipped_sum_of(theta, sample, 0.4)
    assert hosted.clipped_sums.backend.way == "looped"
    assert_same(found, by_hand(task, theta, sample, 0.4), 0.4, 4)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_sample_counts_more_than_the_bound(way, dtype):
    """Exactly, in float64 arithmetic on the result, not up to a tolerance."""
    task = task_of(module_of(CNN, dtype), IMAGE, sizes=(40,))
    hosted = with_backend(task, way)
    theta = scattered(task)
    for bound in (1e-3, 0.1, 0.73, 7.3):
        for one in range(0, 40, 5):
            sample = PoissonSample(torch.tensor([one]), torch.tensor([1]), torch.tensor([1]), 1.0)
            size = float(hosted.clipped_sum_of(theta, sample, bound).double().norm())
            assert size <= bound
            if bound < 0.1:
                assert size > bound * (1 - 1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_that_are_not_finite_count_as_zero(way, bad, dtype):
    task = task_of(module_of(lambda: nn.Linear(4, CLASSES), dtype), (4,), sizes=(6, 6))
    task.parts.arrays[0][2, 1] = bad
    theta = scattered(task)
    sample = PoissonSample(
        torch.tensor([1, 2, 3, 7]), torch.tensor([3, 1]), torch.tensor([6, 6]), 0.5
    )
    found = with_backend(task, way).clipped_sum_of(theta, sample, 0.5)
    assert bool(found.isfinite().all())
    assert_same(found, by_hand(task, theta, sample, 0.5), 0.5, 4)


def test_very_long_and_very_short_gradients():
    task = task_of(module_of(lambda: nn.Linear(4, CLASSES), torch.float32), (4,), sizes=(6,))
    task.parts.arrays[0].copy_(torch.logspace(-25, 18, 24).view(6, 4))
    theta = task.initial(0, [0])
    for way in WAYS:
        for one in range(6):
            sample = PoissonSample(torch.tensor([one]), torch.tensor([1]), torch.tensor([1]), 1.0)
            found = with_backend(task, way).clipped_sum_of(theta, sample, 1e-3)
            assert float(found.double().norm()) <= 1e-3
            assert_same(found, by_hand(task, theta, sample, 1e-3), 1e-3, 1)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shared", [True, False])
def test_pieces_of_any_size_give_the_same_sums(workers, shared, monkeypatch):
    task = task_of(module_of(CNN), IMAGE, sizes=(6, 3, 5, 2))
    theta = scattered(task)
    theta = theta[:1].expand_as(theta) if shared else theta
    sample = sample_of((0, 13, 2, 6), 16)
    pool = WorkerPool(workers)
    whole = with_backend(task, "taped").clipped_sum_of(theta, sample, 0.3)
    workspace = SampleBackend.of(task, "taped").workspace
    for together in (1, 2, 5, 8):
        monkeypatch.setitem(WORKSPACE, "cpu", together * workspace)
        hosted = with_backend(task, "taped", pool)
        with pool.exclusive():
            found = hosted.clipped_sum_of(theta, sample, 0.3)
            again = hosted.clipped_sum_of(theta, sample, 0.3)
        torch.testing.assert_close(found, whole, rtol=1e-10, atol=1e-13)
        assert torch.equal(found, again)


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=7).filter(any),
    cuts=st.sets(st.integers(1, 34)),
)
def test_pieces_cover_every_sample_of_every_client_once(counts, cuts):
    total = sum(counts)
    edges = [0, *sorted(cut for cut in cuts if cut < total), total]
    slices = [slice(low, high) for low, high in pairwise(edges)]
    bounds = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])
    owner = torch.repeat_interleave(torch.tensor(counts)).tolist()
    begun, seen = [], []
    for piece in pieces(bounds, slices):
        assert owner[piece.samples.start] == piece.model
        seen += [piece.begun.start - 1] * piece.carried
        for client, low, high in zip(
            range(piece.begun.start, piece.begun.stop),
            piece.bounds[:-1].tolist(),
            piece.bounds[1:].tolist(),
            strict=True,
        ):
            seen += [client] * (high - low)
            begun.append(client)
    assert seen == owner
    assert begun == list(range(len(counts)))


def test_a_thousand_clients_of_one_model_equal_client_by_client():
    sizes = [1 + k % 5 for k in range(1000)]
    task = task_of(module_of(lambda: models.mlp((4,), CLASSES, hidden=[3])), (4,), sizes=sizes)
    philox = Philox(1, 1)
    hosted = objective(task)
    sample = hosted.poisson_sample(0.6, lambda ids, width: philox.words("s", 0, ids, width))
    assert 0 in sample.counts
    theta = task.initial(0, [0]).expand(1000, -1)
    together = hosted.clipped_sum_of(theta, sample, 0.1)
    apart = hosted.clipped_sum_of(theta.contiguous(), sample, 0.1)
    torch.testing.assert_close(together, apart, rtol=1e-12, atol=1e-14)
    for client in (0, 1, 499, 999):
        alone = objective(task, clients=[client])
        own = alone.poisson_sample(0.6, lambda ids, width: philox.words("s", 0, ids, width))
        found = alone.clipped_sum_of(theta[:1], own, 0.1)
        torch.testing.assert_close(found[0], together[client], rtol=1e-12, atol=1e-14)


def test_the_result_is_written_where_asked():
    task = task_of(module_of(CNN), IMAGE)
    hosted, sample = objective(task), sample_of((2, 0, 3), 14)
    theta = scattered(task)
    before = theta.clone()
    out = torch.full_like(theta, torch.nan)
    assert hosted.clipped_sum_of(theta, sample, 0.1, out) is out
    assert torch.equal(out, hosted.clipped_sum_of(theta, sample, 0.1))
    assert torch.equal(theta, before)
    nothing = PoissonSample(torch.empty(0, dtype=torch.int64), torch.zeros(3).long(), 4, 4)
    assert not bool(hosted.clipped_sum_of(theta, nothing, 0.1, out).any())


class Mixing(nn.Module):
    """A layer that subtracts the mean of the batch."""

    def forward(self, x):
        return x - x.mean(0)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.BatchNorm2d(3, track_running_stats=False),
        lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(300, track_running_stats=False)),
        Mixing,
    ],
)
@pytest.mark.parametrize("zero", [False, True])
def test_a_model_whose_samples_influence_each_other_is_refused(layer, zero):
    module = nn.Sequential(nn.Conv2d(2, 3, 3), layer(), nn.Flatten(), nn.Linear(270, CLASSES))
    if isinstance(module[1], nn.Sequential):
        module[1] = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(270, track_running_stats=False))
    if zero:
        nn.init.zeros_(module[-1].weight)
    task = task_of(module.double(), IMAGE)
    with pytest.raises(Misuse, match=r"cannot treat a sample by itself.*nn\.GroupNorm"):
        objective(task).clipped_sum_of(scattered(task), sample_of((2, 0, 3), 14), 0.1)


def test_a_loss_whose_samples_influence_each_other_is_refused():
    weighted = nn.CrossEntropyLoss(weight=torch.arange(1.0, CLASSES + 1).double())
    task = task_of(module_of(CNN), IMAGE, loss=weighted)
    with pytest.raises(Misuse, match=r"neither the mean nor the sum.*class weights"):
        objective(task).clipped_sum_of(scattered(task), sample_of((2, 0, 3), 14), 0.1)
    centred = Task(
        draw(3),
        [draw(5, 3)],
        loss=lambda theta, x: ((x - x.mean(0)) @ theta).square().mean(),
        batch_size=2,
    )
    with pytest.raises(Misuse, match="neither the mean nor the sum"):
        objective(centred).clipped_sum_of(draw(1, 3), sample_of((2,), 5), 0.1)


@pytest.mark.parametrize("hidden", [False, True])
def test_numbers_that_are_none_hide_no_influence(hidden):
    """Alone a sample has no variance. If nothing has a gradient, nothing can be compared."""

    def loss(theta, x):
        shifted = x * theta - (x * theta).mean(0)
        return shifted.square().sum(0).div(len(x) - (not hidden)).sum()

    start = torch.full((3,), torch.nan if hidden else 1.0)
    start[1:] = 1.0
    task = Task(start, [draw(5, 3)], loss=loss, batch_size=2)
    with pytest.raises(Misuse, match="neither the mean nor the sum"):
        objective(task).clipped_sum_of(draw(1, 3), sample_of((2,), 5), 0.1)


@pytest.mark.parametrize(
    "task",
    [
        lambda: tacit.quadratic(torch.eye(2).repeat(2, 1, 1), torch.ones(2, 2)),
        lambda: tacit.adaptive_filtering(2, 3, batch_size=2),
        lambda: Task(draw(3), [(draw(4, 3), draw(4))] * 2, loss=regression),
    ],
)
def test_data_without_samples_are_refused(task):
    task = task()
    hosted = objective(task)
    with pytest.raises(Misuse, match=r"data that can be sampled.*batch_size"):
        hosted.clipped_sum_of(hosted.theta0(), sample_of((1, 1), 2), 0.1)
    with pytest.raises(Misuse, match=r"data that can be sampled.*batch_size"):
        hosted.poisson_sample(0.1, lambda ids, width: torch.zeros(len(ids), width))


@pytest.mark.parametrize("bound", [0, -1.0, math.nan])
def test_a_bound_that_is_none_is_refused(bound):
    task = task_of(module_of(CNN), IMAGE)
    with pytest.raises(Misuse, match=r"clipping bound is .*above 0"):
        objective(task).clipped_sum_of(scattered(task), sample_of((2, 0, 3), 14), bound)


# --- Samples in a fixed place, as GPUs use them ---------------------------------------------------


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("together", [1, 1000])
def test_samples_in_a_fixed_place_give_the_same_sums(counts, shared, together, monkeypatch):
    monkeypatch.setattr(device_samples, "GRAIN", 3)
    task = task_of(module_of(CNN), IMAGE)
    hosted = with_backend(task, "taped")
    workspace = hosted.clipped_sums.backend.workspace
    theta = scattered(task)
    theta = theta[:1].expand_as(theta) if shared else theta
    first = replace(sample_of((4, 5, 6), 14), sizes=torch.tensor([3, 4, 9]))
    second = sample_of(counts, 14, seed=9)
    expected = [hosted.clipped_sum_of(theta, sample, 0.3) for sample in (first, second)]
    monkeypatch.setitem(WORKSPACE, "cpu", together * workspace)
    place = hosted.clipped_sums.place(theta, first)
    address = place.packed.data_ptr()
    out = torch.full_like(expected[0], torch.nan)
    hosted.clipped_sums.write_on(theta, place, 0.3, out)
    torch.testing.assert_close(out, expected[0], rtol=1e-10, atol=1e-13)
    assert place.load(second)
    out.fill_(torch.nan)
    hosted.clipped_sums.write_on(theta, place, 0.3, out)
    torch.testing.assert_close(out, expected[1], rtol=1e-10, atol=1e-13)
    assert place.packed.data_ptr() == address


@pytest.mark.parametrize("shared", [True, False])
def test_a_place_says_if_samples_do_not_fit(shared, monkeypatch):
    monkeypatch.setattr(device_samples, "GRAIN", 1)
    sample = sample_of((4, 5, 6), 14)
    place = device_samples.DeviceSample.of(sample, shared, 4, "cpu")
    before = place.packed.clone()
    assert not place.load(sample_of((20, 0, 1), 14))
    assert torch.equal(place.packed, before)


@pytest.mark.parametrize(
    ("fit", "size"), [(1, 1), (23, 23), (45, 32), (64, 64), (100, 64), (150, 128), (1000, 192)]
)
@pytest.mark.parametrize("counts", [(0, 0), (3, 0), (100, 60)])
def test_the_size_of_a_pass_is_what_fits_and_stays(fit, size, counts, monkeypatch):
    """Whatever was drawn, and however much memory is free later."""
    hosted = with_backend(task := task_of(module_of(CNN), IMAGE), "taped")
    theta = task.initial(0, [0]).expand(2, -1)
    sample = replace(sample_of(counts, 14), sizes=torch.tensor([100, 60]))
    workspace = hosted.clipped_sums.backend.workspace
    for now in (fit, 2000, 1):
        monkeypatch.setitem(WORKSPACE, "cpu", now * workspace)
        place = hosted.clipped_sums.place(theta, sample)
        assert place.size == size
        assert len(place.packed) == -(-160 // size)


def test_a_draw_beyond_the_capacity_is_not_truncated(monkeypatch):
    monkeypatch.setattr(device_samples, "GRAIN", 4)
    task = task_of(module_of(CNN), IMAGE)
    hosted = with_backend(task, "taped")
    theta = task.initial(0, [0]).expand(3, -1)
    sample = replace(sample_of((9, 0, 8), 14), sizes=torch.tensor([3, 0, 4]))
    captured = []

    def capture(work, theta, index, out):  # as on a GPU, without capturing anything
        captured.append((len(theta), index.shape[1], len(out)))
        return work

    monkeypatch.setattr(clipped, "captured_pass", capture)
    out = torch.full(theta.shape, torch.nan, dtype=theta.dtype)
    hosted.clipped_sums._replay(theta, sample, 0.3, out)
    torch.testing.assert_close(
        out, hosted.clipped_sum_of(theta, sample, 0.3), rtol=1e-10, atol=1e-13
    )
    # Three passes of eight samples, by one captured one.
    assert captured == [(1, 8 + 4 + 1, 3)]
    hosted.clear_captures()
    hosted.clipped_sums._replay(theta, sample, 0.3, out)
    assert len(captured) == 2


def test_models_of_their_own_need_a_place_of_their_own():
    task = task_of(module_of(CNN), IMAGE)
    hosted, theta, sample = objective(task), scattered(task), sample_of((1, 2, 3), 14)
    place = hosted.clipped_sums.place(theta[:1].expand_as(theta), sample)
    with pytest.raises(ValueError, match="models of their own"):
        hosted.clipped_sums.write_on(theta, place, 0.3, torch.empty_like(theta))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gradients_that_are_not_finite_count_as_zero_in_a_fixed_place(bad):
    task = task_of(module_of(CNN), IMAGE)
    task.parts.arrays[0][2, 1] = bad
    hosted, theta = with_backend(task, "taped"), task.initial(0, [0]).expand(3, -1)
    sample = replace(sample_of((2, 1, 1), 14), index=torch.tensor([1, 2, 3, 7]))
    out = torch.empty(theta.shape, dtype=theta.dtype)
    hosted.clipped_sums.write_on(theta, hosted.clipped_sums.place(theta, sample), 0.5, out)
    assert_same(out, by_hand(task, theta, sample, 0.5), 0.5, 4)
