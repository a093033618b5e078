"""Pseudorandom subsets of columns, computed from a seed on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.compression.quantization import blocks, row_blocks
from tacit.core.native import codecs, is_compiled
from tacit.core.native.gpu import gpu_usable
from tacit.core.randomness import derive_key, tiles, words

# Columns are computed in 32 bits.
MAX_WIDTH = 1 << 31
# Fewer columns are drawn, not permuted: a Feistel network of so few is not uniform (seen up to 8).
NARROW = 256
# Pairs of rounds. With three, 40 columns are not uniform, and would not be with any round function.
ROUNDS = 4
KEY = derive_key("rand-k")
# An odd number that mixes well (Wellons 2018, triple32).
MULTIPLIER = 0x2C1B3C6D


def random_subset(seed: Tensor, width: int, k: int) -> Tensor:
    """K different columns of range(width) for each seed: [n, k] from two words [n, 2].

    Below NARROW columns, every column gets a random word, and those with the k smallest are taken:
    uniform over all subsets if the words are. Otherwise they are the first k values of a
    pseudorandom permutation with the seed as its key (or all but the first P − k, where that is
    less work), in time proportional to k. A column is then in the subset with probability k/P, and
    a pair as often as it should be as far as our tests can tell; that is measured, not proved,
    there are only 2⁶⁴ seeds, and it is no cipher.

    The columns ascend if there are fewer than NARROW or more than half are taken; otherwise they
    are in the order of the permutation.
    """
    if k == width:
        return torch.arange(width, device=seed.device).expand(len(seed), k)
    if width < NARROW:
        return _smallest_words(seed, width, k)
    if 2 * k <= width:
        return _permuted(seed, width, k)
    columns = torch.empty(len(seed), k, dtype=torch.int64, device=seed.device)
    for band in row_blocks(len(seed), width):
        kept = torch.ones(len(seed[band]), width, dtype=torch.bool, device=seed.device)
        kept.scatter_(1, _permuted(seed[band], width, width - k), False)
        columns[band] = kept.nonzero()[:, 1].view(-1, k)
    return columns


def _smallest_words(seed: Tensor, width: int, k: int) -> Tensor:
    """The columns with the k smallest of `width` random words, ascending: [n, k].

    Words may be equal. With the column in the lowest bits all keys differ, so that every device
    takes the same columns.
    """
    columns = torch.empty(len(seed), k, dtype=torch.int64, device=seed.device)
    for band, _ in tiles(len(seed), width):
        drawn = words(KEY, 0, seed[band, 0], seed[band, 1], range(width))
        keys = drawn << 31 | torch.arange(width, device=seed.device)
        smallest = keys.topk(k, dim=1, largest=False, sorted=False).values
        columns[band] = (smallest & (1 << 31) - 1).sort(dim=1).values
    return columns


def _permuted(seed: Tensor, width: int, k: int) -> Tensor:
    """π(0), …, π(k − 1) for a permutation π of range(width) per seed: [n, k].

    A generalized Feistel network (Black and Rogaway 2002) permutes the numbers below b·2^s ≥ width,
    and is applied again to results beyond the width (cycle walking). Where each number beyond the
    width ends is computed for all of them at once, in steps that double, without synchronizing.
    """
    columns = torch.empty(len(seed), k, dtype=torch.int64, device=seed.device)
    if is_compiled() and seed.device.type == "cpu":
        codecs.permuted(_permutation(seed, width), columns)
        return columns
    s, b = feistel_sizes(width)
    keys = words(KEY, 0, seed[:, 0], seed[:, 1], range(4 * ROUNDS)).to(torch.int32).contiguous()
    if gpu_usable(seed.device):
        from tacit.core.native import gpu_integers

        return gpu_integers.permuted(keys, width, k, s, b)
    end = _cycle_ends(keys, width, s, b)
    for band, part in blocks(len(seed), k):
        numbers = torch.arange(part.start, part.stop, dtype=torch.int32, device=seed.device)
        numbers = _feistel(numbers[None], keys[band], s, b)
        columns[band, part] = numbers if end is None else _end_cycles(numbers, end[band], width)
    return columns


def _permutation(seed: Tensor, width: int) -> codecs.Permutation:
    """The same permutation for compiled loops, which compute its keys themselves."""
    return codecs.Permutation(seed.contiguous(), KEY, width, *feistel_sizes(width))


def gathered(seed: Tensor, rows: Tensor, k: int, out: Tensor | None = None) -> Tensor:
    """The numbers of rows [n, P] in the columns of `random_subset`, in its order: [n, k]."""
    width = rows.shape[1]
    out = rows.new_empty(rows.shape[0], k) if out is None else out
    if _is_fused(width, k) and codecs.supports(rows):
        codecs.gather(_permutation(seed, width), rows, out)
    else:
        out.copy_(rows.gather(1, random_subset(seed, width, k)))
    return out


def spread(seed: Tensor, kept: Tensor, width: int, factor: float) -> Tensor:
    """Rows [n, width] with factor·kept in the columns of `random_subset`, zero elsewhere."""
    n, k = kept.shape
    if not (_is_fused(width, k) and codecs.supports(kept)):
        out = kept.new_zeros(n, width)
        return out.scatter_(1, random_subset(seed, width, k), kept * factor)
    out = kept.new_empty(n, width)
    codecs.spread(_permutation(seed, width), kept, factor, out)
    return out


def _is_fused(width: int, k: int) -> bool:
    """Whether the columns are the first of a permutation, which compiled loops need not store."""
    return width >= NARROW and 2 * k <= width


def feistel_sizes(width: int) -> tuple[int, int]:
    """The s and b of the network: b·2^s just above the width, b about 2^s but at most 2¹⁰."""
    bits = (width - 1).bit_length()
    s = max(bits // 2, bits - 10)
    return s, -(-width >> s)


def _cycle_ends(keys: Tensor, width: int, s: int, b: int) -> Tensor | None:
    """Where each of the numbers width, …, b·2^s − 1 comes back below the width: [n, b·2^s − width].

    Numbers that never do are on separate cycles: nothing below the width leads to them.
    """
    beyond = (b << s) - width
    if beyond == 0:
        return None
    numbers = torch.arange(width, b << s, dtype=torch.int32, device=keys.device)
    end = _feistel(numbers[None], keys, s, b)
    for _ in range(beyond.bit_length()):
        end = _end_cycles(end, end, width)
    return end


def _end_cycles(numbers: Tensor, end: Tensor, width: int) -> Tensor:
    """Replace numbers beyond the width by their ends."""
    # Not ≥ width, because 2³¹ does not fit 32 bits.
    beyond = numbers > width - 1
    index = (numbers - width).clamp_(0).long()
    return torch.where(beyond, end.gather(1, index), numbers)


def _feistel(numbers: Tensor, keys: Tensor, s: int, b: int) -> Tensor:
    """Permute numbers below b·2^s, int32 [n or 1, w], for each row of keys [n, 4·ROUNDS]: [n, w].

    A number is R·2^s + L. In turn, R moves by a function of L modulo b, and L is XORed with a
    function of R. Products wrap at 32 bits. With b ≤ 2¹⁰, 21 random bits times b fit, and choose
    every residue with the same probability up to one part in 2¹¹.
    """
    left, right = numbers & (1 << s) - 1, numbers >> s
    for at in range(0, 4 * ROUNDS, 4):
        step = _hashed(left, keys[:, at, None], keys[:, at + 1, None])
        step = step.bitwise_right_shift_(11).bitwise_or_(-1 << 21).mul_(b).bitwise_right_shift_(21)
        # Between −b and b − 2.
        right = step.add_(right)
        right += (right >> 31).bitwise_and_(b)
        flip = _hashed(right, keys[:, at + 2, None], keys[:, at + 3, None])
        left = flip.bitwise_right_shift_(32 - s).bitwise_and_((1 << s) - 1).bitwise_xor_(left)
    return right.bitwise_left_shift_(s).bitwise_or_(left)


def _hashed(half: Tensor, factor: Tensor, term: Tensor) -> Tensor:
    """32 bits of which the highest depend on all of `half`, the factor (made odd) and the term."""
    mixed = (half * (factor | 1)).add_(term)
    return mixed.bitwise_xor_(mixed >> 15).mul_(MULTIPLIER)
