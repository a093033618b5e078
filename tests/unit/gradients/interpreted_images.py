"""Kernels for images with the batch last in Triton's interpreter against tensor operations.

test_gpu_kernels.py runs this script in a process of its own.
"""

import triton_interpreter  # isort: skip  # noqa: F401

import torch
import triton.language as tl
from interpreted_kernels import close, compare_module
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from tacit.core.native.layers import Geometry
from tacit.gradients import batch_last, convolution, gpu_images
from tacit.gradients.samples import sample_products

IMAGES = [  # clients, channels, height, filters, batch, size, stride, dilation, with b, with ReLU
    (2, 1, 8, 3, 4, (5, 5), (1, 1), (1, 1), True, False),
    (2, 3, 7, 5, 3, (3, 2), (2, 1), (1, 2), False, True),
    (1, 2, 6, 17, 70, (3, 3), (1, 2), (1, 1), True, True),
    # Strides that leave pixels out, or share a factor with the dilation; one window alone.
    (2, 2, 9, 4, 5, (2, 2), (3, 2), (1, 2), True, False),
    (1, 2, 9, 3, 5, (2, 3), (6, 4), (3, 2), False, False),
    (2, 1, 5, 2, 33, (3, 3), (9, 7), (2, 1), False, True),
]
POOLS = [  # size, stride; some windows overlap
    ((2, 2), (2, 2)),
    ((2, 2), (1, 1)),
    ((3, 2), (2, 1)),
    ((1, 2), (2, 3)),
]
SAMPLES = [  # channels, height, filters, batch, size, stride, dilation, with b
    (1, 9, 3, 5, (3, 3), (2, 1), (1, 2), True),
    (3, 6, 9, 66, (2, 2), (1, 2), (1, 1), False),
    (1, 5, 17, 40, (3, 3), (1, 1), (1, 1), True),
]


def draw_images(k, channels, height, filters, batch, size, stride, dilation, bias):
    """Random images [k, C, H, W, B], filters [k, F, C, kh, kw] and a convolution."""
    x = torch.randn(k, channels, height, height + 1, batch)
    output = [
        (n - (s - 1) * d - 1) // step + 1
        for n, s, d, step in zip(x.shape[2:4], size, dilation, stride, strict=True)
    ]
    image = (channels, height, height + 1)
    geometry = Geometry(image, size, stride, dilation, tuple(output), filters, bias)
    # Rows of weights, with other parameters after them.
    rows = torch.randn(k, filters * geometry.taps + 5)
    return x, rows[:, :-5].view(k, filters, channels, *size), geometry


def convolved(x, w, b, geometry):
    """What torch computes from images [k, C, H, W, B], with the batch last."""
    each = zip(x.movedim(-1, 1), w, [None] * len(x) if b is None else b, strict=True)
    options = {"stride": geometry.stride, "dilation": geometry.dilation}
    return torch.stack([functional.conv2d(*one, **options) for one in each]).movedim(1, -1)


def compare_images(k, channels, height, filters, batch, size, stride, dilation, bias, relu):
    x, w, geometry = draw_images(k, channels, height, filters, batch, size, stride, dilation, bias)
    b = torch.randn(k, filters + 2)[:, :-2] if bias else None
    x.requires_grad_(), w.requires_grad_()
    expected = convolved(x, w, b, geometry)
    dy = torch.randn(expected.shape)
    by_x, by_w = torch.autograd.grad(expected, (x, w), dy)
    y, found_x = torch.full(expected.shape, torch.nan), torch.full(x.shape, torch.nan)
    wide = torch.full((k, filters * geometry.taps + 3), torch.nan)
    found_w = wide[:, :-3].view(k, filters, geometry.taps)
    x, flat = x.detach(), w.detach().flatten(2)
    gpu_images.convolve(x, flat, geometry, y, b, relu)
    close(y, (expected.relu() if relu else expected).detach())
    gpu_images.weight_gradients(x, dy, geometry, found_w)
    close(found_w, by_w.flatten(2))
    assert bool(wide[:, -3:].isnan().all())
    gpu_images.image_gradients(dy, flat, geometry, found_x)
    close(found_x, by_x)


def compare_pool(size, stride):
    # Few different numbers, so that some of a window are equal, and some sums are zero.
    x = torch.randint(-3, 3, (2, 3, 6, 7, 5)).float()
    x[1, 2, 2, 3, 4] = torch.nan
    b = torch.randint(-2, 2, (2, 4)).float()[:, :-1]
    for bias, relu in ((None, False), (b, True)):
        images, shift = x.clone().requires_grad_(), b.clone().requires_grad_()
        shifted = images if bias is None else images + shift[:, :, None, None, None]
        pooled = functional.max_pool2d(shifted.movedim(-1, 1).flatten(0, 1), size, stride)
        expected = (pooled.relu() if relu else pooled).unflatten(0, (2, 5)).movedim(1, -1)
        y, kept = gpu_images.pool(x, size, stride, bias, relu)
        torch.testing.assert_close(y, expected.detach(), equal_nan=True)
        dy, by_b = torch.randn(y.shape), torch.full((2, 3), torch.nan)
        wanted = (images, shift) if relu else (images,)
        by_x, *rest = torch.autograd.grad(expected, wanted, dy)
        b_gradient = by_b if relu else None
        close(gpu_images.unpool(dy, kept, x.shape, size, stride, relu, b_gradient), by_x)
        for exact in rest:
            close(by_b, exact)


def compare_samples(channels, height, filters, batch, size, stride, dilation, bias):
    x, w, geometry = draw_images(1, channels, height, filters, batch, size, stride, dilation, bias)
    dy = torch.randn(1, filters, *geometry.output, batch)
    # Each sample as a client with filters of its own.
    own = w.expand(batch, *w.shape[1:]).clone().requires_grad_()
    y = convolved(x[0].movedim(-1, 0)[..., None], own, None, geometry)
    (by_w,) = torch.autograd.grad(y, own, dy[0].movedim(-1, 0)[..., None])
    expected = [by_w.flatten(1)] + [dy[0].sum((1, 2)).T] * bias
    for enough in (1, batch * 64):  # both tiles
        gpu_images.ENOUGH_WARPS = enough
        out = torch.full((batch, filters * (geometry.taps + bias)), torch.nan)
        squares = torch.full((batch,), torch.nan, dtype=torch.float64)
        gpu_images.filter_gradients(x[0], dy[0], geometry, out, squares)
        close(out, torch.cat(expected, 1))
        # Of what was written, not of what is exact: clipping relies on it.
        by_filters = out[:, : filters * geometry.taps].double()
        torch.testing.assert_close(squares, by_filters.square().sum(1), rtol=1e-13, atol=0)


# With offsets of 64 bits, as for tensors of many numbers, and with a client's sums in one piece.
WIDE = [(compare_images, IMAGES[2]), (compare_pool, POOLS[1]), (compare_samples, SAMPLES[0])]


def compare_wide(check, case):
    before = gpu_images._index_type, gpu_images.PROGRAMS
    gpu_images._index_type, gpu_images.PROGRAMS = lambda *tensors: tl.int64, 1
    check(*case)
    gpu_images._index_type, gpu_images.PROGRAMS = before


def convolutions(*pooled):
    """Small images with a window of pooling fused with ReLU, and one after tanh."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 5, padding=2), nn.ReLU(), nn.MaxPool2d(*pooled[0]),
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Tanh(), nn.MaxPool2d(*pooled[1]),
        nn.Flatten(), nn.LazyLinear(7),
    )  # fmt: skip


POOLING = ("pool", "unpool")
BATCH_LAST = {  # a module, the shape of its inputs, and kernels that it uses
    "apart, then overlapping": (
        lambda: convolutions((2,), (2, 1)), (1, 11, 12),
        (*POOLING, "convolve", "weight_gradients", "image_gradients", "filter_gradients"),
    ),
    "overlapping, then apart": (lambda: convolutions((3, 2), (2,)), (1, 11, 12), POOLING),
    "other layouts": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 2, 3, groups=2), nn.MaxPool2d(3, 2), nn.Flatten(), nn.LazyLinear(7)
        ),
        (2, 7, 8), POOLING,
    ),
}  # fmt: skip


def compare_batch_last(make, shape, used):
    """Gradients of clients, and of single samples, with images whose batch is last in memory."""
    calls = counted(gpu_images, used)
    loops = batch_last.loops_for
    batch_last.loops_for = convolution.loops_for = lambda x: gpu_images
    compare_module(make, shape, 17)
    module = make()
    x = torch.randn(9, *shape)
    module(x)
    named = {name: p.detach() for name, p in module.named_parameters()}

    def loss(parameters, arrays):
        output = functional_call(module, dict(zip(named, parameters, strict=True)), tuple(arrays))
        return output.flatten(1).sin().sum(1).mean()

    products = sample_products(loss, list(named.values()), [x])
    batch_last.loops_for = convolution.loops_for = loops
    for sample in range(len(x)):
        own = [p.clone().requires_grad_() for p in named.values()]
        expected = torch.autograd.grad(loss(own, [x[sample : sample + 1]]), own)
        for block, exact in zip(products, expected, strict=True):
            close(block.rows()[sample], exact.flatten())
    for block in products:
        torch.testing.assert_close(block.squared_norms(), block.rows().double().square().sum(1))
    assert min(calls.values()) > 0


def counted(module, names):
    """How often functions of a module are called."""
    calls = dict.fromkeys(names, 0)

    def counting(name, function):
        def call(*args):
            calls[name] += 1
            return function(*args)

        return call

    for name in names:
        setattr(module, name, counting(name, getattr(module, name)))
    return calls


if __name__ == "__main__":
    torch.manual_seed(0)
    for case in IMAGES:
        compare_images(*case)
    for case in POOLS:
        compare_pool(*case)
    for case in SAMPLES:
        compare_samples(*case)
    for case in WIDE:
        compare_wide(*case)
    for case in BATCH_LAST.values():
        compare_batch_last(*case)
    cases = (IMAGES, POOLS, SAMPLES, WIDE, BATCH_LAST)
    print(f"{sum(len(some) for some in cases)} cases agree")
