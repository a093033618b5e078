"""Time and size of the codecs: encoding and decoding, compared with copying the rows.

Random words are drawn beforehand and timed separately. (The codec itself computes the subset of
rand-k from its seed, so that counts.)
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tacit.bench.benchmark import BenchOptions, BenchResult
from tacit.bench.timing import TimedFunction
from tacit.compression import QSGD, Codec, Identity, RandK, SignBits
from tacit.core.randomness import derive_key, tiles, words

SUMMARY = "encoding and decoding rows / copying them"
OF_SIGNS = "sign-of-signs"
CODECS: dict[str, Codec] = {
    "identity": Identity(),
    "sign": SignBits(),
    OF_SIGNS: SignBits(),
    "qsgd-2": QSGD(2),
    "qsgd-4": QSGD(4),
    "qsgd-8": QSGD(8),
    "qsgd-16": QSGD(16),
    "rand-k-1%": RandK(fraction=0.01),
    "rand-k-10%": RandK(fraction=0.1),
    "rand-k-10%-qsgd-8": RandK(fraction=0.1, values=QSGD(8)),
    "rand-k-10%-sign": RandK(fraction=0.1, values=SignBits()),
}
WORKLOADS = tuple(CODECS)
PARAMETERS, QUICK_PARAMETERS, ROWS = 1_000_000, 50_000, 4
REPEATS, QUICK_REPEATS = 7, 3
# `received` computes what the other end decodes, without making the bytes.
PARTS = ("draw", "received", "encode", "decode")


class CachedWords:
    """Random words for `rows` messages, drawn once and cached."""

    def __init__(self, rows: int) -> None:
        self._rows = torch.arange(rows)
        self._drawn: dict[tuple[str, int], Tensor] = {}

    def __call__(self, purpose: str, count: int) -> Tensor:
        if (purpose, count) not in self._drawn:
            self._drawn[purpose, count] = self._draw(purpose, count)
        return self._drawn[purpose, count]

    def draw_all(self) -> None:
        """Draw all cached words again."""
        for purpose, count in self._drawn:
            self._draw(purpose, count)

    def _draw(self, purpose: str, count: int) -> Tensor:
        out = torch.empty(len(self._rows), count, dtype=torch.int64)
        for rows, columns in tiles(*out.shape):
            source = self._rows[rows]
            drawn = words(derive_key(0, purpose), 0, source, torch.zeros_like(source), columns)
            out[rows, columns.start : columns.stop] = drawn
        return out


def default_workloads(device: torch.device) -> tuple[str, ...]:
    """Codecs make bytes on the CPU."""
    return WORKLOADS if device.type == "cpu" else ()


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    parameters = QUICK_PARAMETERS if options.quick else PARAMETERS
    rows = torch.randn(ROWS, parameters, generator=torch.Generator().manual_seed(0))
    signs = torch.where(rows < 0, -0.01, 0.01)
    functions: dict[str, TimedFunction] = {"copy": rows.clone}
    for name in options.workloads:
        functions |= _functions(name, CODECS[name], signs if name == OF_SIGNS else rows)
    repeats = options.repeat_count(REPEATS, QUICK_REPEATS)
    timings = options.time("codec", functions, repeats)
    for name in options.workloads:
        both = (f"{name} encode", f"{name} decode")
        size = CODECS[name].size(parameters, rows.dtype)
        nanoseconds = {
            part: 1e9 * timings.median(f"{name} {part}") / rows.numel() for part in PARTS
        }
        yield BenchResult(
            "codec",
            name,
            timings.ratio(both, "copy"),
            timings.median(*both),
            timings.median("copy"),
            f"message of {ROWS} rows of {parameters:,} numbers",
            repeats,
            "encoding and decoding / a copy",
            details={
                "bytes_per_row": size,
                "bits_per_number": 8 * size / parameters,
                **{f"{part}_ns_per_number": value for part, value in nanoseconds.items()},
            },
        )


def _functions(name: str, codec: Codec, rows: Tensor) -> dict[str, TimedFunction]:
    words = CachedWords(len(rows))
    # Both once, so that all words are cached.
    wire = codec.encode(rows, words)
    codec.received(rows, words)
    return {
        f"{name} draw": words.draw_all,
        f"{name} received": lambda: codec.received(rows, words),
        f"{name} encode": lambda: codec.encode(rows, words),
        f"{name} decode": lambda: codec.decode(wire, rows.shape[1], rows.dtype),
    }
