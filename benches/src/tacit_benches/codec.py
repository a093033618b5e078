"""Time and size of the codecs: encoding and decoding, compared with copying the rows.

Random words are drawn beforehand and timed separately. (The codec itself computes the subset of
rand-k from its seed, so that counts.)
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tacit.compression import QSGD, Codec, Identity, RandK, SignBits
from tacit.core.randomness import Philox
from tacit_benches.benchmark import BenchOptions, BenchResult, TimedFunction

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
# Codecs make bytes on the CPU.
DEFAULTS = {"cpu": WORKLOADS, "cuda": ()}
PARAMETERS, QUICK_PARAMETERS, ROWS = 1_000_000, 50_000, 4
REPEATS, QUICK_REPEATS = 7, 3
# `received` computes what the other end decodes, without making the bytes.
PARTS = ("draw", "received", "encode", "decode")


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    parameters = QUICK_PARAMETERS if options.quick else PARAMETERS
    rows = torch.randn(ROWS, parameters, generator=torch.Generator().manual_seed(0))
    signs = torch.where(rows < 0, -0.01, 0.01)
    functions: dict[str, TimedFunction] = {"copy": rows.clone}
    for name in options.workloads:
        functions |= _functions(name, CODECS[name], signs if name == OF_SIGNS else rows)
    timings = options.time("codec", functions, REPEATS, QUICK_REPEATS)
    for name in options.workloads:
        both = (f"{name} encode", f"{name} decode")
        size = CODECS[name].size(parameters, rows.dtype)
        details = {"bytes_per_row": size, "bits_per_number": 8 * size / parameters}
        for part in PARTS:
            seconds = timings.median(f"{name} {part}")
            details[f"{part}_ns_per_number"] = 1e9 * seconds / rows.numel()
        yield BenchResult(
            "codec",
            name,
            timings.ratio(both, "copy"),
            timings.median(*both),
            timings.median("copy"),
            f"message of {ROWS} rows of {parameters:,} numbers",
            timings.repeats,
            "encoding and decoding / a copy",
            details=details,
        )


def _functions(name: str, codec: Codec, rows: Tensor) -> dict[str, TimedFunction]:
    source = torch.arange(len(rows))
    drawn: dict[tuple[str, int], Tensor] = {}

    def draw(purpose: str, count: int) -> Tensor:
        return Philox(0, count).words(purpose, 0, source, count, torch.uint32)

    def cached(purpose: str, count: int) -> Tensor:
        if (purpose, count) not in drawn:
            drawn[purpose, count] = draw(purpose, count)
        return drawn[purpose, count]

    # Both once, so that all words are cached.
    wire = codec.encode(rows, cached)
    codec.received(rows, cached)
    return {
        f"{name} draw": lambda: [draw(*words) for words in drawn],
        f"{name} received": lambda: codec.received(rows, cached),
        f"{name} encode": lambda: codec.encode(rows, cached),
        f"{name} decode": lambda: codec.decode(wire, rows.shape[1], rows.dtype),
    }
