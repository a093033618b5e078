"""Keys of single samples, for what is drawn inside a gradient: dropout masks and augmentation.

A key is a 64-bit number as int64. It depends on the seed, the client, the number of the sample
among the client's data and the number of the batch, and on nothing else: not on the rest of the
batch, the engine or the device. Numbers are those of SplitMix64 (Steele et al. 2014), a counter
that goes through two rounds of multiplication. All of it is tensor operations, which
`torch.func.vmap` batches and CUDA graphs capture.

The masks follow from the seed, which all clients know. They are not a means of privacy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.core.randomness import WORD_MASK, derive_key


def _signed(number: int) -> int:
    """The number modulo 2⁶⁴ as int64 holds it."""
    return (number + 2**63) % 2**64 - 2**63


STEP = _signed(0x9E3779B97F4A7C15)
ROUNDS = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)))
LAST_SHIFT = 31


def fold(keys: Tensor, number: Tensor | int) -> Tensor:
    """The keys that follow from these keys and a number: SplitMix64 from `keys` at `number`.

    Args:
        keys: Any keys, int64.
        number: Not negative; of a shape that broadcasts with that of the keys.
    """
    # A product of Python's numbers would not wrap around.
    step = (number + 1) * STEP
    z = keys + (_signed(step) if isinstance(step, int) else step)
    for shift, factor in ROUNDS:
        z = (z ^ _shifted(z, shift)) * factor
    return z ^ _shifted(z, LAST_SHIFT)


def sample_keys(seed: int, client: int, samples: int) -> Tensor:
    """The keys [samples] of a client's data in their order, for all batches."""
    root = torch.tensor(_signed(derive_key(seed, "samples")), dtype=torch.int64)
    return fold(fold(root, client), torch.arange(samples))


def words(keys: Tensor, count: int) -> Tensor:
    """Uniform 32-bit words [..., count] of keys [...], as signed numbers in int32.

    Word j of a key depends on the key and on j only.
    """
    drawn = fold(keys[..., None], torch.arange(-(-count // 2), device=keys.device))
    # Both halves of a 64-bit number. Not as a view: older versions of vmap have no rule for it.
    halves = torch.stack((drawn, drawn >> 32), -1).flatten(-2)
    return halves[..., :count].to(torch.int32)


def below(keys: Tensor, bounds: tuple[int, ...]) -> list[Tensor]:
    """For each bound, a uniform whole number below it per key [...], in int64."""
    drawn = words(keys, len(bounds)).long() & WORD_MASK
    return [(drawn[..., column] * bound) >> 32 for column, bound in enumerate(bounds)]


def _shifted(z: Tensor, by: int) -> Tensor:
    """The bits shifted to the right; `>>` would repeat the sign."""
    return (z >> by) & ((1 << (64 - by)) - 1)
