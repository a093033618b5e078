"""Compiled layers, of clients and of single samples, against the same in tensor operations."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional

from tacit.core import native
from tacit.core.native import layers
from tacit.core.native.layers import Geometry

pytestmark = pytest.mark.skipif(
    not layers.supports(torch.zeros(1)), reason="there was no compiler that knows vectors"
)
TYPES = st.sampled_from([torch.float32, torch.float64])
TARGETS = st.sampled_from(native.targets() or ("none",))
SIZES = st.integers(1, 40)


def random(*shape, dtype):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def is_close(found, exact, terms):
    """Up to the rounding of sums of so many products of normal numbers."""
    tolerance = 8 * torch.finfo(found.dtype).eps * terms
    return bool(((found.double() - exact).abs() <= tolerance * (1 + exact.abs())).all())


@pytest.fixture(autouse=True)
def _reproducible():
    torch.manual_seed(0)


def on(target, function, *arguments):
    before, native.target = native.target, lambda: target
    try:
        function(*arguments)
    finally:
        native.target = before


@settings(max_examples=60, deadline=None)
@given(TARGETS, TYPES, st.integers(1, 3), SIZES, SIZES, SIZES, st.booleans(), st.booleans())
def test_dots(target, dtype, k, rows, columns, width, starts, transposed):
    weights = random(k, rows * (width + 1), dtype=dtype)
    left, b = weights[:, : rows * width].view(k, rows, width), weights[:, rows * width :]
    right = random(k, columns, width, dtype=dtype)
    out = torch.empty(k, columns, rows, dtype=dtype).mT
    out = out if transposed else out.contiguous()
    on(target, layers.dots, left, right, b if starts else None, out)
    exact = left.double() @ right.double().mT + (b.double()[:, :, None] if starts else 0)
    assert is_close(out, exact, width + 1)


@settings(max_examples=60, deadline=None)
@given(
    *(TARGETS, TYPES, st.integers(1, 3), SIZES, SIZES),
    *(st.integers(1, 80), st.booleans(), st.booleans()),
)
def test_product(target, dtype, k, count, terms, width, transposed, summed):
    factors = random(k, terms, count, dtype=dtype).mT
    factors = factors if transposed else factors.contiguous()
    x = random(k, terms, width, dtype=dtype)
    wide = torch.zeros(k, count * width + count + 3, dtype=dtype)
    out = wide[:, : count * width].view(k, count, width)
    total = wide[:, count * width : -3]
    on(target, layers.product, factors, x, out, total if summed else None)
    assert is_close(out, factors.double() @ x.double(), terms)
    assert is_close(total, factors.double().sum(2) * summed, terms)
    assert not wide[:, -3:].any()


@settings(max_examples=60, deadline=None)
@given(
    *(TARGETS, TYPES, st.data(), st.integers(1, 3), st.integers(1, 3)),
    *(st.integers(1, 9), st.integers(1, 70)),
)
def test_convolutions(target, dtype, data, k, channels, filters, batch):
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    size, stride, dilation = data.draw(pair), data.draw(pair), data.draw(pair)
    extent = [(n - 1) * d + 1 for n, d in zip(size, dilation, strict=True)]
    image = [e + data.draw(st.integers(0, 4)) for e in extent]
    output = [(n - e) // s + 1 for n, e, s in zip(image, extent, stride, strict=True)]
    geometry = Geometry((channels, *image), size, stride, dilation, tuple(output), filters, False)
    x = random(k, channels, *image, batch, dtype=dtype)
    w = random(k, filters * geometry.taps + 1, dtype=dtype)[:, :-1].view(k, filters, -1)
    y = torch.empty(k, filters, *output, batch, dtype=dtype)
    dy = random(*y.shape, dtype=dtype)
    w_gradient, x_gradient = torch.empty_like(w, dtype=dtype).contiguous(), torch.empty_like(x)
    on(target, layers.convolve, x, w, geometry, y)
    on(target, layers.weight_gradients, x, dy, geometry, w_gradient)
    on(target, layers.image_gradients, dy, w, geometry, x_gradient)
    for i in range(k):
        images = x[i].double().permute(3, 0, 1, 2).requires_grad_()
        kernels = w[i].double().view(filters, channels, *size).requires_grad_()
        exact = functional.conv2d(images, kernels, stride=stride, dilation=dilation)
        exact.backward(dy[i].double().permute(3, 0, 1, 2))
        taps, positions = geometry.taps, output[0] * output[1]
        assert is_close(y[i], exact.detach().permute(1, 2, 3, 0), taps)
        assert is_close(w_gradient[i], kernels.grad.view(filters, -1), positions * batch)
        assert is_close(x_gradient[i], images.grad.permute(1, 2, 3, 0), taps * filters)


@settings(max_examples=60, deadline=None)
@given(
    *(TARGETS, TYPES, st.data(), st.integers(1, 2), st.integers(1, 3), st.integers(1, 70)),
    *(st.booleans(), st.booleans()),
)
def test_pooling(target, dtype, data, k, filters, batch, biased, relu):
    size = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    stride = tuple(n + data.draw(st.integers(0, 1)) for n in size)
    image = [n + data.draw(st.integers(0, 5)) for n in size]
    # Few different numbers, so that some of a window are equal.
    x = torch.randint(-3, 3, (k, filters, *image, batch)).to(dtype)
    b = torch.randint(-1, 2, (k, filters)).to(dtype)
    dx, b_gradient = [], torch.empty(k, filters, dtype=dtype)

    def work():
        y, pooled = layers.pool(x, size, stride, b if biased else None, relu)
        dy = torch.arange(y.numel(), dtype=dtype).view(y.shape) + 1
        parts = (x.shape, size, stride, relu, b_gradient if biased else None)
        dx.extend((y, dy, layers.unpool(dy, pooled, *parts)))

    on(target, work)
    y, dy, found = dx
    images, shift = x.clone().requires_grad_(), b.clone().requires_grad_()
    each = functional.max_pool2d(images.permute(0, 4, 1, 2, 3).flatten(0, 1), size, stride)
    exact = each.unflatten(0, (k, batch)).permute(0, 2, 3, 4, 1)
    exact = exact + shift[:, :, None, None, None] if biased else exact
    exact = exact.relu() if relu else exact
    exact.backward(dy)
    assert torch.equal(y, exact.detach())
    assert torch.equal(found, images.grad)
    if biased:
        assert torch.allclose(b_gradient, shift.grad, rtol=1e-5)


def test_what_the_loops_are_not_for(monkeypatch):
    assert not layers.supports(torch.zeros(2, dtype=torch.float16))
    assert not layers.supports(torch.zeros(2, device="meta"))
    monkeypatch.setattr(native, "_library", lambda: None)
    assert not layers.supports(torch.zeros(2))


def test_pooling_finds_what_is_not_a_number():
    x = torch.zeros(1, 1, 2, 2, 3)
    x[0, 0, 1, 0, 1] = torch.nan
    for relu in (False, True):
        y, (where, *_) = layers.pool(x, (2, 2), (2, 2), None, relu)
        assert y.isnan().flatten().tolist() == [False, True, False]
        assert where.flatten().tolist() == [0, 2, 0]


def test_shapes_that_do_not_fit_are_refused():
    one, two = torch.zeros(1, 2, 3), torch.zeros(1, 4, 5)
    with pytest.raises(ValueError, match="products of"):
        layers.dots(one, two, None, torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="the product of"):
        layers.product(one, two, torch.zeros(1, 2, 5))
    geometry = Geometry((1, 3, 3), (2, 2), (1, 1), (1, 1), (2, 2), 2, False)
    with pytest.raises(ValueError, match="images"):
        layers.convolve(
            torch.zeros(1, 1, 3, 4, 2), torch.zeros(1, 2, 4), geometry, torch.zeros(1, 2, 2, 2, 2)
        )


# --- Single samples -------------------------------------------------------------------------------


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    batch=st.integers(1, 19),
    channels=st.integers(1, 3),
    filters=st.integers(1, 9),
    bias=st.booleans(),
    dtype=TYPES,
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
    geometry = Geometry((channels, height, width), size, stride, dilation, output, filters, bias)
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
    geometry = Geometry((1, 1, 1), one, one, one, one, 1, False)
    layers.filter_gradients(x, dy, geometry, out, squares)
    torch.testing.assert_close(squares, out[:, 0].double().square(), equal_nan=True)
    assert squares.isfinite().tolist() == [True, True, False, False, True]


@settings(max_examples=80, deadline=None)
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    outputs=st.integers(1, 9),
    width=st.sampled_from([1, 3, 15, 16, 17, 40]),
    dtype=TYPES,
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


def test_shapes_of_samples_that_do_not_fit_are_refused():
    one = (1, 1)
    geometry = Geometry((1, 2, 2), one, one, one, (2, 2), 3, True)
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
