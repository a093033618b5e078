import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.core.errors import Misuse
from tacit.tasks.parts import Parts, as_part

X = torch.zeros(4, 8)


class Squares:
    """A map-style dataset of single values."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        return float(k * k)


class Pairs(Squares):
    def __getitem__(self, k):
        return torch.full((2,), float(k)), k % 3


def test_split_gives_each_client_its_samples():
    x, y = torch.arange(12.0).reshape(6, 2), torch.arange(6)
    parts = Parts.split((x, y), [[4, 0], np.array([5]), torch.tensor([1, 2, 3])])
    assert parts.clients == 3
    assert parts.sizes.tolist() == [2, 1, 3]
    assert torch.equal(parts.of(0)[0], x[[4, 0]])
    assert [parts.of(i)[1].tolist() for i in range(3)] == [[4, 0], [5], [1, 2, 3]]
    assert parts.arrays[0] is x


def test_clients_may_share_samples():
    parts = Parts.split((torch.arange(3),), [[0, 1], [1, 2]])
    assert [parts.of(i)[0].tolist() for i in range(2)] == [[0, 1], [1, 2]]


def test_concatenated_parts_are_the_given_ones():
    given = [(torch.randn(n, 2), torch.arange(n)) for n in (3, 1, 4)]
    parts = Parts.concatenate(given)
    assert parts.sizes.tolist() == [3, 1, 4]
    for client, (x, y) in enumerate(given):
        assert torch.equal(parts.of(client)[0], x)
        assert torch.equal(parts.of(client)[1], y)


def test_arrays_of_different_lengths_cannot_be_concatenated():
    with pytest.raises(Misuse, match=r"client 1 have \[3, 2\] samples.*as many targets as inputs"):
        Parts.concatenate([(torch.zeros(3), torch.zeros(3)), (torch.zeros(3), torch.zeros(2))])


@pytest.mark.parametrize("other", [(torch.zeros(4, 5), torch.zeros(4)), (X, torch.zeros(4, 1))])
def test_samples_of_different_shapes_cannot_be_concatenated(other):
    message = misuse_message(Parts.concatenate, [(X, torch.zeros(4)), other])
    first, second = (str(tuple(array.shape[1:])) for array in other)
    assert_mentions(message, f"client 1 have the shapes {first}, {second}", "client 0 (8,), ()")


def test_clients_may_have_other_types_of_whole_numbers():
    y = torch.arange(3)
    parts = Parts.concatenate([(y.to(torch.uint16),), (y,), (y.to(torch.uint8),)])
    assert all(torch.equal(parts.of(client)[0], y) for client in range(3))


def test_a_scalar_has_no_samples():
    with pytest.raises(Misuse, match="no sample dimension"):
        Parts.concatenate([(torch.tensor(1.0),)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Parts.split((torch.arange(3),), [[0, 1], []]),
        lambda: Parts.concatenate([(torch.zeros(1),), (torch.zeros(0),)]),
        lambda: Parts.concatenate([(X, X), (torch.zeros(0), torch.zeros(0))]),
    ],
)
def test_a_client_without_samples_is_refused(make):
    with pytest.raises(Misuse, match="Client 1 has no samples"):
        make()


@pytest.mark.parametrize(
    "make", [lambda: Parts.split((torch.arange(3),), []), lambda: Parts.concatenate([])]
)
def test_no_clients_are_refused(make):
    with pytest.raises(Misuse, match="no clients"):
        make()


def test_a_part_can_be_a_tensor_an_array_or_a_tuple_of_them():
    x = torch.randn(3, 2)
    assert as_part(x, 0) == (x,)
    (same,) = as_part(x.numpy(), 0)
    assert torch.equal(same, x)
    a, b = as_part([x, np.arange(3)], 0)
    assert a is x
    assert b.tolist() == [0, 1, 2]


def test_a_part_can_be_a_dataset():
    (squares,) = as_part(Squares(4), 0)
    assert squares.tolist() == [0, 1, 4, 9]
    x, y = as_part(Pairs(4), 0)
    assert x.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert y.tolist() == [0, 1, 2, 0]
    inputs, targets = torch.randn(5, 3), torch.arange(5)
    x, y = as_part(TensorDataset(inputs, targets), 0)
    assert torch.equal(x, inputs)
    assert torch.equal(y, targets)


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ((), "Client 7 has an empty part"),
        (Squares(0), "Client 7 has no samples"),
        (3.5, "client 7 is a float"),
        ({"x": X}, "client 7 is a dict"),
        (X.to_sparse(), "client 7 holds a sparse tensor"),
        ((X.to("meta"), X), "client 7 holds a meta tensor"),
    ],
)
def test_other_parts_are_refused(part, problem):
    with pytest.raises(Misuse, match=problem):
        as_part(part, 7)


def test_nested_tensors_are_refused():
    part = (torch.nested.nested_tensor([X, X], layout=torch.jagged), X)
    with pytest.raises(Misuse, match="client 7 holds a nested tensor"):
        as_part(part, 7)


DIGITS = tacit.data.load("mnist-mini", limit_train=100, limit_test=10)
LINEAR = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))


def private_run(parts):
    task = tacit.Task(LINEAR, parts, batch_size=4)
    graph = tacit.Topology.ring(len(parts)).mixing("metropolis")
    return tacit.run(
        task, tacit.PrivateSGD(lr=0.1), graph, steps=2, privacy=tacit.Privacy(epsilon=3)
    )


def divided(*indices, split=DIGITS.train):
    return split.parts([torch.as_tensor(index) for index in indices])


SAMPLES = TensorDataset(DIGITS.train.x, DIGITS.train.y)


def subsets(*indices, of=SAMPLES):
    return [Subset(of, list(index)) for index in indices]


@pytest.mark.parametrize(
    "parts",
    [
        divided(range(40), range(40), range(40)),
        divided(range(40), range(39, 60), range(60, 100)),
        [*divided(range(40), range(40, 60)), *divided(range(59, 99))],
        [(DIGITS.train.x, DIGITS.train.y)] * 3,
        [(DIGITS.train.x[k : k + 50], DIGITS.train.y[k : k + 50]) for k in (0, 25, 50)],
        [Subset(SAMPLES, range(k, k + 40)) for k in (0, 30, 60)],
        [Subset(Subset(SAMPLES, range(50, 100)), range(40)), *subsets(range(20), range(89, 99))],
        [SAMPLES] * 3,
        subsets(range(90, 100), range(-1, -20, -1), torch.arange(30)),
    ],
    ids=[
        "the same rows", "one row", "several calls", "the same arrays", "overlapping views",
        "overlapping subsets", "a subset of a subset", "the same Dataset", "from the end",
    ],
)  # fmt: skip
def test_a_guarantee_is_refused_if_several_clients_hold_a_row(parts):
    with pytest.raises(Misuse, match="Some samples occur several times"):
        private_run(parts)


def test_a_guarantee_for_rows_that_only_one_client_holds():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        private_run([*divided(range(40), range(40, 80)), *divided(range(10), split=DIGITS.test)])


@pytest.mark.parametrize("of", [SAMPLES, Subset(SAMPLES, list(range(99, -1, -1)))])
def test_subsets_that_share_no_sample_are_trained_on(of):
    others = TensorDataset(DIGITS.test.x, DIGITS.test.y)
    parts = [
        *subsets(range(30), range(30, 60), range(60, 100), of=of),
        *subsets(range(9), of=others),
    ]
    with pytest.warns(tacit.Caution, match="plain arrays"):
        private_run(parts)


class Named(Pairs):
    """Samples by name."""

    def __getitem__(self, k):
        return super().__getitem__(int(k))


class Twice(Subset):
    """Every sample of a subset two times."""

    def __len__(self):
        return 2 * len(self.indices)

    def __getitem__(self, k):
        return self.dataset[self.indices[k // 2]]

    def __getitems__(self, indices):
        return [self[k] for k in indices]


@pytest.mark.parametrize(
    "given", [Subset(Named(4), ["0", "3"]), Twice(Pairs(9), [1, 7])], ids=["named", "repeated"]
)
def test_subsets_of_other_kinds_are_datasets_of_their_own(given):
    part = as_part(given, 0)
    assert len(part[0]) == len(given)
    assert part.dataset is given
    assert part.rows.tolist() == list(range(len(given)))


def test_plain_arrays_do_not_say_whose_rows_they_are():
    parts = [(x.clone(), y) for x, y in divided(range(40), range(40, 80), range(80, 100))]
    with pytest.warns(tacit.Caution, match="plain arrays"):
        private_run(parts)
