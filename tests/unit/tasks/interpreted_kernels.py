"""Our Triton kernels in Triton's interpreter against tensor operations.

test_gpu_kernels.py runs this script in a process of its own.
"""

import triton_interpreter  # isort: skip  # noqa: F401

import torch
import triton.language as tl
from torch.nn import functional

from tacit.compression.subsets import KEY, ROUNDS, feistel_sizes, random_subset
from tacit.core import discrete_gaussian
from tacit.core.discrete_gaussian import DiscreteGaussian, Table
from tacit.core.fixed_point import FixedPoint
from tacit.core.native import gpu_integers
from tacit.core.native.gpu import KNOWN_WORDS
from tacit.core.randomness import _integers, philox, words
from tacit.gradients.products import OuterProducts, write_clipped_sums, write_masked_sums
from tacit.tasks.layers import gpu, gpu_samples
from tacit.tasks.layers.convolution import Convolution

CASES = [  # clients, channels, height, filters, batch, size, stride, dilation, with b, with ReLU
    (2, 1, 8, 3, 4, (5, 5), (1, 1), (1, 1), True, False),
    (2, 3, 7, 5, 3, (3, 2), (2, 1), (1, 2), False, True),
    (1, 2, 6, 17, 2, (3, 3), (1, 2), (1, 1), True, True),
]


def compare(k, channels, height, filters, batch, size, stride, dilation, bias, relu):
    x = torch.randn(k, channels, height, height + 1, batch)
    plain = Convolution(channels, filters, size, stride, (0, 0), dilation)
    windows = gpu.Windows(size, stride, dilation, *plain.output_size(x.shape))
    weights = torch.randn(k, filters * plain.taps + filters)
    w = weights[:, : plain.width].view(k, filters, plain.taps)
    b = weights[:, plain.width :]
    expected, _ = plain.forward(weights[:, : plain.width], x)
    seen = plain._copied_windows(x)
    expected = expected + b[:, :, None, None, None] if bias else expected
    expected = expected.relu() if relu else expected
    y = windows.forward(x, w, b if bias else None, relu)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)

    dy = torch.randn(k, filters, seen.shape[2])
    out = torch.full((k, plain.width + 3), torch.nan)
    windows.write_gradients(x, dy, out[:, : plain.width])
    torch.testing.assert_close(out[:, : plain.width].view_as(w), dy @ seen.mT, rtol=1e-4, atol=1e-4)
    assert bool(out[:, plain.width :].isnan().all())
    unfolded = w.mT @ dy
    folded = plain._fold(unfolded, x.shape)
    torch.testing.assert_close(windows.fold(unfolded, x.shape), folded)
    by_input = windows.input_gradient(w, dy, x.shape)
    torch.testing.assert_close(by_input, folded, rtol=1e-4, atol=1e-4)

    images = y.flatten(0, 1).permute(0, 3, 1, 2).contiguous().requires_grad_()
    for window, step in (((2, 2), (2, 2)), ((2, 2), (1, 1)), ((3, 2), (2, 1)), ((1, 2), (2, 3))):
        pooled = functional.max_pool2d(images, window, step).relu()
        largest, where = gpu.pool(y, window, step, True)
        torch.testing.assert_close(largest.flatten(0, 1).permute(0, 3, 1, 2), pooled.detach())
        share = torch.randn_like(largest)
        (back,) = torch.autograd.grad(pooled, images, share.flatten(0, 1).permute(0, 3, 1, 2))
        found = gpu.unpool(share, where, y.shape, window, step)
        torch.testing.assert_close(found.flatten(0, 1).permute(0, 3, 1, 2), back)


SAMPLES = [  # channels, height, filters, batch, size, stride, dilation, with b
    (1, 9, 3, 5, (3, 3), (2, 1), (1, 2), True),
    (3, 6, 9, 66, (2, 2), (1, 2), (1, 1), False),
    (1, 5, 17, 40, (3, 3), (1, 1), (1, 1), True),
]


def compare_filters(channels, height, filters, batch, size, stride, dilation, bias):
    x = torch.randn(1, channels, height, height + 1, batch)
    plain = Convolution(channels, filters, size, stride, (0, 0), dilation, bias)
    windows = gpu.Windows(size, stride, dilation, *plain.output_size(x.shape))
    dy = torch.randn(1, filters, windows.rows, windows.columns, batch)
    _, saved = plain.forward(torch.randn(1, plain.width), x)
    gpu_samples.ENOUGH_WARPS = batch  # both tiles
    products, write = gpu_samples.filter_gradients(windows, x, dy.flatten(2), bias)
    products.right.fill_(torch.nan)
    write()
    _, found = plain.sample_gradients(torch.randn(1, plain.width), saved, dy, False)
    expected = torch.cat([block.right for block in found], 1)
    torch.testing.assert_close(products.right, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        products.squares.sum(1), products.right.double().square().sum(1), rtol=1e-9, atol=1e-9
    )


# With offsets of 64 bits, as for tensors of 2³¹ numbers.
WIDE = [(compare, CASES[0]), (compare, CASES[1]), (compare_filters, SAMPLES[0])]


def compare_wide(check, case):
    narrow = gpu.index_type
    gpu.index_type = gpu_samples.index_type = lambda *tensors: tl.int64
    check(*case)
    gpu.index_type = gpu_samples.index_type = narrow


CLIENTS = [  # samples of each client, padded samples
    ((7, 0, 40, 1), 3),
    ((0, 300), 0),
    ((700,), 20),
    ((2,) * 30, 4),
]


def compare_sums(counts, padding):
    batch = sum(counts) + padding
    x, dy = torch.randn(70, batch), torch.randn(19, batch)
    whole = torch.randn(batch, 150)
    x[3, 0], whole[1, 7] = torch.inf, torch.nan
    x[:, 5] *= 1e18
    dy[:, 6], whole[6] = 0, 0
    partial = torch.stack((whole.double().square().sum(1) - 1, torch.ones(batch).double()))
    blocks = [
        OuterProducts(whole, squares=partial.T), OuterProducts(x.T, dy.T), OuterProducts(dy.T)
    ]  # fmt: skip
    bounds = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])
    width = sum(block.width for block in blocks)
    for bound in (0.25, 1e4):
        found = torch.full((len(counts), width + 1), torch.nan)
        gpu_samples.write_clipped_sums(blocks, bound, bounds, found[:, :width])
        assert bool(found[:, width].isnan().all())
        expected, masked = torch.empty(len(counts), width), torch.empty(len(counts), width)
        write_clipped_sums(blocks, bound, [(bounds, expected)])
        torch.testing.assert_close(found[:, :width], expected, rtol=1e-4, atol=1e-4 * bound)
        write_masked_sums(blocks, bound, bounds, masked)
        torch.testing.assert_close(masked, expected, rtol=1e-4, atol=1e-4 * bound)


WORDS = [  # key, tick, rows, first column, last column
    (0, 0, 1, 0, 1),
    (0xF0E1D2C3B4A59687, 12345, 3, 0, 1030),
    (1 << 63, (1 << 31) + 5, 5, 4096, 4099),
    (1, 7, 2, 0, 5000),
]
SUBSETS = [
    (3, 300, 150),
    (2, 257, 1),
    (4, 18378, 7351),
    (2, 4096, 2000),
    (1, 1 << 17, 600),
]  # rows, P, k


def compare_words(key, tick, rows, first, last):
    source, target = torch.arange(rows) * 3 + 1, torch.randint(0, 1 << 32, (rows,))
    expected = words(key, tick, source, target, range(first, last))
    found = gpu_integers.words(key, torch.tensor([tick]), source, target, range(first, last))
    assert torch.equal(found, expected)
    ticks = tick + torch.arange(rows)  # each row at its own
    each = [
        words(key, t, source[[r]], target[[r]], range(first, last))
        for r, t in enumerate(ticks.tolist())
    ]
    assert torch.equal(
        gpu_integers.words(key, ticks, source, target, range(first, last)), torch.cat(each)
    )
    counters = torch.randint(0, 1 << 32, (4, 300))
    assert torch.equal(gpu_integers.philox(counters, key), philox(tuple(counters), key))
    zeros = torch.zeros(2, dtype=torch.int64)
    assert gpu_integers.words(0, torch.arange(2), zeros, zeros, range(4)).tolist() == KNOWN_WORDS


BASE = discrete_gaussian.base_table(torch.device("cpu"))
INTEGERS = [  # rows, P, factor, type, a table in which words tie
    (3, 700, 7, torch.int32, False),
    (2, 5, 0, torch.int64, False),
    (2, 300, 300, torch.int32, True),
    (19, 301, 0, torch.int32, True),
]


def compare_integers(rows, width, factor, dtype, ties):
    keys, source = (0xF0E1D2C3B4A59687, 1 << 63), torch.arange(rows) * 3 + 1
    tick, zeros = 12345, torch.zeros_like(source)
    table, each = BASE, DiscreteGaussian(factor).words
    if ties:
        drawn = words(keys[0], tick, source, zeros, range(each * width)).flatten()
        low = torch.randint(0, 1 << 32, (len(drawn), 3)).tolist()
        first = (drawn & 0x7FFFFFFF).tolist()
        parts = zip([*first, *first[::2]], [*low, *low[::-2]], strict=True)
        table = Table.of(sorted(t << 96 | a << 64 | b << 32 | c for t, (a, b, c) in parts))
    discrete_gaussian.base_table = lambda device: table
    noise = _integers(keys, DiscreteGaussian(factor), tick, source, range(each * width)).to(dtype)
    begin = torch.randint(-(1 << 31), 1 << 31, (rows, width), dtype=dtype)
    found, total = begin.clone(), begin[:1].clone()
    shared = ((table.guide, table.words, factor), keys, torch.tensor([tick]), source)
    gpu_integers.add_integers(*shared, found, is_sum=False)
    gpu_integers.add_integers(*shared, total, is_sum=True)
    assert torch.equal(found, begin + noise)
    assert torch.equal(total[0], begin[0] + noise.sum(0, dtype=dtype))


ENCODED = [(1, 3, 0.1), (70, 300, 1e6), (33, 257, 123456.789)]  # rows, P, scale


def compare_encoded(rows, width, scale):
    x = torch.randn(rows, width)
    x[0, :3] = torch.tensor([torch.nan, torch.inf, -1e30])
    x[-1, 0] = 2.5 / scale
    limit = int(4 * scale) + 1
    code = FixedPoint(scale, limit=limit)
    integers = torch.nan_to_num((x.double() * scale).round(), limit).clamp(-limit, limit)
    found = gpu_integers.encoded_sum(x, code.scale, code.limit)
    assert torch.equal(found, integers.to(torch.int64).sum(0))


def compare_subsets(rows, width, k):
    seed = torch.randint(0, 1 << 32, (rows, 2))
    keys = words(KEY, 0, seed[:, 0], seed[:, 1], range(4 * ROUNDS)).to(torch.int32)
    assert torch.equal(
        gpu_integers.permuted(keys, width, k, *feistel_sizes(width)), random_subset(seed, width, k)
    )


if __name__ == "__main__":
    torch.manual_seed(0)
    for case in CASES:
        compare(*case)
    for case in SAMPLES:
        compare_filters(*case)
    for case in WIDE:
        compare_wide(*case)
    for case in CLIENTS:
        compare_sums(*case)
    for case in WORDS:
        compare_words(*case)
    for case in SUBSETS:
        compare_subsets(*case)
    for case in INTEGERS:
        compare_integers(*case)
    for case in ENCODED:
        compare_encoded(*case)
    cases = (CASES, SAMPLES, WIDE, CLIENTS, WORDS, SUBSETS, INTEGERS, ENCODED)
    print(f"{sum(map(len, cases))} cases agree")
