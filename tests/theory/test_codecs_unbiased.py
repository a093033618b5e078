"""Every codec is unbiased and bounded: E[C(u)] = u and E‖C(u) − u‖² ≤ β‖u‖².

Means over many independent draws are compared with these. Bernstein's inequality, which holds for
rare large values too, bounds their deviation: each comparison fails by chance once in 10⁹.
"""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from tacit.compression import QSGD, Identity, RandK, SignBits
from tacit.compression.subsets import _permuted, random_subset
from tacit.core.randomness import derive_key, words

DRAWS = 10_000
CODECS = [
    Identity(),
    SignBits(),
    QSGD(2),
    QSGD(4),
    QSGD(8),
    QSGD(16),
    RandK(k=1),
    RandK(fraction=0.4),
    RandK(fraction=0.5, values=SignBits()),
    RandK(fraction=0.5, values=QSGD(4)),
    RandK(fraction=0.7, values=RandK(fraction=0.5, values=QSGD(2))),
]


def not_tiny(number):
    """Squares of smaller numbers would underflow here, in the test's own bounds."""
    return number if abs(number) > 1e-30 else 0.0


vectors = st.one_of(
    st.lists(st.floats(-10, 10).map(not_tiny), min_size=1, max_size=12),
    st.lists(st.sampled_from([-1.0, 0.0, 1e-3, 1.0, 5.0]), min_size=1, max_size=12),
)
seeds = st.integers(0, 2**31)


def received(codec, u, seed):
    """C(u), drawn DRAWS times."""
    source = torch.arange(DRAWS)

    def draw(purpose, count):
        return words(derive_key(seed, purpose), 0, source, torch.zeros_like(source), range(count))

    return codec.received(u.expand(DRAWS, -1), draw)


def strays(variance, reach):
    """The largest deviation of a mean of DRAWS numbers; `reach` bounds that of one of them."""
    surprise = math.log(2 / 1e-9)
    return math.sqrt(2 * variance * surprise / DRAWS) + reach * surprise / (3 * DRAWS)


def longest(codec, width, norm):
    """A bound on ‖C(u)‖ over all draws and all u of this width and norm."""
    match codec:
        case Identity():
            return norm
        case SignBits():
            return math.sqrt(width) * norm
        case QSGD():
            return norm * (1 + math.sqrt(width) / codec.levels)
        case RandK():
            k = codec.kept(width)
            return width / k * longest(codec.values, k, norm)
    raise AssertionError(codec)


def exact_variance(codec, u):
    """The variance of each coordinate of C(u), where it has a simple form; else None."""
    match codec:
        case Identity():
            return torch.zeros_like(u)
        case SignBits():
            return u.abs().max() ** 2 - u**2
        case QSGD():
            level = u.norm() / codec.levels
            up = (u / level).nan_to_num(0.0) % 1
            return level**2 * up * (1 - up)
        case RandK(values=Identity()):
            return u**2 * (len(u) / codec.kept(len(u)) - 1)
    return None


@pytest.mark.parametrize("codec", CODECS, ids=str)
@settings(max_examples=25)
@given(numbers=vectors, seed=seeds)
def test_the_mean_is_the_vector_and_the_variance_is_within_its_bound(codec, numbers, seed):
    u = torch.tensor(numbers, dtype=torch.float64)
    norm, width = float(u.norm()), len(u)
    drawn = received(codec, u, seed)
    bound = codec.variance_bound(width) * norm**2
    reach = longest(codec, width, norm) + norm
    rounding = 1e-9 * norm  # words have 32 bits

    exact = exact_variance(codec, u)
    off = (drawn.mean(0) - u).abs()
    for column, stray in enumerate(off.tolist()):
        variance = bound if exact is None else float(exact[column])
        assert stray <= strays(variance, reach) + rounding

    errors = (drawn - u).square().sum(1)
    assert float(errors.max()) <= reach**2 * (1 + 1e-9)
    mean = float(errors.mean())
    assert mean <= bound + strays(reach**2 * bound, reach**2) + rounding * norm
    if exact is not None:
        variance = float(exact.sum())
        assert variance <= bound * (1 + 1e-9)
        assert abs(mean - variance) <= strays(reach**2 * variance, reach**2) + rounding * norm


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_a_long_vector_in_single_precision_arrives_in_the_mean(codec):
    """⟨C(u), u⟩/‖u‖² is 1 in the mean, to within six standard errors."""
    width, rows = 400, 200
    generator = torch.Generator().manual_seed(1)
    u = torch.randn(width, generator=generator)
    source = torch.arange(rows)

    def draw(purpose, count):
        return words(derive_key(7, purpose), 0, source, torch.zeros_like(source), range(count))

    along = (codec.received(u.expand(rows, -1), draw).double() @ u.double()) / float(u.norm() ** 2)
    spread = float(along.std()) / math.sqrt(rows)
    assert abs(float(along.mean()) - 1) <= 6 * spread + 1e-6


def test_rand_k_has_exactly_its_variance():
    """‖C(u) − u‖² is (P/k − 1)‖u‖² in the mean; for a vector of one size it is so in every draw."""
    u = torch.tensor([2.0, -2.0, 2.0, 2.0, -2.0, 2.0, -2.0], dtype=torch.float64)
    for k in range(1, 8):
        errors = (received(RandK(k=k), u, 3) - u).square().sum(1)
        torch.testing.assert_close(
            errors, torch.full_like(errors, (7 / k - 1) * 28), rtol=1e-12, atol=1e-12
        )


@settings(max_examples=25)
@given(width=st.integers(2, 12), data=st.data(), seed=seeds)
def test_subsets_are_uniform_in_single_columns_and_in_pairs(width, data, seed):
    k = data.draw(st.integers(1, width))
    is_uniform_in_single_columns_and_in_pairs(random_subset(random_seeds(seed), width, k), width)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "k"),
    [
        (16, 5),
        (33, 16),
        (40, 7),
        (40, 33),
        (256, 8),
        (257, 40),
        (300, 150),
        (300, 260),
        (513, 100),
        (1025, 9),
    ],
)
def test_subsets_of_more_columns_are_uniform_in_single_columns_and_in_pairs(width, k):
    """Also for fewer columns than the permutation is used for, where it would fail first."""
    is_uniform_in_single_columns_and_in_pairs(random_subset(random_seeds(1), width, k), width)
    if width >= 40:
        is_uniform_in_single_columns_and_in_pairs(_permuted(random_seeds(2), width, k), width)


def random_seeds(seed):
    source = torch.arange(DRAWS)
    return words(derive_key(seed, "subset"), 0, source, torch.zeros_like(source), range(2))


def is_uniform_in_single_columns_and_in_pairs(columns, width):
    k = columns.shape[1]
    kept = torch.zeros(DRAWS, width, dtype=torch.float64)
    kept.scatter_(1, columns, 1.0)
    assert bool((kept.sum(1) == k).all())
    together = kept.T @ kept / DRAWS
    one, two = k / width, k * (k - 1) / (width * (width - 1))
    expected = torch.full((width, width), two, dtype=torch.float64).fill_diagonal_(one)
    off = (together - expected).abs()
    assert float(off.diagonal().max()) <= strays(one * (1 - one), 1) + 1e-9
    assert float(off.fill_diagonal_(0).max()) <= strays(two * (1 - two), 1) + 1e-9


def test_all_subsets_are_equally_likely():
    rows = 3500
    seeds_of_rows = words(5, 0, torch.arange(rows), torch.zeros(rows, dtype=torch.int64), range(2))
    columns = random_subset(seeds_of_rows, 7, 3)
    names = (1 << columns).sum(1)
    counts = torch.unique(names, return_counts=True)[1]
    assert len(counts) == math.comb(7, 3)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def seeds_that_vary(how, count):
    """Seeds that differ in one word only, in both, or everywhere."""
    counting = torch.arange(count)
    none = torch.zeros_like(counting)
    match how:
        case "first word":
            return torch.stack([counting, none], dim=1)
        case "second word":
            return torch.stack([none, counting], dim=1)
        case "both words":
            return torch.stack([counting % 250, counting // 250], dim=1)
    return words(9, 0, counting, none, range(2))


def chance_of(columns, width):
    """The p-value of a chi-square test over all subsets of this size."""
    count, k = columns.shape
    powers = width ** torch.arange(k)
    counts = torch.unique(columns.sort(dim=1).values @ powers, return_counts=True)[1]
    expected = count / math.comb(width, k)
    missing = math.comb(width, k) - len(counts)
    statistic = float((counts - expected).square().sum() / expected) + missing * expected
    return stats.chi2.sf(statistic, math.comb(width, k) - 1)


@pytest.mark.parametrize(
    ("width", "k", "varies"),
    [
        (2, 1, "first word"),
        (2, 1, "second word"),
        (5, 2, "both words"),
        (6, 3, "random"),
        (7, 5, "first word"),
        (8, 4, "second word"),
        (8, 4, "both words"),
    ],
)
def test_all_subsets_are_equally_likely_whichever_word_of_the_seed_varies(width, k, varies):
    assert chance_of(random_subset(seeds_that_vary(varies, 50_000), width, k), width) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "varies"),
    [
        (40, "first word"),
        (40, "second word"),
        (40, "both words"),
        (40, "random"),
        (100, "first word"),
        (256, "second word"),
        (257, "both words"),
        (300, "random"),
    ],
)
def test_all_pairs_are_equally_likely_in_the_permutation(width, varies):
    """With a pair of rounds less, 40 columns fail this."""
    assert chance_of(_permuted(seeds_that_vary(varies, 400_000), width, 2), width) > 1e-4


@pytest.mark.parametrize("width", [256, 1000, 1_000_003])
def test_columns_next_to_each_other_in_the_permutation_are_unrelated(width):
    """π(i), and π(i + 1) − π(i) modulo the width, in 16 parts each: chi-square over 256 cells."""
    columns = _permuted(random_seeds(4), width, 8)
    differences = (columns[:, 1:] - columns[:, :-1]) % width
    cells = columns[:, :-1] * 16 // width * 16 + differences * 16 // width
    part = torch.bincount(torch.arange(width) * 16 // width, minlength=16).double() / width
    first = torch.bincount(torch.arange(1, width) * 16 // width, minlength=16).double() / (
        width - 1
    )
    expected = (part[:, None] * first).flatten()
    for column in cells.T:
        counts = torch.bincount(column, minlength=256).double()
        assert stats.chisquare(counts.numpy(), (expected * len(cells)).numpy()).pvalue > 1e-5
