"""The bandwidth of mixing on a large ring against that of a plain copy of the same rows.

Both are counted as one reading and one writing of N·P numbers, which is all that a copy does and the least that
mixing can do; so the ratio of the bandwidths is the time of the copy over the time of the mixing.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tacit.bench.machine import available_memory
from tacit.bench.benchmark import BenchOptions, BenchResult
from tacit.bench.timing import Timer
from tacit.bench.workloads import ring
from tacit.core.errors import Misuse
from tacit.core.workers import WorkerPool
from tacit.engines.stacked import StackedNetwork

SUMMARY = "bandwidth of StackedNetwork.mix / bandwidth of a copy of the same tensor"
WORKLOADS = ("ring",)
PARAMETERS = 50_000
CLIENTS, QUICK_CLIENTS = 10_000, 1_000
REPEATS, QUICK_REPEATS = 5, 5
TENSORS = 4  # of N·P numbers, in memory at a time: rows, copy, result and workspace


def default_workloads(device: torch.device) -> tuple[str, ...]:
    """Everywhere."""
    return WORKLOADS


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    """The ring, or nothing."""
    clients = QUICK_CLIENTS if options.quick else CLIENTS
    _refuse_too_large(TENSORS * 4 * clients * PARAMETERS, options.device)
    options.progress("mix: preparing", 0, 1)
    net = StackedNetwork(
        ring(clients), torch.float32, options.device, WorkerPool.for_device(options.device)
    )
    rows = torch.ones(clients, PARAMETERS, device=options.device)
    copy = torch.empty_like(rows)

    def mix() -> None:
        (mixed,) = net.mix(x=rows)
        net.buffers.give(
            mixed
        )  # as a simulation does with rows of the past: both write into memory that is there

    functions = {"mix": mix, "copy": lambda: copy.copy_(rows)}
    repeats = options.repeats or (QUICK_REPEATS if options.quick else REPEATS)
    timings = Timer.on(options.device).interleave(functions, repeats, on_repeat=options.progress_of("mix"))
    moved = 2 * rows.numel() * rows.element_size()
    yield BenchResult(
        "mix",
        "ring",
        timings.ratio("copy", "mix"),
        timings.median("mix"),
        timings.median("copy"),
        f"pass over {clients:,} × {PARAMETERS:,} numbers",
        repeats,
        "bandwidth of mixing / bandwidth of a copy",
        "higher",
        {
            "clients": clients,
            "parameters": PARAMETERS,
            "ours_gigabytes_per_second": moved / timings.median("mix") / 1e9,
            "limit_gigabytes_per_second": moved / timings.median("copy") / 1e9,
        },
    )


def _refuse_too_large(needed: int, device: torch.device) -> None:
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
    if free is not None and needed > free:
        raise Misuse(
            f"mix takes {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free.",
            "Free some, or use --quick.",
        )
