"""Bandwidth of mixing on a large ring, compared with a plain copy of the same rows.

A copy reads and writes N·P numbers once, and mixing cannot do less. So the ratio of bandwidths is
the time of the copy divided by the time of the mixing.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tacit.core.errors import Misuse
from tacit.core.workers import WorkerPool
from tacit.engines.stacked import StackedNetwork
from tacit_benches.benchmark import BenchOptions, BenchResult
from tacit_benches.machine import available_memory
from tacit_benches.workloads import ring

SUMMARY = "bandwidth of StackedNetwork.mix / bandwidth of a copy of the same tensor"
WORKLOADS = ("ring",)
DEFAULTS = {"cpu": WORKLOADS, "cuda": WORKLOADS}
PARAMETERS = 50_000
CLIENTS, QUICK_CLIENTS = 10_000, 1_000
REPEATS = 5
# Tensors of N·P numbers in memory at a time: rows, copy, result and workspace.
TENSORS = 4


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    clients = QUICK_CLIENTS if options.quick else CLIENTS
    needed, free = TENSORS * 4 * clients * PARAMETERS, available_memory()
    if options.device.type == "cuda":
        free = torch.cuda.mem_get_info(options.device)[0]
    if free is not None and needed > free:
        raise Misuse(
            f"mix takes {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free.",
            "Free some, or use --quick.",
        )
    options.progress("mix: preparing", 0, 1)
    net = StackedNetwork(
        ring(clients), torch.float32, options.device, WorkerPool.for_device(options.device)
    )
    rows = torch.ones(clients, PARAMETERS, device=options.device)
    copy = torch.empty_like(rows)

    def mix() -> None:
        (mixed,) = net.mix(x=rows)
        # As a simulation does with old rows, so that both functions write into existing memory.
        net.buffers.give(mixed)

    functions = {"mix": mix, "copy": lambda: copy.copy_(rows)}
    timings = options.time("mix", functions, REPEATS, REPEATS)
    moved = 2 * rows.numel() * rows.element_size()
    yield BenchResult(
        "mix",
        "ring",
        timings.ratio("copy", "mix"),
        timings.median("mix"),
        timings.median("copy"),
        f"pass over {clients:,} × {PARAMETERS:,} numbers",
        timings.repeats,
        "bandwidth of mixing / bandwidth of a copy",
        "higher",
        {
            "clients": clients,
            "parameters": PARAMETERS,
            "ours_gigabytes_per_second": moved / timings.median("mix") / 1e9,
            "limit_gigabytes_per_second": moved / timings.median("copy") / 1e9,
        },
    )
