"""How much one sample can change a sum: at most the bound, in the computer's arithmetic too."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

import tacit
from tacit.algorithms.private_algorithm import prepare
from tacit.core.errors import Misuse
from tacit.core.hosted_clients import Sampling
from tacit.core.workers import WorkerPool
from tacit.engines.gradients.clipped import ClippedSums, pass_size
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.gradients.sample_passes import SampleBackend
from tacit.gradients.products import OuterProducts, write_clipped_sums
from tacit.gradients.workspace import WORKSPACE
from tacit.privacy.mechanism import rounding_of

IMAGE = (1, 28, 28)
# A little more than 1: gradients of length 1 are not clipped.
BOUND = 1.000001


def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def wide_perceptron():
    """As many samples as fit into memory are no multiple of anything."""
    first, second = nn.Linear(784, 256), nn.Linear(256, 128)
    return nn.Sequential(nn.Flatten(), first, nn.Sigmoid(), second, nn.Tanh(), nn.Linear(128, 10))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


def normed():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.GroupNorm(2, 8), nn.Linear(8, 10))


@pytest.mark.parametrize(
    ("make", "workers"),
    [(perceptron, 1), (perceptron, 2), (wide_perceptron, 2), (convolutions, 2), (normed, 2)],
)
def test_a_sample_does_not_change_a_bit_of_the_gradients_of_others(make, workers):
    """Each of 229 clients has one sample, so that each sum is one gradient."""
    clients = 229
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(clients, *IMAGE, generator=generator)
    y = torch.randint(10, (clients,), generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        parts = list(zip(x.split(1), y.split(1), strict=True))
        task = tacit.Task(make(), parts, batch_size=1)
    ids, pool = torch.arange(clients), WorkerPool(workers)
    hosted = HostedObjective(
        task, ids.tolist(), task.loader(ids, 0, "cpu"), "stacked", 0, "cpu", pool
    )
    backend = SampleBackend.of(task, "taped")
    hosted.__dict__["clipped_sums"] = ClippedSums(backend, hosted.loader, pool)
    theta = task.initial(0, [0]).expand(clients, -1)

    def gradients(present):
        absent = (~present).long()[:, None] << 32
        sample = hosted.poisson_sample(0.9, lambda rows, width: absent[rows].expand(-1, width))
        assert len(sample.index) == int(present.sum())
        return hosted.clipped_sum_of(theta, sample, 0.1)

    everyone = gradients(torch.ones(clients, dtype=torch.bool))
    for missing in range(0, clients, 19):
        present = ids != missing
        assert torch.equal(gradients(present)[present], everyone[present])


def test_the_size_of_a_pass_is_public():
    # Two workers take 2048 and two standard deviations together; more takes another pass.
    assert pass_size(60_000, 2048 / 60_000, 2, 10_000) == 1088
    # What does not fit into memory takes several passes.
    assert pass_size(60_000, 2048 / 60_000, 2, 480) == 384
    assert pass_size(60_000, 2048 / 60_000, 2, 1) == 1
    assert pass_size(0, 0.5, 2, 100) == 32


@pytest.mark.parametrize("hidden", [8, 61, 256, 1000, 20_000])
def test_passes_have_no_rest(hidden):
    """A multiple of 32 samples."""
    parts = [(torch.zeros(4, 784), torch.arange(4))]
    model = nn.Sequential(nn.Linear(784, hidden), nn.Linear(hidden, 10))
    task = tacit.Task(model, parts, batch_size=1)
    size = SampleBackend.of(task, "taped").samples_per_pass("cpu")
    assert size > 0
    assert size % 32 == 0


@pytest.mark.parametrize(("parameters", "way"), [(1000, "taped"), (300_000, "looped")])
def test_samples_whose_gradients_do_not_fit_go_one_by_one(parameters, way, monkeypatch):
    monkeypatch.setitem(WORKSPACE, "cpu", 1 << 20)
    parts = [torch.zeros(4, 1)]
    start = torch.zeros(parameters)
    task = tacit.Task(start, parts, loss=lambda theta, x: ((theta - x) ** 2).mean(), batch_size=1)
    found = SampleBackend.first_usable(task, start, (parts[0][:2],))
    assert found.way == way
    assert ("memory" in found.reason) == (way == "looped")


def test_numbers_that_overflow_in_some_samples_are_no_influence_on_others():
    def gradients(theta, arrays):
        return [OuterProducts(torch.where(arrays[0] > 1, torch.nan, arrays[0] * theta))]

    backend = SampleBackend("taped", gradients, 1)
    samples = (torch.linspace(-2, 2, 3 * 65).view(65, 3),)
    assert backend.ignores_others(torch.ones(3), samples)
    assert not SampleBackend(
        "taped", lambda theta, arrays: [OuterProducts(arrays[0] - arrays[0].mean(0))], 1
    ).ignores_others(torch.ones(3), samples)


@pytest.mark.parametrize("place", [None, 0, 31, 255])
def test_a_place_that_matters_is_found(place):
    """One bit of one number is enough."""

    def gradients(theta, arrays):
        found = arrays[0] * theta
        if place is not None:
            found[place, 1] = found[place, 1].nextafter(torch.tensor(9.0))
        return [OuterProducts(found)]

    backend = SampleBackend("taped", gradients, 1)
    assert backend.ignores_places(torch.ones(3), (torch.randn(1, 3),)) == (place is None)


def test_samples_go_one_by_one_where_places_matter(monkeypatch):
    parts = [(torch.zeros(4, 784), torch.arange(4))]
    task = tacit.Task(nn.Linear(784, 10), parts, batch_size=1)
    theta, loader = task.initial(0, [0])[0], task.loader(torch.arange(1), 0, "cpu")
    assert ClippedSums.of(task, loader, theta, WorkerPool(1)).backend.way == "taped"
    monkeypatch.setattr(SampleBackend, "ignores_places", lambda *_: False)
    assert ClippedSums.of(task, loader, theta, WorkerPool(1)).backend.way == "looped"


@pytest.mark.parametrize(
    "function",
    [torch.sigmoid, torch.tanh, lambda x: x.softmax(1)],
    ids=["sigmoid", "tanh", "softmax"],
)
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)], ids=["samples last", "samples first"])
def test_the_place_in_a_pass_does_not_matter(function, order):
    """Every number of a sample is rounded alike at each of 32, 64 or 96 places."""
    samples = 4 * torch.randn(400, 7, generator=torch.Generator().manual_seed(0))
    for size in (32, 64, 96):
        for sample in samples:
            places = sample[None, :, None].expand(1, 7, size).permute(order).contiguous()
            found = function(places.permute(order))
            assert torch.equal(found, found[:, :, :1].expand_as(found))


def ill_conditioned(present):
    """Numbers of at most 1 whose sum in float32, four by four, changes by 4 with one of them.

    The first ones sum to just below or just above a power of two, from where on numbers of a little
    more than half a unit in the last place count once or twice. Those make the sum exceed the next
    power of two or not, and again.
    """
    total, gap = 2**13, 1
    numbers = [torch.ones(total - 1), torch.tensor([float(present)])]
    for stage in range(2):
        half = 2.0 ** (13 + stage - 24)
        numbers.append(torch.full((4 * int(gap / half),), half * (1 + 2.0**-10) / 4))
        total += 2 * gap
        gap *= 2
        if stage == 0:
            numbers.append(torch.ones(2**14 - total))
            total = 2**14
    return torch.cat(numbers)[:, None]


def in_float32(numbers):
    """Their sum, four by four."""
    fours = nn.functional.pad(numbers[:, 0], (0, -len(numbers) % 4)).view(-1, 4).sum(1)
    return float(fours.numpy().cumsum()[-1])


def loss(theta, x):
    return (theta * x).sum(1).mean()


def private(x):
    """A prepared algorithm for a client with the samples x, and its objective."""
    task = tacit.Task(torch.zeros(1), [x, torch.zeros_like(x)], loss=loss, batch_size=len(x))
    graph = tacit.Topology.complete(2).mixing("metropolis")
    promise = tacit.Privacy(epsilon=1.0, delta=1e-6, honest=1, clip=BOUND)
    algorithm = prepare(tacit.PrivateSGD(lr=1.0), promise, task, graph, 1)
    loader = task.loader(torch.tensor([0]), 0, "cpu", positions=torch.tensor([0]))
    return algorithm.mechanism, HostedObjective(task, [0], loader, "looped", 0, "cpu")


def everything(mechanism):
    def draw(rows, width):
        return torch.zeros(len(rows), width).long()

    return Sampling(1.0, mechanism.bound, draw, mechanism.rounding)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("passes", [None, 64, 1000])
def test_one_sample_changes_the_integers_by_at_most_what_noise_is_made_for(
    workers, passes, monkeypatch
):
    """Also in passes of so many samples, as on a GPU."""

    def integers(present):
        mechanism, hosted = private(ill_conditioned(present))
        hosted = replace(hosted, pool=WorkerPool(workers))
        sampling, theta = everything(mechanism), torch.zeros(1, 1)
        if passes is None:
            total = hosted.clipped_sum(theta, sampling, 0)
        else:
            workspace = hosted.clipped_sums.backend.workspace
            monkeypatch.setitem(WORKSPACE, "cpu", passes * workspace)
            place = hosted.clipped_sums.place(theta, hosted.drawn(sampling, 0))
            total = torch.empty(1, 1)
            hosted.clipped_sums.write_on(theta, place, sampling.clip, total)
        return mechanism.code, int(mechanism.code.encode(total)[0, 0])

    assert in_float32(ill_conditioned(True)) - in_float32(ill_conditioned(False)) > 3.9
    code, absent = integers(False)
    _, present = integers(True)
    assert 0 < present - absent <= code.scale * BOUND + 1


@settings(max_examples=60)
@given(
    count=st.integers(2, 40_000),
    size=st.sampled_from([1.0, 0.5, 1e-4]),
    last=st.sampled_from([-1.0, 1.0]),
)
def test_one_more_sample_changes_a_sum_by_at_most_the_bound(count, size, last):
    """Equal gradients, and one more: the share that is left to rounding is the same."""
    without = torch.full((count, 1), size)
    mechanism, hosted = private(without)
    other = private(torch.cat((without, torch.tensor([[last]]))))[1]
    sampling, theta = everything(mechanism), torch.zeros(1, 1)
    one, two = (each.clipped_sum(theta, sampling, 0).double() for each in (hosted, other))
    assert abs(float(two - one)) <= BOUND


def test_sums_that_lose_too_many_digits_are_refused():
    mechanism, hosted = private(torch.ones(5000, 1))
    few = replace(everything(mechanism), rounding=1e-6)
    with pytest.raises(Misuse, match=r"draws 5,000 samples.*loses more digits"):
        hosted.clipped_sum(torch.zeros(1, 1), few, 0)
    with pytest.raises(Misuse, match=r"Sums over 1,000,000 samples.*Lower the batch size"):
        rounding_of(1e6, 1.0)


def test_whether_a_run_begins_does_not_depend_on_the_data():
    """Two gradients that almost cancel, or that are not finite, do not matter to the check."""
    for x in ([[1.0], [-1.0 + 1e-6]], [[0.0], [0.0]], [[float("nan")], [1e38]]):
        mechanism, hosted = private(torch.tensor(x))
        assert hosted.clipped_sum(torch.zeros(1, 1), everything(mechanism), 0).isfinite().all()


@pytest.mark.parametrize("bound", [1e-6, 1e-3])
def test_a_factor_with_one_digit_cannot_make_a_gradient_too_long(bound):
    """A subnormal number times a factor is rounded by up to a factor of two."""
    width = max(16, int((1.3 * bound / 4.7e-7) ** 2))
    left, right = torch.full((1, 1), 2.0**-149), torch.full((1, width), 3.3e38)
    out = torch.zeros(1, width)
    write_clipped_sums([OuterProducts(right, left)], bound, [(torch.tensor([0, 1]), out)])
    assert float(out.double().norm()) <= bound
