import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

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
        ((torch.nested.nested_tensor([X, X], layout=torch.jagged), X), "holds a nested tensor"),
    ],
)
def test_other_parts_are_refused(part, problem):
    with pytest.raises(Misuse, match=problem):
        as_part(part, 7)
