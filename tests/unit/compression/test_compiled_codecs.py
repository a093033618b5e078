"""Codecs in compiled loops give the bits of tensor operations, on every target."""

import math

import pytest
import torch

from tacit.compression import QSGD, RandK, SignBits
from tacit.compression.quantization import STRIDE, euclidean, extremes
from tacit.compression.subsets import random_subset
from tacit.core import native
from tacit.core.native import codecs
from tacit.core.randomness import derive_key, words

pytestmark = pytest.mark.skipif(not native.is_compiled(), reason="there was no C compiler")

CODECS = [
    SignBits(),
    *(QSGD(bits) for bits in (2, 4, 8, 16)),
    RandK(fraction=0.1),
    RandK(fraction=0.8),
    RandK(fraction=0.3, values=QSGD(8)),
    RandK(fraction=0.3, values=SignBits()),
]
# Around the tile of the loops, and of other lengths than whole bytes.
WIDTHS = [1, 7, 255, 256, 1000, 8 * 8192 + 13]
FLOATS = {"float32": torch.float32, "float64": torch.float64}
targets = pytest.mark.parametrize("target", native.targets())


def drawing(rows):
    source = torch.arange(rows)
    return lambda purpose, count: words(
        derive_key(purpose), 3, source, torch.zeros_like(source), range(count)
    )


def some_rows(width, dtype):
    """Rows of many sizes, and zero, subnormal, infinite and undefined ones."""
    drawn = words(derive_key("rows"), 0, torch.arange(9), torch.zeros(9).long(), range(width))
    rows = (drawn.double() * 2.0**-31 - 1).to(dtype)
    rows[1] = 0
    rows[2] = torch.where(rows[2] < 0, -0.3, 0.3)
    rows[3] *= torch.finfo(dtype).smallest_normal * 2.0**-3
    rows[4] *= torch.finfo(dtype).max
    rows[5, -1] = math.inf
    rows[6, 0] = math.nan
    rows[7] = -0.0
    return rows


def by_tensors(function, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(native, "_library", lambda: None)
        return function()


def same_bits(left, right):
    one, other = (part.contiguous().view(torch.uint8) for part in (left, right))
    return left.dtype == right.dtype and torch.equal(one, other)


@targets
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_codecs(codec, width, dtype, target, monkeypatch):
    monkeypatch.setattr(native, "target", lambda: target)
    rows, draw = some_rows(width, FLOATS[dtype]), drawing(9)
    wire = codec.encode(rows, draw)
    assert same_bits(wire, by_tensors(lambda: codec.encode(rows, draw), monkeypatch))
    decoded = codec.decode(wire, width, rows.dtype)
    assert same_bits(
        decoded, by_tensors(lambda: codec.decode(wire, width, rows.dtype), monkeypatch)
    )
    assert same_bits(decoded, codec.received(rows, draw))
    assert same_bits(decoded, by_tensors(lambda: codec.received(rows, draw), monkeypatch))


@targets
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [1, 3, 1000, 1004, STRIDE - 1, STRIDE, 5 * STRIDE + 77])
def test_magnitudes(width, dtype, target, monkeypatch):
    monkeypatch.setattr(native, "target", lambda: target)
    rows = some_rows(width, FLOATS[dtype])
    norms = by_tensors(lambda: euclidean(rows), monkeypatch)
    assert torch.equal(euclidean(rows).nan_to_num(nan=-1), norms.nan_to_num(nan=-1))
    low, high = by_tensors(lambda: extremes(rows), monkeypatch)
    least, largest = extremes(rows)
    assert torch.equal(largest.nan_to_num(nan=-1), high.nan_to_num(nan=-1))
    finite = ~high.isnan()
    assert torch.equal(least[finite], low[finite])


@targets
@pytest.mark.parametrize(("width", "k"), [(256, 1), (257, 100), (1 << 16, 1 << 15), (100_003, 7)])
def test_subsets(width, k, target, monkeypatch):
    monkeypatch.setattr(native, "target", lambda: target)
    seed = torch.tensor([[0, 0], [5, 1 << 31], [0xFFFFFFFF, 3]])
    columns = random_subset(seed, width, k)
    expected = by_tensors(lambda: random_subset(seed, width, k), monkeypatch)
    assert torch.equal(columns, expected)


def test_a_subset_of_the_widest_rows(monkeypatch):
    seed = torch.tensor([[11, 12]])
    columns = random_subset(seed, 1 << 31, 1000)
    expected = by_tensors(lambda: random_subset(seed, 1 << 31, 1000), monkeypatch)
    assert torch.equal(columns, expected)


def test_rows_may_lie_apart():
    wide, draw = some_rows(2000, torch.float32), drawing(9)
    rows = wide[:, 100:1100]
    codec = RandK(fraction=0.3, values=QSGD(4))
    assert same_bits(codec.encode(rows, draw), codec.encode(rows.contiguous(), draw))


def test_threads_do_not_change_the_bits(monkeypatch):
    rows, draw = some_rows(30_011, torch.float32), drawing(9)
    before = torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(QSGD(2).encode(rows, draw))
    torch.set_num_threads(before)
    assert same_bits(*found)


def test_shapes_that_do_not_fit_are_refused():
    rows, norm = torch.zeros(2, 8), torch.zeros(2, 1)
    words_ = torch.zeros(2, 8, dtype=torch.uint32)
    quantizer = codecs.Quantizer(1.0, 0.0, 1.0, 0.0, 4, 0)
    with pytest.raises(ValueError, match="4 bits"):
        codecs.quantize(rows, words_, norm, quantizer, torch.zeros(2, 3, dtype=torch.uint8))
    with pytest.raises(ValueError, match="4 bits"):
        codecs.quantize(rows, words_[:, :7], norm, quantizer, torch.zeros(2, 4).byte())
    with pytest.raises(ValueError, match="permutation"):
        codecs.permuted(
            codecs.Permutation(torch.zeros(1, 3).long(), 0, 300, 4, 19), torch.zeros(1, 5).long()
        )
