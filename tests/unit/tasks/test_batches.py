import pytest
import torch
from hypothesis import given, settings, strategies as st

from tacit.core.errors import Misuse
from tacit.core.randomness import permutations
from tacit.core.workers import WorkerPool
from tacit.tasks import Task
from tacit.tasks.batches import FullBatchLoader, MiniBatchSource, one_chunk
from tacit.tasks.parts import Parts


def owned(sizes):
    """Parts in which client i owns `sizes[i]` samples, scattered over a shared array."""
    count = sum(sizes)
    scattered = torch.randperm(count, generator=torch.Generator().manual_seed(count)).split(sizes)
    return Parts.split(
        (torch.arange(count), torch.arange(count) * 10), [index.numpy() for index in scattered]
    )


def loader(parts, batch, ids=None, seed=0):
    hosted = torch.arange(parts.clients) if ids is None else torch.tensor(ids)
    return MiniBatchSource(parts, batch).loader(hosted, hosted, seed, "cpu")


@st.composite
def unequal(draw):
    batch = draw(st.integers(1, 5))
    return draw(st.lists(st.integers(batch, 17), min_size=1, max_size=5)), batch


@settings(max_examples=40)
@given(unequal(), st.integers(0, 3))
def test_an_epoch_visits_each_sample_at_most_once_and_as_many_as_fit(case, epoch):
    sizes, batch = case
    parts = owned(sizes)
    batches = loader(parts, batch)
    for client, size in enumerate(sizes):
        per_epoch = size // batch
        numbers = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        seen = [int(k) for number in numbers for k in batches.indices(number)[client]]
        assert len(seen) == len(set(seen)) == size // batch * batch
        assert set(seen) <= set(parts.of(client)[0].tolist())


@settings(max_examples=40)
@given(unequal(), st.lists(st.integers(0, 40), min_size=1, max_size=8))
def test_a_batch_is_a_function_of_its_number_alone(case, numbers):
    sizes, batch = case
    parts = owned(sizes)
    in_any_order = loader(parts, batch)
    for number in numbers:
        assert torch.equal(in_any_order.indices(number), loader(parts, batch).indices(number))


@settings(max_examples=40)
@given(unequal(), st.data())
def test_batches_do_not_depend_on_other_hosted_clients(case, data):
    sizes, batch = case
    ids = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1)))
    parts = owned(sizes)
    everyone, some = loader(parts, batch), loader(parts, batch, ids)
    for number in range(8):
        assert torch.equal(some.indices(number), everyone.indices(number)[ids])


def test_epochs_seeds_and_clients_have_different_orders():
    parts = Parts.split((torch.arange(60),), [range(60), range(60)])
    first = loader(parts, 60).indices(0)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, loader(parts, 60).indices(1))
    assert not torch.equal(first, loader(parts, 60, seed=1).indices(0))
    assert torch.equal(first, loader(parts, 60).indices(0))


def test_an_order_is_drawn_once_per_epoch(monkeypatch):
    drawn = []

    def counting(key, epochs, clients, sizes, device):
        drawn.extend(zip(clients.tolist(), epochs.tolist(), strict=True))
        return permutations(key, epochs, clients, sizes, device)

    monkeypatch.setattr("tacit.tasks.batches.permutations", counting)
    batches = loader(owned([6, 9]), 3)
    for number in range(6):
        batches.indices(number)
    assert sorted(drawn) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_the_remainder_of_an_epoch_changes():
    batches = loader(owned([7]), 3)
    left_out = {
        frozenset(range(7))
        - {int(k) for number in (2 * e, 2 * e + 1) for k in batches.indices(number)[0]}
        for e in range(20)
    }
    assert all(len(one) == 1 for one in left_out)
    assert len(left_out) > 3


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_groups_hold_the_batches_of_all_arrays(chunk):
    parts = owned([6, 9, 4])
    batches = loader(parts, 2)
    index = batches.indices(5)
    seen = torch.zeros(3, dtype=torch.int64)
    for rows, load in batches.chunks(5, lambda count: WorkerPool(1).split(count, chunk)):
        x, y = load()
        assert len(x) <= chunk
        assert torch.equal(x, index[rows])
        assert torch.equal(y, index[rows] * 10)
        seen[rows] += 1
    assert seen.tolist() == [1, 1, 1]


def test_a_client_with_less_than_a_batch_is_refused_by_its_number():
    def task(batch_size):
        parts = [torch.zeros(size) for size in (8, 3, 8)]
        return Task(torch.zeros(2), parts, loss=lambda theta, x: theta.sum(), batch_size=batch_size)

    with pytest.raises(Misuse, match=r"Client 1 has 3 samples.*Lower batch_size"):
        task(4)
    assert task(3).batch_size == 3


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_full_batches_are_grouped_by_shape(chunk):
    parts = [
        (torch.full((size, 2), float(k)), torch.full((size,), k))
        for k, size in enumerate((3, 5, 3, 3, 5))
    ]
    seen = []
    for rows, load in FullBatchLoader(parts, "cpu").chunks(
        0, lambda count: WorkerPool(1).split(count, chunk)
    ):
        x, y = load()
        members = torch.arange(5)[rows].tolist()
        assert len(members) <= chunk
        assert len({len(parts[k][0]) for k in members}) == 1
        for at, k in enumerate(members):
            assert torch.equal(x[at], parts[k][0])
            assert torch.equal(y[at], parts[k][1])
        seen += members
    assert sorted(seen) == [0, 1, 2, 3, 4]
    if chunk == 100:
        assert seen == [0, 2, 3, 1, 4]


def test_full_batches_are_the_same_for_every_number():
    parts = [(torch.randn(2),) for _ in range(3)]
    whole = FullBatchLoader(parts, "cpu")
    ((_, first),) = whole.chunks(0, one_chunk)
    ((_, later),) = whole.chunks(77, one_chunk)
    assert torch.equal(first()[0], later()[0])


def test_a_node_with_only_its_own_part_draws_the_same_batches():
    parts = owned([8, 12, 9])
    alone = Parts(parts.arrays, parts.order[8:20], torch.tensor([0, 12]))
    here = MiniBatchSource(alone, 4).loader(torch.tensor([1]), torch.tensor([0]), 7, "cpu")
    everyone = loader(parts, 4, seed=7)
    for number in (0, 2, 3, 7):
        assert torch.equal(here.indices(number)[0], everyone.indices(number)[1])
