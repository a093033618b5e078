"""Compiled loops against the same in tensor operations."""

import math
import shutil
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings, strategies as st

import tacit
from tacit import DSGT, Diverged, Topology, quadratic
from tacit.core import native
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.noise import Laplace
from tacit.core.randomness import Philox, words
from tacit.core.workers import WorkerPool
from tacit.engines import product
from tacit.engines.lazy_rows import SMALL, Workspace
from tacit.engines.stacked import StackedNetwork
from tacit.engines.watchdog import Watchdog

HERE = native.supports(torch.zeros(1, 1))
compiled = pytest.mark.skipif(not HERE, reason="there was no C compiler")
TYPES = [torch.float32, torch.float64]
WIDTHS = [1, 7, 12543, 12544, 12545, 20_000]  # around the tile that a row is worked on in
DEGREES = [0, 1, 2, 3, 4, 5, 8]


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
def test_loops_are_compiled_where_there_is_a_compiler():
    assert HERE


def test_what_the_loops_are_not_for():
    wide = torch.zeros(4, 6)
    assert not native.supports(wide.to(torch.float16))
    assert not native.supports(wide.to(torch.int64))
    assert not native.supports(wide.T)
    assert not native.supports(wide[:, ::2])
    assert not native.supports(wide[0])
    assert not native.supports(torch.zeros(2, 2, device="meta"))
    assert native.supports(wide[::2, 1:4]) == HERE


def sparse(clients, seed):
    """Rows with each number of entries in turn, sources in any order."""
    rng = np.random.default_rng(seed)
    degrees = np.resize(DEGREES, clients)
    source = [rng.permutation(clients)[:degree] for degree in degrees]
    begin = np.concatenate(([0], np.cumsum(degrees)))
    weight = rng.normal(size=begin[-1])
    return sp.csr_array((weight, np.concatenate(source), begin), shape=(clients, clients))


def mixed(W, x, cuts):
    begin, source = (torch.as_tensor(index.astype(np.int64)) for index in (W.indptr, W.indices))
    out = torch.full_like(x, torch.nan)
    for rows in cuts:
        native.mix(begin, source, torch.as_tensor(W.data, dtype=x.dtype), x, out, rows)
    return out


@compiled
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_mix_is_the_product_of_float64(width, dtype):
    W = sparse(2 * len(DEGREES), seed=width)
    x = torch.randn(W.shape[0], width, dtype=dtype, generator=torch.Generator().manual_seed(1))
    exact = torch.tensor(W.toarray()) @ x.double()
    size = torch.tensor(abs(W).toarray()) @ x.double().abs()  # what roundings are relative to
    error = (mixed(W, x, [slice(0, len(x))]).double() - exact).abs()
    assert bool((error <= 9 * torch.finfo(dtype).eps * size).all())
    assert float(size.max()) > 1


@compiled
@settings(max_examples=25)
@given(st.lists(st.integers(0, 21), max_size=4), st.sampled_from(TYPES), st.sampled_from([3, 8193]))
def test_any_split_of_rows_gives_the_same_bits(edges, dtype, width):
    W = sparse(21, seed=2)
    x = torch.randn(21, width, dtype=dtype, generator=torch.Generator().manual_seed(1))
    edges = sorted({0, 21, *edges})
    cuts = [slice(low, high) for low, high in pairwise(edges)]
    assert torch.equal(mixed(W, x, cuts[::-1]), mixed(W, x, [slice(0, 21)]))


@compiled
@pytest.mark.parametrize("terms", [0, 1, 2])
@pytest.mark.parametrize("dtype", TYPES)
def test_many_numbers_are_mixed_like_few(terms, dtype):
    """More than 4 MiB at once, which some processors write past their caches."""
    clients, width = 61, 17_501
    chosen = torch.Generator().manual_seed(1)
    x, *others = torch.randn(3, clients, width + 3, dtype=dtype, generator=chosen)[:, :, 1:-2]
    x[7, 5_000], x[40, -1] = torch.inf, torch.nan
    # Rows of a ring, and one of four neighbours.
    source = (torch.arange(clients)[:, None] + torch.tensor([-1, 0, 1])) % clients
    source = torch.cat([source[:30].flatten(), torch.tensor([3]), source[30:].flatten()])
    begin = 3 * torch.arange(clients + 1) + (torch.arange(clients + 1) >= 30)
    weight = torch.randn(len(source), dtype=dtype, generator=chosen)
    added = [(0.3, others[0]), (-0.7, others[1])][:terms]
    results = []
    for step in (1, clients):
        out = torch.full((clients, width + 3), 9.0, dtype=dtype)
        bad = torch.zeros(clients, dtype=torch.bool)
        for low in range(0, clients, step):
            rows = slice(low, low + step)
            native.mix(begin, source, weight, x, out[:, 1:-2], rows, terms=added, bad=bad)
        results.append((out.nan_to_num(7.0), bad))
    (few, few_bad), (many, many_bad) = results
    assert torch.equal(few, many)
    assert torch.equal(few_bad, many_bad)
    assert few_bad.nonzero().flatten().tolist() == [6, 7, 8, 39, 40, 41]


@compiled
def test_rows_that_are_not_asked_for_are_left_alone():
    W, x = sparse(14, seed=2), torch.ones(14, 9)
    out = mixed(W, x, [slice(3, 7)])
    assert torch.equal(out.isnan().all(1), (torch.arange(14) < 3) | (torch.arange(14) >= 7))


@compiled
def test_rows_may_lie_apart():
    W, wide = sparse(14, seed=2), torch.randn(28, 12)
    x, out = wide[::2, 1:10], torch.zeros(14, 20)
    index = (torch.as_tensor(part.astype(np.int64)) for part in (W.indptr, W.indices))
    native.mix(*index, torch.as_tensor(W.data, dtype=x.dtype), x, out[:, 4:13], slice(0, 14))
    assert torch.equal(out[:, 4:13], mixed(W, x.contiguous(), [slice(0, 14)]))
    assert not bool(out[:, :4].any())
    assert not bool(out[:, 13:].any())


@compiled
@pytest.mark.parametrize(
    "x", [torch.zeros(15, 3), torch.zeros(13, 3), torch.zeros(14, 3, dtype=torch.float64)]
)
def test_rows_that_do_not_fit_are_refused(x):
    W = sparse(14, seed=2)
    index = [torch.as_tensor(part.astype(np.int64)) for part in (W.indptr, W.indices)]
    with pytest.raises(ValueError, match="14 clients"):
        native.mix(*index, torch.zeros(W.nnz), x, torch.empty_like(x), slice(0, 14))


def extremes(dtype):
    facts = torch.finfo(dtype)
    return {
        "NaN": (math.nan, True),
        "infinity": (math.inf, True),
        "minus infinity": (-math.inf, True),
        "largest": (facts.max, False),
        "least": (facts.min, False),
        "smallest": (facts.tiny, False),
        "subnormal": (facts.smallest_normal * facts.eps, False),
        "minus subnormal": (-facts.smallest_normal * facts.eps, False),
        "zero": (0.0, False),
        "minus zero": (-0.0, False),
    }


@pytest.fixture(params=["compiled", "tensor operations"])
def either(request, monkeypatch):
    """With compiled loops and without them."""
    if request.param == "compiled" and not HERE:
        pytest.skip("there was no C compiler")
    if request.param != "compiled":
        monkeypatch.setattr(native, "_library", lambda: None)
    return request.param


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", extremes(torch.float32))
@pytest.mark.parametrize("width", [1, 2, 15, 16, 17, 33])
def test_what_is_not_finite_is_found_anywhere(width, name, dtype, either):
    value, bad = extremes(dtype)[name]

    def look(x):
        return ~torch.isfinite(Watchdog().magnitudes(x))

    for place in sorted({0, 1 % width, width // 2, width - 1}):
        for row in (0, 2):
            x = torch.ones(3, width, dtype=dtype)
            x[row, place] = value
            expected = torch.zeros(3, dtype=torch.bool)
            expected[row] = bad
            assert torch.equal(look(x), expected)


def test_every_nan_is_found(either):
    bits = torch.tensor([0x7F800001, 0x7FC00000, 0x7FFFFFFF, -1, -0x7FFFFF], dtype=torch.int32)
    x = torch.zeros(len(bits), 20)
    x[:, 18] = bits.view(torch.float32)
    assert not bool(torch.isfinite(Watchdog().magnitudes(x)).any())


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_looked_at_may_lie_apart(dtype, either):
    wide = torch.full((6, 40), math.nan, dtype=dtype)
    wide[::2, 3:36] = 1
    wide[4, 35] = math.inf
    found = Watchdog(WorkerPool(2)).magnitudes(wide[::2, 3:36])
    assert torch.isfinite(found).tolist() == [True, True, False]


@compiled
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "graph",
    [
        Topology.ring(16).mixing("metropolis"),
        Topology.star(20).mixing("laplacian"),
        Topology.random_directed(24, 0.08, seed=1).mixing("sinkhorn", seed=2),
    ],
    ids=["ring", "star", "directed"],
)
def test_mixing_is_the_same_without_compiled_loops(graph, workers, dtype, monkeypatch):
    monkeypatch.setattr(product, "DENSE", -1)
    x = torch.randn(graph.clients, 9, dtype=dtype, generator=torch.Generator().manual_seed(1))
    quick = StackedNetwork(graph, dtype, "cpu", WorkerPool(workers))
    (by_loops,) = quick.mix(x=x)
    (turned,) = quick.mix(x=x.T.contiguous().T)  # columns in one piece instead of rows
    monkeypatch.setattr(native, "_library", lambda: None)
    plain = StackedNetwork(graph, dtype, "cpu", WorkerPool(workers))
    (by_slots,) = plain.mix(x=x)
    assert quick._weights._compiled
    assert not plain._weights._compiled
    few = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(by_loops, by_slots, rtol=few, atol=few)
    assert torch.equal(turned, by_loops)


@compiled
@pytest.mark.parametrize("rows", [15, 17])
def test_a_network_refuses_other_numbers_of_rows(rows, monkeypatch):
    monkeypatch.setattr(product, "DENSE", -1)
    net = StackedNetwork(Topology.ring(16).mixing(), torch.float32, "cpu")
    with pytest.raises(ValueError, match=f"{rows} rows for a matrix of 16 columns"):
        net.mix(x=torch.zeros(rows, 4))


def test_a_run_that_diverges_is_stopped_at_the_same_place(either):
    clients = 70  # too many for a dense W
    task = quadratic(10 * torch.eye(3).repeat(clients, 1, 1), torch.ones(clients, 3))
    graph = Topology.ring(clients).mixing()
    with pytest.raises(Diverged, match="client 0 is not finite at iteration 8"):
        tacit.run(task, DSGT(lr=1e4), graph, steps=20, gradients="stacked")


@compiled
@settings(max_examples=25)
@given(
    key=st.integers(0, 2**64 - 1),
    tick=st.integers(0, 2**32 - 1),
    ends=st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 2), min_size=1, max_size=4),
    block=st.integers(0, 2**31),
    width=st.sampled_from([1, 3, 4, 511, 512, 513, 1100]),
)
def test_compiled_words_are_those_of_tensor_operations(key, tick, ends, block, width):
    source, target = torch.tensor(ends).T
    columns = range(4 * block, 4 * block + width)
    quick = words(key, tick, source, target, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_library", lambda: None)
        assert torch.equal(words(key, tick, source, target, columns), quick)


@compiled
@pytest.mark.parametrize(("dtype", "few"), [(torch.float32, 0.0), (torch.float64, 4.0)])
def test_compiled_laplace_noise_is_that_of_tensor_operations(dtype, few, monkeypatch):
    """A million numbers of very different sizes; float32 is rounded from float64."""
    drawn = Philox(3, 100_001, dtype).rows(
        "delta", Laplace(0.7), 5, torch.arange(10), torch.arange(10) + 3
    )
    quick = drawn.tensor()
    monkeypatch.setattr(native, "_library", lambda: None)
    slow = Philox(3, 100_001, dtype).rows(
        "delta", Laplace(0.7), 5, torch.arange(10), torch.arange(10) + 3
    )
    exact = slow.tensor()
    assert bool(((quick - exact).abs() <= few * torch.finfo(dtype).eps * exact.abs()).all())
    assert float(exact.abs().min()) < 2e-6 < 8 < float(exact.max())


@compiled
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("dtype", TYPES)
def test_masks_are_summed_the_same_without_compiled_loops(dtype, workers, monkeypatch):
    graph = Topology.random_directed(12, 0.2, seed=1)
    hosted = Neighbourhood.of(graph.edges, np.array([0, 3, 4, 7, 9]))

    def summed(onto):
        here = Philox(3, 700, dtype, WorkerPool(workers))
        sent = here.rows("delta", Laplace(0.7), 5, hosted.out_source, hosted.out_target)
        received = here.rows("delta", Laplace(0.7), 5, hosted.in_source, hosted.in_target)
        hosted.add_net_out(onto, sent, received)
        return onto, sent.add is not None

    begin = torch.randn(5, 700, dtype=dtype, generator=torch.Generator().manual_seed(1))
    quick, compiled_sums = summed(begin.clone())
    monkeypatch.setattr(native, "_library", lambda: None)
    slow, others = summed(begin.clone())
    assert (compiled_sums, others) == (True, False)
    few = 30 * torch.finfo(dtype).eps
    torch.testing.assert_close(quick, slow, rtol=few, atol=few)
    assert not torch.equal(quick, begin)


@compiled
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [1, 2, 3, 7, 16, 33, 257, 4099])
def test_sums_have_the_bits_of_torch(width, dtype):
    source = torch.Generator().manual_seed(width)
    begin, x, y = torch.randn(3, 5, width, dtype=dtype, generator=source)
    for a, b in ((-0.3, 0.7), (1.0, -1.0), (0.1, 1e-3)):
        one, both = begin.clone(), begin.clone()
        native.add(one, a, x, 0.0, None, slice(0, 5))
        native.add(both, a, x, b, y, slice(0, 5))
        expected = begin.clone().add_(x, alpha=a)
        assert torch.equal(one, expected)
        assert torch.equal(both, expected.add_(y, alpha=b))


@compiled
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("terms", [1, 2, 3])
def test_rows_are_added_the_same_without_compiled_loops(terms, workers, dtype, monkeypatch):
    source = torch.Generator().manual_seed(1)
    wide = torch.randn(5, 9, 4100, dtype=dtype, generator=source)
    begin, *rows = (part[:, 3:4003] for part in wide)  # rows that lie apart
    weighted = list(zip((-0.3, 1.0, -1.0), rows, strict=False))[:terms]
    quick, slow = begin.clone(), begin.clone()
    assert quick.numel() > SMALL
    workspace = Workspace(pool=WorkerPool(workers))
    workspace.add(quick, weighted)
    monkeypatch.setattr(native, "_library", lambda: None)
    workspace.add(slow, weighted)
    assert torch.equal(quick, slow)
    few = 8 * torch.finfo(dtype).eps
    expected = begin.double() + sum(weight * part.double() for weight, part in weighted)
    torch.testing.assert_close(quick.double(), expected, rtol=few, atol=few)


@compiled
@pytest.mark.parametrize(
    "other", [torch.zeros(4, 3), torch.zeros(5, 2), torch.zeros(5, 3).double()]
)
def test_rows_that_cannot_be_added_are_refused(other):
    onto = torch.zeros(5, 3)
    with pytest.raises(ValueError, match=r"onto torch\.float32 \(5, 3\)"):
        native.add(onto, 1.0, other, 0.0, None, slice(0, 5))
    with pytest.raises(ValueError, match=r"onto torch\.float32 \(5, 3\)"):
        native.add(onto, 1.0, onto.clone(), 1.0, other, slice(0, 5))
