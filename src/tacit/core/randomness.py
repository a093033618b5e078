"""Keyed randomness: every number drawn is a pure function of what it is for.

The simulator's generator is Philox4x32-10 (Salmon et al. 2011), a counter-based generator, written in integer tensor
operations and, for the CPU, in compiled loops: CPU and GPU, one row or a million, in any order and chunking, draw the
same words. A word is addressed by

    key      from the seed and a tag ("delta", "batches", …)
    counter  (column // 4, source, target, tick); column % 4 picks one of the four words

`source` is the client whose randomness it is, `target` the other end for noise that two clients share (plus
one, so that zero means "nobody else"), and `tick` the iteration. Nothing is ever taken from a hidden stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.native import add_laplace, available, compiled, write_words
from tacit.core.native.on_gpu import usable
from tacit.core.noise import Laplace, Noise
from tacit.core.rows import LazyRows
from tacit.core.transfer import sent
from tacit.core.workers import WorkerPool

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
TILE = (
    1 << 14
)  # counters handled at a time, sixteen times as many on a GPU: bounds the workspace and stays in cache


def key_of(*parts: int | str) -> int:
    """A 64-bit key for a purpose, e.g. `key_of(seed, "batches")`."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: int) -> Tensor:
    """Philox4x32-10 of int64 counters of one shape [...]: four 32-bit words [..., 4] as int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & WORD, (key >> 32) & WORD
    for _ in range(ROUNDS):
        # A product of two 32-bit numbers wraps in int64, but its bits are right: mask after shifting.
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        high0 = (p0 >> 32).bitwise_and_(WORD)
        high1 = (p1 >> 32).bitwise_and_(WORD)
        c0, c1, c2, c3 = (
            high1.bitwise_xor_(c1).bitwise_xor_(k0),
            p1.bitwise_and_(WORD),
            high0.bitwise_xor_(c3).bitwise_xor_(k1),
            p0.bitwise_and_(WORD),
        )
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return torch.stack((c0, c1, c2, c3), dim=-1)


def words(key: int, tick: Tensor | int, source: Tensor, target: Tensor, columns: range) -> Tensor:
    """Words [rows, len(columns)] of the rows (source, target) at `tick`; columns start at a multiple of 4."""
    if isinstance(tick, int) and source.device.type == "cpu" and compiled():
        out = torch.empty(len(source), len(columns), dtype=torch.int64)
        everybody = slice(0, len(source))
        write_words(
            key, tick, source.contiguous(), target.contiguous(), columns.start, out, everybody
        )
        return out
    # A fill, not a copy from the host: that would wait for a GPU.
    ticks = tick if isinstance(tick, Tensor) else torch.full((1,), tick, device=source.device)
    if usable(source.device):
        from tacit.core.native import gpu_integers

        return gpu_integers.words(key, ticks, source, target, columns)
    blocks = torch.arange(columns.start // 4, -(-columns.stop // 4), device=source.device)
    shape = (len(source), len(blocks))
    counter = (blocks[None, :], source[:, None], target[:, None], ticks.reshape(-1, 1))
    c0, c1, c2, c3 = (part.expand(shape) for part in counter)
    drawn = philox((c0, c1, c2, c3), key)
    return drawn.reshape(len(source), -1)[:, : len(columns)]


def tiles(
    rows: int, width: int, device: torch.device | str = "cpu"
) -> Iterator[tuple[slice, range]]:
    """Cut a [rows, width] field into pieces of about TILE counters, column ranges starting at multiples of 4."""
    counters = _counters_at_once(device)
    columns = min(width, 4 * counters)
    height = max(1, counters // max(1, -(-columns // 4)))
    for top in range(0, rows, height):
        for left in range(0, width, columns):
            yield slice(top, min(rows, top + height)), range(left, min(width, left + columns))


def _counters_at_once(device: torch.device | str) -> int:
    return TILE if torch.device(device).type == "cpu" else 16 * TILE


class Randomness(Protocol):
    """Where noise comes from: numbers in the simulator, keystreams in a peer, symbols in the audit."""

    def rows(
        self,
        tag: str,
        law: Noise,
        tick: int,
        source: Tensor,
        target: Tensor | None,
        width: int | None = None,
    ) -> LazyRows:
        """Rows of noise that belong to `source` alone, or that `source` and `target` share.

        They are as wide as a model unless `width` says otherwise.
        """
        ...

    def words(self, tag: str, tick: int, source: Tensor, width: int) -> Tensor:
        """Uniform 32-bit words [len(source), width] as int64, each row of them its client's own secret."""
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
    ) -> LazyRows:
        """Noise rows of `law`, drawn when taken."""
        key = key_of(self.seed, "noise", tag)
        other = torch.zeros_like(source) if target is None else target + 1
        columns = self.width if width is None else width

        def draw(index: Tensor) -> Tensor:
            return self._noise(key, law, tick, source[index], other[index], columns)

        lazy = LazyRows(len(source), columns, self.dtype, source.device, draw)
        if not (type(law) is Laplace and self._compiled(source)):
            return lazy

        def add(onto: Tensor, begin: Tensor, sign: int) -> None:
            self._add_laplace(key, tick, begin, source, other, sign * law.scale, onto)

        return replace(lazy, add=add)

    def words(self, tag: str, tick: int, source: Tensor, width: int) -> Tensor:
        """Words of the clients `source`, each from its own counter."""
        key = key_of(self.seed, "words", tag)
        out = torch.empty(len(source), width, dtype=torch.int64, device=source.device)
        for rows, columns in tiles(len(out), out.shape[1], out.device):
            part = source[rows]
            out[rows, columns.start : columns.stop] = words(
                key, tick, part, torch.zeros_like(part), columns
            )
        return out

    def _noise(
        self, key: int, law: Noise, tick: int, source: Tensor, target: Tensor, width: int
    ) -> Tensor:
        if type(law) is Laplace and self._compiled(source):
            out = torch.zeros(len(source), width, dtype=self.dtype)
            self._add_laplace(key, tick, torch.arange(len(out) + 1), source, target, law.scale, out)
            return out
        out = torch.empty(len(source), width, dtype=self.dtype, device=source.device)

        def draw(tile: tuple[slice, range]) -> None:
            rows, columns = tile
            drawn = words(key, tick, source[rows], target[rows], columns)
            # The middle of one of 2³² equal cells of (0, 1): never 0 or 1, so every quantile is finite.
            uniform = drawn.to(torch.float64).add_(0.5).mul_(2.0**-32)
            out[rows, columns.start : columns.stop] = law.quantile(uniform).to(self.dtype)

        self.pool.each(draw, tiles(len(out), out.shape[1], out.device))
        return out

    def _compiled(self, source: Tensor) -> bool:
        return available(torch.empty(0, 0, dtype=self.dtype, device=source.device))

    def _add_laplace(
        self,
        key: int,
        tick: int,
        begin: Tensor,
        source: Tensor,
        target: Tensor,
        scale: float,
        onto: Tensor,
    ) -> None:
        ends = (source.contiguous(), target.contiguous())
        self.pool.each(
            lambda rows: add_laplace(key, tick, begin, *ends, scale, onto, rows),
            self.pool.cut(len(onto)),
        )


def orders(key: int, epoch: int, clients: Tensor, size: int) -> Tensor:
    """The permutations of range(size) [n, size] of clients that all have the same size and epoch."""
    drawn = words(key, epoch, clients, torch.zeros_like(clients), range(size))
    return drawn.argsort(dim=1, stable=True)  # equal words, which happen, keep their order


def permutations(
    key: int, epochs: Tensor, clients: Tensor, sizes: Tensor, device: torch.device | str = "cpu"
) -> Tensor:
    """A permutation of range(sizes[i]) per client, keyed by client and epoch, one after the other: [Σ sizes].

    They are drawn and sorted on `device`. What belongs to whom is worked out on the host, so that a GPU is not asked.
    """
    blocks = (sizes + 3) // 4
    owner = torch.repeat_interleave(blocks)  # which client each counter belongs to
    counter = (
        spans(torch.zeros_like(blocks), blocks),
        clients[owner],
        torch.zeros_like(owner),
        epochs[owner],
    )
    drawn = _drawn(sent(torch.stack(counter), device), key)
    first = 4 * (blocks.cumsum(0) - blocks)
    words_of_samples = drawn.reshape(-1)[sent(spans(first, sizes), device)]
    # Sorted by client first and word second; equal words, which happen, keep their order.
    owner = torch.repeat_interleave(sizes)
    client = sent(owner, device)
    by_word = words_of_samples.argsort(stable=True)
    order = by_word[client[by_word].argsort(stable=True)]
    begin = sizes.cumsum(0) - sizes
    return order - sent(begin[owner], device)


def _drawn(counters: Tensor, key: int) -> Tensor:
    """The four words [n, 4] of each of the counters [4, n]."""
    if usable(counters.device):
        from tacit.core.native import gpu_integers

        return gpu_integers.philox(counters, key)
    step = _counters_at_once(counters.device)
    parts = (counters[:, low : low + step] for low in range(0, counters.shape[1], step))
    return torch.cat([philox((c0, c1, c2, c3), key) for c0, c1, c2, c3 in parts])


def spans(first: Tensor, lengths: Tensor) -> Tensor:
    """The numbers first[i], first[i] + 1, … (lengths[i] of them) for every i, one after the other."""
    begin = lengths.cumsum(0) - lengths
    shift = torch.repeat_interleave(first - begin, lengths)
    return shift + torch.arange(len(shift), device=first.device)
