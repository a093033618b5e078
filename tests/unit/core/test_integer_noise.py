"""Integer noise as it is really drawn: its distribution, its addresses, and how it is added."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from support.integer_noise import integers
from tacit.core import discrete_gaussian, integer_noise, native, randomness
from tacit.core.discrete_gaussian import DiscreteGaussian, Table, exact_draw
from tacit.core.randomness import Philox, derive_key, words
from tacit.core.workers import WorkerPool

compiled = pytest.mark.skipif(not native.is_compiled(), reason="there was no C compiler")
FACTORS = [0, 1, 7, 300]
DRAWS = 2_000_000


def drawn(factor, rows=5, width=9, tag="n", tick=3, seed=1, source=None):
    source = torch.arange(rows) if source is None else torch.tensor(source)
    return integers(Philox(seed, width), tag, DiscreteGaussian(factor), tick, source, width)


def by_tensor_operations(function):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_library", lambda: None)
        return function()


# --- The distribution ----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FACTORS)
def sample(request):
    """Many numbers, their law, and the probabilities of 0, 1, … under the ideal one."""
    law = DiscreteGaussian(request.param)
    numbers = drawn(law.factor, 8, DRAWS // 8).flatten().numpy()
    size = np.arange(int(9 * law.scale)) / law.scale
    rho = np.exp(-(size**2) / 2)
    return law, numbers, rho / (2 * rho.sum() - 1)


def test_the_body_is_that_of_a_discrete_gaussian(sample):
    """400 classes within 3 σ, the rest in two."""
    law, numbers, probability = sample
    edges = np.unique(np.linspace(-3 * law.scale, 3 * law.scale, 401).astype(np.int64))
    far = len(probability) - 1
    both = np.concatenate((probability[:0:-1], probability))  # of −far, …, far
    at_most = np.cumsum(both)
    beyond = np.concatenate(([0.0], at_most[edges + far - 1], [1.0]))
    counts = np.bincount(np.searchsorted(edges, numbers, side="right"), minlength=len(edges) + 1)
    assert stats.chisquare(counts, DRAWS * np.diff(beyond)).pvalue > 1e-4


@pytest.mark.parametrize("deviations", [3, 4])
def test_tails_are_those_of_a_discrete_gaussian(sample, deviations):
    law, numbers, probability = sample
    bound = int(np.ceil(deviations * law.scale))
    outside = probability[bound:].sum()
    for count in (int((numbers >= bound).sum()), int((numbers <= -bound).sum())):
        assert stats.binomtest(count, DRAWS, outside).pvalue > 1e-4
        assert count > 30


@pytest.mark.parametrize("modulus", [2, 7, 300])
def test_remainders_are_uniform(sample, modulus):
    """All integers occur, not only multiples of the factor."""
    _, numbers, _ = sample
    assert stats.chisquare(np.bincount(numbers % modulus, minlength=modulus)).pvalue > 1e-4


def test_neighbouring_numbers_are_uncorrelated():
    field = drawn(7, rows=64, width=4096).double()
    assert float(torch.corrcoef(field).fill_diagonal_(0).abs().max()) < 6 / 4096**0.5
    assert float(torch.corrcoef(field.T[:64]).fill_diagonal_(0).abs().max()) < 6 / 64**0.5


@pytest.mark.parametrize("clients", [3, 50])
def test_the_variance_of_a_sum_is_that_of_all_clients(clients):
    law, onto = DiscreteGaussian(7), torch.zeros(100_000, dtype=torch.int32)
    Philox(1, 100_000).add_integers("n", law, 0, torch.arange(clients), onto)
    standard = onto.double() / (clients * law.variance) ** 0.5
    assert abs(float(standard.square().mean()) - 1) < 4 * (2 / 100_000) ** 0.5
    assert stats.kstest(standard.numpy(), "norm").pvalue > 1e-4


# --- Addresses -----------------------------------------------------------------------------------


def test_numbers_are_those_of_two_words_each():
    got = drawn(7, rows=3, width=11, tick=5, seed=4)
    source = torch.arange(3)
    key = derive_key(4, "integers", "n")
    pairs = words(key, 5, source, torch.zeros_like(source), range(24)).tolist()
    table = discrete_gaussian.base_table(torch.device("cpu"))
    x, y = (
        [[exact_draw(w, (0, 0, 0), table) for w in row[at::2]] for row in pairs] for at in (0, 1)
    )
    expected = 7 * torch.tensor(x) + torch.tensor(y)
    assert torch.equal(got.long(), expected[:, :11])


@settings(max_examples=40)
@given(
    picked=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    width=st.sampled_from([1, 2, 3, 255, 256, 257, 600]),
    factor=st.sampled_from(FACTORS),
    plain=st.booleans(),
)
def test_a_row_does_not_depend_on_what_is_drawn_with_it(picked, width, factor, plain):
    def some():
        return drawn(factor, width=width, source=picked)

    everything = drawn(factor, rows=10, width=700)
    assert torch.equal(by_tensor_operations(some) if plain else some(), everything[picked, :width])


def test_every_part_of_the_address_changes_most_numbers():
    base = drawn(7, width=400)
    others = [
        drawn(7, width=400, tag="m"),
        drawn(7, width=400, tick=4),
        drawn(7, width=400, seed=2),
        drawn(7, width=400, source=[5, 6, 7, 8, 9]),
    ]
    for other in others:
        assert float((base == other).double().mean()) < 0.01


@settings(max_examples=15)
@given(tile=st.integers(1, 9), width=st.integers(1, 23), count=st.integers(1, 5))
def test_chunking_does_not_change_tensor_operations(tile, width, count):
    whole = drawn(7, rows=count, width=width)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomness, "TILE", tile)
        assert torch.equal(by_tensor_operations(lambda: drawn(7, rows=count, width=width)), whole)


# --- Compiled loops and tensor operations --------------------------------------------------------


@compiled
@pytest.mark.parametrize("factor", FACTORS)
def test_compiled_numbers_are_those_of_tensor_operations(factor):
    def all_numbers():
        return drawn(factor, rows=10, width=100_001)

    quick = all_numbers()
    assert torch.equal(by_tensor_operations(all_numbers), quick)
    assert quick.dtype == torch.int32


def test_a_tick_on_the_device_is_the_same_tick():
    there = torch.tensor([3])
    assert torch.equal(drawn(7, tick=there), drawn(7, tick=3))
    for tick in (there, 3):
        onto = torch.zeros(9, dtype=torch.int64)
        Philox(1, 9).add_integers("n", DiscreteGaussian(7), tick, torch.arange(5), onto)
        assert torch.equal(onto, drawn(7).sum(0))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(("clients", "width"), [(1, 1), (1, 2000), (2, 5), (5, 513), (7, 1)])
@pytest.mark.parametrize("plain", [False, True])
def test_noise_is_added_to_rows_and_to_their_sum(dtype, workers, clients, width, plain):
    law, source = DiscreteGaussian(300), torch.arange(clients) + 4
    here = Philox(1, width, pool=WorkerPool(workers))
    begin = torch.randint(-(2**31), 2**31, (clients, width + 6), dtype=dtype)

    def added():
        rows, one = begin.clone(), begin[0].clone()
        # Rows that lie apart.
        here.add_integers("n", law, 2, source, rows[:, 3:-3])
        here.add_integers("n", law, 2, source, one[3:-3])
        return rows, one

    rows, one = by_tensor_operations(added) if plain else added()
    noise = integers(here, "n", law, 2, source, here.width).to(dtype)
    assert torch.equal(rows[:, 3:-3], begin[:, 3:-3] + noise)
    assert torch.equal(one[3:-3], begin[0, 3:-3] + noise.sum(0, dtype=dtype))
    for part in (slice(0, 3), slice(-3, None)):
        assert torch.equal(rows[:, part], begin[:, part])
        assert torch.equal(one[part], begin[0, part])


@pytest.mark.parametrize("plain", [False, True])
def test_sums_wrap_around(plain):
    source, law = torch.arange(400), DiscreteGaussian(600)

    def total(dtype):
        onto = torch.full((5,), 2**31 - 1, dtype=dtype)
        Philox(1, 5).add_integers("n", law, 0, source, onto)
        return onto

    narrow, wide = (
        by_tensor_operations(lambda t=t: total(t)) if plain else total(t)
        for t in (torch.int32, torch.int64)
    )
    assert bool((wide >= 2**31).any())
    assert torch.equal(narrow, wide.to(torch.int32))


def test_columns_in_any_layout():
    rows = torch.zeros(9, 5, dtype=torch.int32).T
    Philox(1, 9).add_integers("n", DiscreteGaussian(7), 3, torch.arange(5), rows)
    assert torch.equal(rows, drawn(7))


def test_no_clients_and_no_columns():
    assert drawn(7, rows=0).shape == (0, 9)
    assert drawn(7, width=0).shape == (5, 0)
    onto = torch.ones(4, dtype=torch.int32)
    Philox(1, 4).add_integers("n", DiscreteGaussian(7), 0, torch.arange(0), onto)
    assert onto.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "onto",
    [
        torch.zeros(4, 3, dtype=torch.int32),
        torch.zeros(5, 3),
        torch.zeros(5, 3, dtype=torch.int16),
        torch.zeros(1, 5, 3, dtype=torch.int32),
    ],
)
def test_rows_that_do_not_fit_are_refused(onto):
    with pytest.raises(ValueError, match="integer noise of 5 clients onto"):
        Philox(1, 3).add_integers("n", DiscreteGaussian(7), 0, torch.arange(5), onto)


@compiled
def test_the_compiled_loop_refuses_what_it_cannot_do():
    table = discrete_gaussian.base_table(torch.device("cpu"))
    law, out = (table.guide, table.words, 1), torch.zeros(2, 8, dtype=torch.int32)
    begin, source = torch.arange(3), torch.arange(2)
    for columns, starts in ((slice(1, 8), begin), (slice(0, 9), begin), (slice(0, 8), begin[:2])):
        with pytest.raises(ValueError, match="onto"):
            native.add_integers(law, (0, 0), 0, starts, source, out, slice(0, 2), columns)
    with pytest.raises(ValueError, match="a guide of 5 cells"):
        native.add_integers(
            (table.guide[:5], table.words, 1),
            (0, 0),
            0,
            begin,
            source,
            out,
            slice(0, 2),
            slice(0, 8),
        )


# --- Ties ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("each", [1, 3])
def test_ties_are_decided_by_further_words(plain, each, monkeypatch):
    """A table whose thresholds begin like the words that will be drawn: every word ties."""
    seed, tick, width, source = 5, 6, 150, torch.tensor([3, 8])
    zeros, rng = torch.zeros_like(source), np.random.default_rng(1)
    first = words(derive_key(seed, "integers", "n"), tick, source, zeros, range(2 * width))
    rest = words(derive_key(seed, "integers/ties", "n"), tick, source, zeros, range(8 * width))
    rest = rest.view(2, 2 * width, 4).tolist()
    values = set()
    for row, numbers in enumerate(first.tolist()):
        for at, word in enumerate(numbers):
            own = sum(part << 64 - 32 * k for k, part in enumerate(rest[row][at][:3]))
            # Thresholds equal to the number, next to it, and different in its middle word.
            for shift in rng.choice([-1, 0, 1, 1 << 40, -(1 << 40)], each, replace=False).tolist():
                values.add((word & 0x7FFFFFFF) << 96 | (own + shift) % 2**96)
    table = Table.of(sorted(values))
    for module in (discrete_gaussian, integer_noise):
        monkeypatch.setattr(module, "base_table", lambda device: table)
    expected = [
        [
            7 * exact_draw(numbers[2 * c], rest[row][2 * c][:3], table)
            + exact_draw(numbers[2 * c + 1], rest[row][2 * c + 1][:3], table)
            for c in range(width)
        ]
        for row, numbers in enumerate(first.tolist())
    ]

    def total():
        return drawn(7, width=width, tick=tick, seed=seed, source=source.tolist())

    assert (by_tensor_operations(total) if plain else total()).tolist() == expected
