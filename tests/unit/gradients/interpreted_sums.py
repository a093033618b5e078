"""Kernels of clipped sums in Triton's interpreter against tensor operations.

test_gpu_kernels.py runs this script in a process of its own.
"""

import triton_interpreter  # isort: skip  # noqa: F401

from itertools import pairwise

import torch

from tacit.gradients import gpu_sums, masked_sums
from tacit.gradients.products import LARGEST_SQUARE, OuterProducts, write_clipped_sums
from tacit.privacy.clipping import clipping_factors

SUMS = [  # samples of each client, padded samples
    ((7, 0, 17, 1), 3),
    ((0, 45), 0),
    ((50,), 10),
    ((2,) * 6, 4),
    ((0, 0, 60, 3, 0), 37),
]
# What is not finite or too large, the sample, and the block of `blocks_of`.
BAD = [(torch.nan, 0, 0), (torch.inf, 3, 1), (-torch.inf, 5, 2), (1e30, 6, 1)]


def blocks_of(samples, bad=()):
    """Gradients with and without left factors, in both orders of memory, some squares known."""
    whole, wide = torch.randn(samples, 270), torch.randn(samples, 70)
    left, small = torch.randn(37, samples), torch.randn(samples, 19)
    wide[1:4] *= torch.tensor([1e-30, 1e3, 1e18])[:, None]
    whole[4] = left[:, 4] = small[4] = 0
    for number, sample, block in bad:
        (whole, wide, small)[block][sample, -1] = number
    partial = torch.stack((whole.double().square().sum(1) - 1, torch.ones(samples).double()), 1)
    return [
        OuterProducts(whole, squares=partial),
        OuterProducts(wide, left.T),
        OuterProducts(small),
        OuterProducts(wide.T.contiguous().T, small, squares=wide.double().square()),
        OuterProducts(left.T),
    ]


def bounds_of(counts):
    return torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])


def sums(blocks, bound, bounds):
    """The sums, in rows with one more number, which must be left alone."""
    width = sum(block.width for block in blocks)
    out = torch.full((len(bounds) - 1, width + 1), torch.nan)
    gpu_sums.write_clipped_sums(blocks, bound, bounds, out[:, :width])
    assert bool(out[:, width].isnan().all())
    return out[:, :width]


def compare_sums(counts, padding):
    """Both ways of tensor operations; rounding is at most that of `tacit.core.rounded_sums`."""
    bounds, sizes = bounds_of(counts), torch.tensor(counts)
    for bound, bad in ((0.25, ()), (1e4, BAD)):
        blocks = blocks_of(sum(counts) + padding, bad)
        found = sums(blocks, bound, bounds)
        masked, expected = torch.empty_like(found), torch.empty_like(found)
        masked_sums.multiply_masked(blocks, bound, bounds, masked)
        write_clipped_sums(blocks, bound, [(bounds, expected)])
        for other in (masked, expected):
            errors = (found.double() - other.double()).norm(dim=1)
            assert bool((errors <= 2.0**-22 * bound * sizes).all()), errors
        assert bool(found[sizes > 8].any(1).all())


def compare_bits(counts, padding):
    """A client's sum does not depend on samples of others, of the padding, or its place."""
    bounds, samples = bounds_of(counts), sum(counts) + padding
    blocks = blocks_of(samples)
    found = sums(blocks, 1.0, bounds)
    for client, (low, high) in enumerate(pairwise(bounds.tolist())):
        others = torch.ones(samples, dtype=torch.bool)
        others[low:high] = False
        changed = [block.without(others) for block in blocks]
        for block in changed:
            block.right[others] = torch.nan
        assert torch.equal(sums(changed, 1.0, bounds)[client], found[client])
        # The same samples at the end, and all others belong to the first client.
        order = torch.cat((torch.where(others)[0], torch.arange(low, high)))
        last = torch.full((len(bounds),), samples - (high - low))
        last[0], last[-1] = 0, samples
        moved = [
            OuterProducts(
                block.right[order],
                None if block.left is None else block.left[order],
                None if block.squares is None else block.squares[order],
            )
            for block in blocks
        ]
        assert torch.equal(sums(moved, 1.0, last)[-1], found[client])


def compare_factors():
    """Those of `clipping_factors`; and no clipped gradient is longer than its bound."""
    right = torch.randn(500, 5) * torch.logspace(-44, 38, 500)[:, None]
    right[0], right[1, 0], right[2, 4] = 0, torch.nan, torch.inf
    block = OuterProducts(right)
    norms = block.squared_norms().sqrt()
    for bound in (1e-42, 0.1, 1 / 3, 1e30):
        found = gpu_sums.clipped_factors([block], bound)
        expected = clipping_factors(norms, bound, torch.float32)
        # Two roundings: of the bound, and of the factor.
        assert torch.equal(found == 0, expected == 0)
        torch.testing.assert_close(found, expected, rtol=2.0**-22, atol=0)
        clipped = torch.where(found[:, None] == 0, 0.0, right.double() * found[:, None])
        assert float(clipped.norm(dim=1).max()) <= bound


def compare_wide():
    """Rows that are read in several steps."""
    right, left = torch.randn(40, 1100), torch.randn(40, 1030)
    for block in (OuterProducts(right), OuterProducts(right, left)):
        found = gpu_sums.clipped_factors([block], 0.5)
        expected = clipping_factors(block.squared_norms().sqrt(), 0.5, torch.float32)
        torch.testing.assert_close(found, expected, rtol=2.0**-22, atol=0)


def compare_largest_square():
    """With larger right factors, a gradient counts as zero, however short it is."""
    right = torch.full((2, 1), LARGEST_SQUARE**0.5)
    right[1] *= 1.001
    block = OuterProducts(right, torch.full((2, 3), 1e-20))
    factors = gpu_sums.clipped_factors([block], 1.0)
    assert float(factors[0]) > 0
    assert float(factors[1]) == 0


if __name__ == "__main__":
    torch.manual_seed(0)
    gpu_sums.FEW_SAMPLES = 8
    for case in SUMS:
        compare_sums(*case)
    compare_bits((3, 0, 17, 1), 3)
    compare_factors()
    compare_wide()
    compare_largest_square()
    print(f"{len(SUMS)} cases agree")
