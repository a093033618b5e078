"""Each sample belongs to exactly one client, and each client has the minimum."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st

from support.misuse import assert_mentions, misuse_message
from tacit.core.errors import Misuse
from tacit.data import (
    Split,
    classes_per_client,
    explicit,
    iid,
    missing_classes,
    partition,
    quantity,
)
from tacit.data.allocation import raise_to_minimum, split_proportionally, take_from_largest

seeds = st.integers(0, 2**32)
alphas = st.floats(1e-9, 1e9)


@st.composite
def cases(draw, most_classes: int = 8):
    """Labels, a number of clients, a seed, and a minimum for which there are enough samples."""
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=most_classes))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.random.default_rng(draw(seeds)).permutation(labels)
    clients = draw(st.integers(1, max(1, min(40, len(labels)))))
    minimum = draw(st.integers(0, len(labels) // clients))
    return labels, clients, draw(seeds), minimum


def check(parts, n: int, clients: int, minimum: int) -> None:
    assert len(parts) == clients
    assert all(part.dtype == torch.int64 for part in parts.indices)
    assert torch.equal(torch.sort(torch.cat(parts.indices)).values, torch.arange(n))
    assert parts.sizes.min() >= minimum


def same(one, other) -> bool:
    return all(map(torch.equal, one.indices, other.indices))


@pytest.mark.parametrize("kind", ["iid", "quantity", "dirichlet"])
@given(cases(), alphas)
def test_random_partitions(kind, case, alpha):
    labels, clients, seed, minimum = case
    options = {} if kind == "iid" else {"alpha": alpha}
    parts, again = (
        partition(kind, labels, clients, seed=seed, minimum=minimum, **options) for _ in range(2)
    )
    check(parts, len(labels), clients, minimum)
    assert same(parts, again)
    assert kind != "iid" or np.ptp(parts.sizes) <= 1


@given(cases(), st.integers(1, 8))
def test_classes(case, k):
    """Without a minimum it always succeeds, with exactly k classes if there are enough data."""
    labels, clients, seed, _ = case
    sizes = np.bincount(labels)
    assume(k <= len(sizes) <= clients * k)
    parts = classes_per_client(labels, clients, k, seed, 0)
    check(parts, len(labels), clients, 0)
    held = (parts.counts(labels, len(sizes)) > 0).sum(1)
    if np.minimum(sizes, clients).sum() >= clients * k:
        assert (held == k).all()
    else:
        assert held.max() <= k
    assert same(parts, classes_per_client(labels, clients, k, seed, 0))


@given(cases(), st.integers(1, 8))
def test_classes_with_a_minimum(case, k):
    """It fails only if data are scarce or a class is rare."""
    labels, clients, seed, minimum = case
    sizes = np.bincount(labels)
    classes = len(sizes)
    assume(k <= classes <= clients * k)
    scarce = np.minimum(sizes, clients).sum() < clients * k or 2 * minimum * clients > len(labels)
    if scarce or sizes.min() < minimum:
        try:
            parts = classes_per_client(labels, clients, k, seed, minimum)
        except Misuse:
            return
    else:
        parts = classes_per_client(labels, clients, k, seed, minimum)
    check(parts, len(labels), clients, minimum)
    assert (parts.counts(labels, classes) > 0).sum(1).max() <= k


@given(cases(), st.integers(1, 7))
def test_missing(case, k):
    """Each client lacks its own k classes, and the others share a class equally."""
    labels, clients, seed, _ = case
    sizes = np.bincount(labels)
    classes = len(sizes)
    assume(k < classes)
    held = np.array(
        [[(label - i * k) % classes >= k for label in range(classes)] for i in range(clients)]
    )
    if not held.any(0).all():
        with pytest.raises(Misuse, match="no client would hold class"):
            missing_classes(labels, clients, k, seed, 0)
        return
    parts = missing_classes(labels, clients, k, seed, 0)
    check(parts, len(labels), clients, 0)
    counts = parts.counts(labels, classes)
    assert not counts[~held].any()
    for label in range(classes):
        assert np.ptp(counts[held[:, label], label]) <= 1
    assert same(parts, missing_classes(labels, clients, k, seed, 0))


def test_missing_digits_as_in_the_paper():
    labels = np.arange(4000) % 10
    parts = partition("missing", labels, 5, k=2, minimum=800)
    expected = np.full((5, 10), 100)
    for client in range(5):
        expected[client, 2 * client : 2 * client + 2] = 0
    assert np.array_equal(parts.counts(labels, 10), expected)


def test_missing_below_the_minimum():
    labels = np.repeat([0, 1], [3, 300])
    with pytest.raises(
        Misuse, match=r"k=1 missing classes leave client 1 with 3 samples; minimum is 4"
    ):
        missing_classes(labels, 2, 1, minimum=4)


@pytest.mark.parametrize("k", [1, 2, 3, 9, 10])
def test_classes_of_balanced_data(k):
    labels = np.arange(6000) % 10
    parts = classes_per_client(labels, 100, k, seed=4, minimum=60 if k % 2 else 50)
    counts = parts.counts(labels, 10)
    assert ((counts > 0).sum(1) == k).all()
    assert (counts > 0).any(0).all()
    assert np.ptp(parts.sizes) <= 20


def test_classes_are_mixed_among_clients():
    labels = np.arange(6000) % 10
    counts = classes_per_client(labels, 200, 2, seed=0).counts(labels, 10)
    pairs = {tuple(np.flatnonzero(row)) for row in counts}
    assert len(pairs) > 30  # of 45; without the trades it would be 5


def test_client_of_a_rare_class_gets_samples_of_its_other_class():
    labels = np.repeat([0, 1, 2], [3, 300, 300])
    parts = classes_per_client(labels, 6, 2, seed=1, minimum=80)
    counts = parts.counts(labels, 3)
    assert ((counts > 0).sum(1) == 2).all()
    assert parts.sizes.min() >= 80


def test_minimum_that_a_class_cannot_fill():
    labels = np.repeat([0, 1], [3, 300])
    with pytest.raises(
        Misuse, match=r"k=1 classes per client with minimum=10: .* rarest of 2 classes has 3"
    ):
        classes_per_client(labels, 5, 1, minimum=10)


def test_small_alpha_is_more_uneven_than_large():
    labels = np.arange(5000) % 10
    skewed = [partition("dirichlet", labels, 20, alpha=alpha) for alpha in (0.1, 1, 100)]
    spread = [parts.counts(labels, 10).std() for parts in skewed]
    assert spread[0] > 1.5 * spread[1] > 3 * spread[2]
    sizes = [quantity(5000, 20, alpha, seed=0).sizes.std() for alpha in (0.1, 1, 100)]
    assert sizes[0] > 1.5 * sizes[1] > 3 * sizes[2]


KINDS = {
    "iid": {},
    "quantity": {"alpha": 0.3},
    "dirichlet": {"alpha": 0.1},
    "classes": {"k": 2},
    "missing": {"k": 2},
}


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_matter(kind):
    labels = np.arange(500) % 10
    first, other = (partition(kind, labels, 10, seed=seed, **KINDS[kind]) for seed in (0, 1))
    assert first.kind == kind
    assert not (np.array_equal(first.sizes, other.sizes) and same(first, other))


@pytest.mark.parametrize("kind", KINDS)
def test_many_clients(kind):
    labels = np.random.default_rng(0).integers(0, 10, 60_000)
    minimum = 0 if kind == "missing" else 5
    parts = partition(kind, labels, 10_000, minimum=minimum, **KINDS[kind])
    check(parts, 60_000, 10_000, minimum)


def test_labels_may_be_tensors():
    labels = torch.arange(40) % 4
    parts = partition("classes", labels, 8, k=2, minimum=2)
    counts = parts.counts(labels, 4)
    assert counts.shape == (8, 4)
    assert counts.sum(0).tolist() == [10] * 4
    recount = [[int((labels[part] == label).sum()) for label in range(4)] for part in parts.indices]
    assert counts.tolist() == recount


def test_counts_need_the_number_of_classes():
    with pytest.raises(Misuse, match="labels go from 0 to 3, but classes is 3"):
        iid(8, 2).counts([0, 1, 2, 3, 0, 1, 2, 3], 3)


def test_explicit():
    parts = partition("explicit", [0, 0, 1, 1], 2, indices=[[3, 0], torch.tensor([1, 2])])
    assert [part.tolist() for part in parts.indices] == [[3, 0], [1, 2]]
    assert parts.kind == "explicit"


@pytest.mark.parametrize(
    ("indices", "problem"),
    [
        (
            [[0, 1], [1, 2]],
            "1 of 3 samples to more than one client, or twice to one \\(the first is 1\\)",
        ),
        ([[0, 0], [1, 2]], "1 of 3 samples to more than one client"),
        ([[0], [2]], "1 of 3 samples to no client \\(the first is 1\\)"),
        ([[0, 3], [1, 2]], "name sample 3. Use numbers from 0 to 2"),
        ([[0, -1], [1, 2]], "name sample -1"),
        ([[0.5], [1, 2]], "indices of client 0 are float64"),
        ([], "clients is 0"),
    ],
)
def test_bad_explicit_indices(indices, problem):
    with pytest.raises(Misuse, match=problem):
        explicit(indices, 3)


def test_explicit_below_the_minimum_or_for_other_clients():
    with pytest.raises(Misuse, match="client 1 only 1 samples; minimum is 2"):
        explicit([[0, 1, 3], [2]], 4, minimum=2)
    with pytest.raises(Misuse, match="among 2 clients, but clients is 3"):
        partition("explicit", [0, 0, 0], 3, indices=[[0, 1], [2]])


@pytest.mark.parametrize(
    ("kind", "clients", "options", "problem"),
    [
        ("iid", 0, {}, "clients is 0"),
        ("dirichlet", -2, {"alpha": 1}, "clients is -2"),
        ("iid", 5, {"minimum": -1}, "minimum is -1"),
        ("iid", 5, {"seed": -1}, "seed is -1"),
        ("iid", 1000, {"minimum": 32}, "1,000 clients need at least 32,000 samples \\(32 each"),
        ("quantity", 5, {"alpha": 0}, "alpha is 0"),
        ("quantity", 5, {"alpha": float("nan")}, "alpha is nan"),
        ("dirichlet", 5, {"alpha": -1.5}, "alpha is -1.5"),
        ("dirichlet", 5, {"alpha": float("inf")}, "alpha is inf"),
        ("dirichlet", 5, {}, "partition dirichlet needs alpha"),
        ("dirichlet", 5, {"alpha": 1, "k": 2}, "partition dirichlet has no option 'k'"),
        ("iid", 5, {"alpha": 1}, "partition iid has no option 'alpha'"),
        ("classes", 5, {"k": 0}, "k is 0"),
        ("classes", 5, {"k": 11}, "k=11 classes per client, but the samples have only 10 classes"),
        ("classes", 4, {"k": 2}, "4 clients with k=2 classes each hold at most 8 of 10 classes"),
        ("missing", 5, {}, "partition missing needs k"),
        ("missing", 5, {"k": 0}, "k=0 classes are missing at each client"),
        (
            "missing",
            5,
            {"k": 10},
            "k=10 classes are missing at each client, but the samples have 10 classes. Set k",
        ),
        ("missing", 1, {"k": 2}, "no client would hold class 0. Lower k or use more clients"),
        ("random", 4, {}, "There is no partition 'random'. Known: iid, quantity"),
    ],
)
def test_misuse(kind, clients, options, problem):
    with pytest.raises(Misuse, match=problem):
        partition(kind, np.arange(100) % 10, clients, **options)


def test_remedy_for_too_few_classes_works():
    labels = np.arange(100) % 10
    with pytest.raises(Misuse, match="Raise k to 3, or clients to 5"):
        classes_per_client(labels, 4, 2)
    check(classes_per_client(labels, 4, 3), 100, 4, 1)
    check(classes_per_client(labels, 5, 2), 100, 5, 1)


@pytest.mark.parametrize("labels", [[0.5, 1.0], [[0, 1], [1, 0]]])
def test_labels_must_be_class_numbers(labels):
    with pytest.raises(Misuse, match="labels are"):
        partition("iid", labels, 1)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.data())
def test_take_from_largest(sizes, data):
    sizes = np.array(sizes)
    amount = data.draw(st.integers(0, int(sizes.sum())))
    taken = take_from_largest(sizes, sizes, amount)
    left = sizes - taken
    assert taken.sum() == amount
    assert left.min() >= 0
    # No size that shrank is below another by more than one.
    if taken.any():
        assert left.max() <= left[taken > 0].min() + 1


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.data())
def test_raise_to_minimum_keeps_the_sum(sizes, data):
    sizes = np.array(sizes)
    minimum = data.draw(st.integers(0, int(sizes.sum()) // len(sizes)))
    raised = raise_to_minimum(sizes, minimum)
    assert raised.sum() == sizes.sum()
    assert raised.min() >= minimum


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12), st.integers(1, 30), st.data())
def test_split_proportionally(weights, clients, data):
    weights = np.array(weights)
    most = np.minimum(weights, clients)
    total = data.draw(st.integers(len(weights), max(len(weights), int(most.sum()))))
    shares = split_proportionally(total, weights, most)
    assert shares.sum() == total
    assert (shares >= 1).all()
    assert (shares <= most).all()
    # D'Hondt: moving one share does not increase the smallest weight per share.
    movable, open_to_more = shares > 1, shares < most
    if movable.any() and open_to_more.any():
        per_share = weights / shares
        assert per_share[movable].min() >= (weights / (shares + 1))[open_to_more].max() - 1e-9


class TestPartsOfASplit:
    def split(self, numeric=False):
        labels = torch.arange(24) % 3
        return Split(torch.rand(24, 2), labels.float() if numeric else labels, numeric=numeric)

    def test_a_name_a_partition_and_indices_are_the_same(self):
        split = self.split()
        made = partition("classes", split.y.numpy(), 3, seed=2, k=1)
        named = split.parts("classes", clients=3, seed=2, k=1)
        for other in (split.parts(made), split.parts(made.indices)):
            for one, same in zip(named, other, strict=True):
                assert torch.equal(one.rows, same.rows)
        assert [len(part.rows) for part in self.split(numeric=True).parts("iid", clients=3)] == [
            8
        ] * 3

    @pytest.mark.parametrize(
        ("arguments", "options", "words"),
        [
            (("iid",), {}, ["number of clients", 'parts("iid", clients=5)']),
            (("idd",), {"clients": 3}, ["'idd'", "Did you mean 'iid'?"]),
            (([[0], [1]],), {"clients": 2}, ["clients is given", "already"]),
            (("dirichlet",), {"clients": 2}, ["needs alpha"]),
        ],
    )
    def test_what_does_not_fit_is_said(self, arguments, options, words):
        assert_mentions(misuse_message(self.split().parts, *arguments, **options), *words)

    def test_numbers_to_predict_have_no_classes(self):
        message = misuse_message(self.split(numeric=True).parts, "dirichlet", clients=3, alpha=1.0)
        assert_mentions(message, "'dirichlet' divides classes", "iid")
