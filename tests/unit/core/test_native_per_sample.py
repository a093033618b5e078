"""Compiled loops for single samples against tensor operations."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tacit.core import native
from tacit.core.native import layers

HERE = layers.supports(torch.zeros(1))
pytestmark = pytest.mark.skipif(not HERE, reason="there was no C compiler for vectors")
TYPES = [torch.float32, torch.float64]


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def test_what_the_loops_are_not_for(monkeypatch):
    assert not layers.supports(torch.zeros(2, dtype=torch.float16))
    assert not layers.supports(torch.zeros(2, device="meta"))
    monkeypatch.setattr(native, "_library", lambda: None)
    assert not layers.supports(torch.zeros(2))


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    batch=st.integers(1, 19),
    channels=st.integers(1, 3),
    filters=st.integers(1, 9),
    bias=st.booleans(),
    dtype=st.sampled_from(TYPES),
)
def test_gradients_by_filters(data, batch, channels, filters, bias, dtype):
    pair = lambda low, high: (  # noqa: E731
        data.draw(st.integers(low, high)), data.draw(st.integers(low, high))
    )  # fmt: skip
    size, stride, dilation, output = pair(1, 4), pair(1, 3), pair(1, 2), pair(1, 5)
    # A pixel that no window reaches, in each direction.
    height, width = (
        (n - 1) * step + (k - 1) * gap + 2
        for n, step, k, gap in zip(output, stride, size, dilation, strict=True)
    )
    x = draw(channels, height, width, batch, seed=1, dtype=dtype)
    dy = draw(filters, *output, batch, seed=2, dtype=dtype)
    windows = torch.stack(
        [
            x[c, i * dilation[0] :, j * dilation[1] :][:: stride[0], :: stride[1]][
                : output[0], : output[1]
            ]
            for c in range(channels)
            for i in range(size[0])
            for j in range(size[1])
        ]
    )
    expected = torch.einsum("frcb,trcb->bft", dy.double(), windows.double()).flatten(1)
    if bias:
        expected = torch.cat((expected, dy.double().sum((1, 2)).T), 1)
    geometry = layers.Geometry(
        (channels, height, width), size, stride, dilation, output, filters, bias
    )
    out = torch.full(expected.shape, torch.nan, dtype=dtype)
    squares = torch.full((batch,), torch.nan, dtype=torch.float64)
    layers.filter_gradients(x, dy, geometry, out, squares)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), expected, rtol=1e2 * eps, atol=1e2 * eps)
    # Of what was written, not of what is exact: clipping relies on it.
    by_filters = out[:, : filters * channels * size[0] * size[1]].double()
    torch.testing.assert_close(squares, by_filters.square().sum(1), rtol=1e-13, atol=0)


def test_numbers_whose_squares_are_no_float32():
    x, dy = torch.full((1, 1, 1, 5), 1e15), torch.full((1, 1, 1, 5), 1e15)
    x[..., 1], x[..., 2], x[..., 3] = 1e-38, torch.inf, torch.nan
    out, squares = torch.empty(5, 1), torch.empty(5, dtype=torch.float64)
    one = (1, 1)
    geometry = layers.Geometry((1, 1, 1), one, one, one, one, 1, False)
    layers.filter_gradients(x, dy, geometry, out, squares)
    torch.testing.assert_close(squares, out[:, 0].double().square(), equal_nan=True)
    assert squares.isfinite().tolist() == [True, True, False, False, True]


@settings(max_examples=80, deadline=None)
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    outputs=st.integers(1, 9),
    width=st.sampled_from([1, 3, 15, 16, 17, 40]),
    dtype=st.sampled_from(TYPES),
)
def test_sums_of_outer_products(counts, outputs, width, dtype):
    total = sum(counts)
    wide = draw(total, outputs + 2, seed=1, dtype=dtype)
    left, right = wide[:, 1 : outputs + 1], draw(total, width, seed=2, dtype=dtype)
    bounds = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])
    out = torch.full((len(counts), outputs * width + 3), torch.nan, dtype=dtype)
    layers.outer_sums(left, right, bounds, out[:, 1 : outputs * width + 1])
    products = left.double()[:, :, None] * right.double()[:, None]
    expected = torch.stack([part.sum(0).flatten() for part in products.split(counts)])
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(
        out[:, 1 : outputs * width + 1].double(), expected, rtol=1e2 * eps, atol=1e2 * eps
    )
    assert bool(out[:, [0, -1]].isnan().all())


@pytest.mark.parametrize("width", [4095, 4096, 4097, 9000])
@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_long_rows(width, count):
    left, right = draw(count, 1), draw(count, width, seed=1)
    out = torch.empty(1, width, dtype=torch.float64)
    layers.outer_sums(left, right, torch.tensor([0, count]), out)
    torch.testing.assert_close(out, left.mT @ right)


def test_shapes_that_do_not_fit_are_refused():
    one = (1, 1)
    geometry = layers.Geometry((1, 2, 2), one, one, one, (2, 2), 3, True)
    x, dy, out = torch.zeros(1, 2, 2, 5), torch.zeros(3, 2, 2, 5), torch.zeros(5, 6)
    squares = torch.zeros(5, dtype=torch.float64)
    layers.filter_gradients(x, dy, geometry, out, squares)
    for wrong in (
        (x[..., :4], dy, geometry, out, squares),
        (x, dy[:2], geometry, out, squares),
        (x, dy, geometry, out[:, :5], squares),
        (x.double(), dy, geometry, out, squares),
        (x, dy, geometry, out, squares.float()),
    ):
        with pytest.raises(ValueError, match="images"):
            layers.filter_gradients(*wrong)
    with pytest.raises(ValueError, match="outer products"):
        layers.outer_sums(torch.zeros(3, 2), torch.zeros(3, 2), torch.tensor([0, 3]), out)
