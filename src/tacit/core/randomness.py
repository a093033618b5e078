"""Keyed randomness: every number drawn is a pure function of its purpose.

The simulator's generator is Philox4x32-10 (Salmon et al. 2011), a counter-based generator. `philox`
defines it, in integer tensor operations, which run everywhere. On a CPU compiled loops draw a word
in a fifth of the time and add noise while they draw it (loops/noise.h), and on a GPU kernels take
one launch instead of a hundred, by Triton's own Philox. CPU and GPU draw the same words, for one
row or a million, in any order and chunking. A word is addressed by

    key      from the seed and a tag ("delta", "batches", …)
    counter  (column // 4, source, target, tick); column % 4 picks one of the four words

Integer noise takes two words per number, and rarely further ones: those of the word in column c are
the words 4c, 4c + 1 and 4c + 2 of another key.

`source` is the client whose randomness it is, `target` one plus the other end of an edge for noise
that two clients share, or zero, and `tick` the iteration. There is no hidden stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.devices import to_device
from tacit.core.discrete_gaussian import FURTHER, DiscreteGaussian
from tacit.core.integer_noise import Keys, add_by_kernels
from tacit.core.native import add_laplace, is_compiled, supports, write_words
from tacit.core.native.gpu import gpu_usable
from tacit.core.noise import Laplace, Noise
from tacit.core.rows import NoiseRows
from tacit.core.workers import WorkerPool

WORD_MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
# Counters at a time, sixteen times as many on a GPU: bounds the workspace and stays in cache.
TILE = 1 << 14


def derive_key(*parts: int | str) -> int:
    """A 64-bit key for a purpose, such as `derive_key(seed, "batches")`."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def philox(counters: Iterable[Tensor], key: int) -> Tensor:
    """Philox4x32-10 of four int64 counters [...]: four 32-bit words [..., 4] as int64."""
    c0, c1, c2, c3 = counters
    k0, k1 = key & WORD_MASK, (key >> 32) & WORD_MASK
    for _ in range(ROUNDS):
        # A product of two 32-bit numbers wraps in int64, but its bits are right: shift, then mask.
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        high0 = (p0 >> 32).bitwise_and_(WORD_MASK)
        high1 = (p1 >> 32).bitwise_and_(WORD_MASK)
        c0, c1, c2, c3 = (
            high1.bitwise_xor_(c1).bitwise_xor_(k0),
            p1.bitwise_and_(WORD_MASK),
            high0.bitwise_xor_(c3).bitwise_xor_(k1),
            p0.bitwise_and_(WORD_MASK),
        )
        k0, k1 = (k0 + WEYL[0]) & WORD_MASK, (k1 + WEYL[1]) & WORD_MASK
    return torch.stack((c0, c1, c2, c3), dim=-1)


def words(
    key: int,
    tick: Tensor | int,
    source: Tensor,
    target: Tensor,
    columns: range,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Words [rows, len(columns)] of the rows (source, target) at `tick`.

    Args:
        key: The key, from `derive_key`.
        tick: One tick, or one per row [rows].
        source: The first address of each row, int64 [rows].
        target: The second address of each row, int64 [rows].
        columns: Which columns; they start at a multiple of 4.
        dtype: int64 or uint32.
    """
    if isinstance(tick, int) and source.device.type == "cpu" and is_compiled():
        out = torch.empty(len(source), len(columns), dtype=torch.uint32)
        ends = (source.contiguous(), target.contiguous())
        write_words(key, tick, *ends, columns.start, out)
        return out.to(dtype)
    # A fill, not a copy from the host: that would wait for a GPU.
    ticks = tick if isinstance(tick, Tensor) else torch.full((1,), tick, device=source.device)
    if gpu_usable(source.device):
        from tacit.core.native import gpu_integers

        return gpu_integers.words(key, ticks, source, target, columns).to(dtype)
    out = torch.empty(len(source), len(columns), dtype=dtype, device=source.device)
    for rows, part in tiles(len(source), len(columns), out.device):
        first = (columns.start + part.start) // 4
        blocks = torch.arange(first, first - (-len(part) // 4), device=source.device)
        row_ticks = ticks if ticks.numel() == 1 else ticks[rows]
        counters = (
            *(blocks[None, :], source[rows, None], target[rows, None]),
            row_ticks.reshape(-1, 1),
        )
        shape = (len(source[rows]), len(blocks))
        drawn = philox((counter.expand(shape) for counter in counters), key)
        out[rows, part.start : part.stop] = drawn.flatten(1)[:, : len(part)]
    return out


def uniform(words: Tensor) -> Tensor:
    """(w + ½)/2³²: the middle of one of 2³² equal cells of (0, 1), so every quantile is finite."""
    return words.to(torch.float64, copy=True).add_(0.5).mul_(2.0**-32)


def tiles(
    rows: int, width: int, device: torch.device | str = "cpu"
) -> Iterator[tuple[slice, range]]:
    """Cut [rows, width] into pieces of about TILE counters, with columns from multiples of 4."""
    counters = _counters_at_once(device)
    columns = max(1, min(width, 4 * counters))
    height = max(1, counters // max(1, -(-columns // 4)))
    for top in range(0, rows, height):
        for left in range(0, width, columns):
            yield slice(top, min(rows, top + height)), range(left, min(width, left + columns))


def _counters_at_once(device: torch.device | str) -> int:
    return TILE if torch.device(device).type == "cpu" else 16 * TILE


class Randomness(Protocol):
    """A source of noise: Philox in the simulator, keystreams in a peer, symbols in the audit."""

    def rows(
        self,
        tag: str,
        law: Noise,
        tick: int,
        source: Tensor,
        target: Tensor | None,
        width: int | None = None,
    ) -> NoiseRows:
        """Rows of noise of `source` alone, or shared by `source` and `target`; drawn when used.

        Args:
            tag: The name of the noise stream.
            law: The distribution of each coordinate.
            tick: The counter of iterations.
            source: The client of each row, [k].
            target: The other client of each row, [k], or None for own noise.
            width: The width of the rows; that of a model by default.
        """
        ...

    def masks(self, tag: str, tick: int, one: Tensor, other: Tensor) -> Tensor:
        """Uniform 32-bit words [len(one), P] as int64 that the clients of each pair share."""
        ...

    def words(
        self, tag: str, tick: int, source: Tensor, width: int, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        """Uniform 32-bit words [len(source), width], each row secret to its client.

        As int64, or as uint32, which takes half the memory.
        """
        ...

    def add_integers(
        self, tag: str, law: DiscreteGaussian, tick: int, source: Tensor, onto: Tensor
    ) -> None:
        """Add integer noise to integers, in place; what does not fit wraps around.

        Noise from secret keys also depends on the integers: the same rows get the same noise, and
        other rows get independent noise, so that the difference of two messages is noisy too.

        Args:
            tag: The name of the noise stream.
            law: The distribution of each number.
            tick: The counter of iterations.
            source: The clients, [k].
            onto: Rows int32 or int64 [k, width], one per client, or one row [width], to which the
                noise of all clients is added.
        """
        ...


@dataclass(frozen=True)
class Philox:
    """The simulator's randomness, for rows of `width` numbers."""

    seed: int
    width: int
    dtype: torch.dtype = torch.float32
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(1), compare=False)

    def rows(
        self,
        tag: str,
        law: Noise,
        tick: int,
        source: Tensor,
        target: Tensor | None,
        width: int | None = None,
    ) -> NoiseRows:
        key = derive_key(self.seed, "noise", tag)
        other = torch.zeros_like(source) if target is None else target + 1
        columns = self.width if width is None else width
        shape = (len(source), columns, self.dtype, source.device)
        compiled = supports(torch.empty(0, 0, dtype=self.dtype, device=source.device))
        if not (type(law) is Laplace and compiled):
            return NoiseRows(
                *shape,
                lambda index: self._noise(key, law, tick, source[index], other[index], columns),
            )
        scale = law.scale

        def add(
            onto: Tensor, begin: Tensor, sign: int, index: Tensor | slice = slice(None)
        ) -> None:
            ends = (source[index].contiguous(), other[index].contiguous())
            self.pool.run(
                lambda rows: add_laplace(key, tick, begin, *ends, sign * scale, onto, rows),
                self.pool.split(len(onto)),
            )

        def draw(index: Tensor) -> Tensor:
            out = torch.zeros(len(index), columns, dtype=self.dtype)
            add(out, torch.arange(len(out) + 1), 1, index)
            return out

        return NoiseRows(*shape, draw, add)

    def masks(self, tag: str, tick: int, one: Tensor, other: Tensor) -> Tensor:
        key = derive_key(self.seed, "masks", tag)
        return words(key, tick, one, other + 1, range(self.width))

    def words(
        self, tag: str, tick: int, source: Tensor, width: int, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        key = derive_key(self.seed, "words", tag)
        return words(key, tick, source, torch.zeros_like(source), range(width), dtype)

    def add_integers(
        self, tag: str, law: DiscreteGaussian, tick: int, source: Tensor, onto: Tensor
    ) -> None:
        keys = (
            derive_key(self.seed, "integers", tag),
            derive_key(self.seed, "integers/ties", tag),
        )
        if add_by_kernels(law, keys, tick, source, onto, self.pool):
            return
        for rows, columns in tiles(len(source), law.words * onto.shape[-1], onto.device):
            noise = _integers(keys, law, tick, source[rows], columns)
            numbers = slice(columns.start // law.words, columns.stop // law.words)
            if onto.ndim == 2:
                onto[rows, numbers] += noise
            else:
                onto[numbers] += noise.sum(0, dtype=onto.dtype)

    def _noise(
        self, key: int, law: Noise, tick: int, source: Tensor, target: Tensor, width: int
    ) -> Tensor:
        out = torch.empty(len(source), width, dtype=self.dtype, device=source.device)

        def draw(tile: tuple[slice, range]) -> None:
            rows, columns = tile
            # Compiled loops write 32 bits.
            dtype = torch.uint32 if out.is_cpu else torch.int64
            drawn = words(key, tick, source[rows], target[rows], columns, dtype)
            out[rows, columns.start : columns.stop] = law.quantile(uniform(drawn)).to(self.dtype)

        self.pool.run(draw, tiles(len(out), out.shape[1], out.device))
        return out


def _integers(
    keys: Keys, law: DiscreteGaussian, tick: int, source: Tensor, columns: range
) -> Tensor:
    """Integer noise of `source`, from the words in these columns, in tensor operations."""

    def further(row: int, column: int) -> list[int]:
        first = 4 * (columns.start + column)
        client = source[row : row + 1]
        drawn = words(
            keys[1], tick, client, torch.zeros_like(client), range(first, first + FURTHER)
        )
        return drawn[0].tolist()

    return law.numbers(words(keys[0], tick, source, torch.zeros_like(source), columns), further)


def same_size_permutations(key: int, epoch: int, clients: Tensor, size: int) -> Tensor:
    """`permutations` of clients that all have the same size and epoch: [n, size]."""
    drawn = words(key, epoch, clients, torch.zeros_like(clients), range(size))
    # Equal words, which happen, keep their order.
    return drawn.argsort(dim=1, stable=True)


def permutations(
    key: int, epochs: Tensor, clients: Tensor, sizes: Tensor, device: torch.device | str = "cpu"
) -> Tensor:
    """A permutation of range(sizes[i]) per client, keyed by client and epoch, concatenated.

    Indices are computed on the host, so that it never waits for a GPU.

    Args:
        key: The key, from `derive_key`.
        epochs: The epoch of each client, [n].
        clients: The clients, [n].
        sizes: The length of each client's permutation, [n].
        device: Where to draw and sort.

    Returns:
        The permutations, [Σ sizes], on `device`.
    """
    blocks = (sizes + 3) // 4
    # The client that each counter belongs to.
    owner = torch.repeat_interleave(blocks)
    counter = (
        concatenated_ranges(torch.zeros_like(blocks), blocks),
        clients[owner],
        torch.zeros_like(owner),
        epochs[owner],
    )
    drawn = _drawn(to_device(torch.stack(counter), device), key)
    first = 4 * (blocks.cumsum(0) - blocks)
    words_of_samples = drawn.reshape(-1)[to_device(concatenated_ranges(first, sizes), device)]
    # Sorted by client first and word second; equal words, which happen, keep their order.
    owner = torch.repeat_interleave(sizes)
    client = to_device(owner, device)
    by_word = words_of_samples.argsort(stable=True)
    order = by_word[client[by_word].argsort(stable=True)]
    begin = sizes.cumsum(0) - sizes
    return order - to_device(begin[owner], device)


def _drawn(counters: Tensor, key: int) -> Tensor:
    """The four words [n, 4] of each of the counters [4, n]."""
    if gpu_usable(counters.device):
        from tacit.core.native import gpu_integers

        return gpu_integers.philox(counters, key)
    step = _counters_at_once(counters.device)
    return torch.cat([philox(part, key) for part in torch.split(counters, step, dim=1)])


def concatenated_ranges(first: Tensor, lengths: Tensor) -> Tensor:
    """The numbers first[i], first[i] + 1, … (lengths[i] of them) for all i, concatenated."""
    begin = lengths.cumsum(0) - lengths
    shift = torch.repeat_interleave(first - begin, lengths)
    return shift + torch.arange(len(shift), device=first.device)
