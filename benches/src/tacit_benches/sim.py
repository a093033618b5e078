"""The simulator, compared with a limit: a plain loop of the same gradients on one model.

A repeat is one round of the simulator (`Simulation.step`, no evaluation) and the same number of
forward and backward passes of one `nn.Module`: batches are taken by index from a tensor in memory,
with cross-entropy, no optimizer and torch's default threads. Some workloads have another limit:
one pass on the samples of all clients together, which one model has to do at least. Making data
and models, choosing the backend of gradients, and the first round are not timed.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch

from tacit.engines.simulation import Simulation
from tacit_benches.benchmark import BenchOptions, BenchResult, TimedFunction, Timings
from tacit_benches.plain import plain_loop
from tacit_benches.workloads import LARGE, W2, W3, WORKLOADS as KNOWN, Images, Workload

SUMMARY = (
    "a round of the simulator / as many forward and backward passes of one model in a plain loop"
)
WORKLOADS = tuple(KNOWN)
# Others take hours without a GPU.
SMALL = tuple(name for name, workload in KNOWN.items() if workload not in LARGE)
DEFAULTS = {"cpu": SMALL, "cuda": WORKLOADS}
QUICK_REPEATS = 3
OURS, LIMIT, ONE_BATCH, SMALLER = "ours", "limit", "one batch", W2.name
# Iterations until a step is captured and replayed, if it can be.
UNTIL_CAPTURED = 4


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    """Measure each workload; W3 also in turn with W2."""
    for name in options.workloads:
        yield _measure(KNOWN[name], options)


def _measure(workload: Workload, options: BenchOptions) -> BenchResult:
    # Before the simulation can change it.
    threads = torch.get_num_threads()
    options.progress(f"sim {workload.name}: preparing", 0, 1)
    images, one_batch = workload.images(), workload.limits == "one batch"
    memory = PeakMemory(options.device)
    simulation = workload.simulation(images, options.device)
    details: dict[str, Any] = {}
    if workload.limits == "both":
        details = _capture(simulation, memory)
    functions: dict[str, TimedFunction] = {
        OURS: lambda: run_iterations(simulation, workload.iterations),
        LIMIT: plain_loop(workload, images, options.device, threads, one_batch=one_batch),
    }
    if workload.limits == "both":
        functions[ONE_BATCH] = plain_loop(workload, images, options.device, threads, one_batch=True)
    if workload is W3:
        smaller = W2.simulation(W2.images(), options.device)
        # As many client-steps with a tenth of the clients.
        functions[SMALLER] = lambda: run_iterations(smaller, W3.client_steps // W2.clients)
    # The first round is the warm-up.
    title, repeats = f"sim {workload.name}", workload.rounds - 1
    timings = options.time(title, functions, repeats, QUICK_REPEATS)
    limit = "a plain loop on one model"
    if one_batch:
        limit = "one model on one batch of all samples"
    return BenchResult(
        "sim",
        workload.name,
        timings.ratio(OURS, LIMIT),
        timings.median(OURS),
        timings.median(LIMIT),
        f"round of {workload.client_steps:,} client-steps",
        timings.repeats,
        f"our time for a round / that of {limit}",
        details=_details(workload, images, simulation, timings) | details,
    )


def run_iterations(simulation: Simulation, iterations: int) -> None:
    for _ in range(iterations):
        simulation.step()


class PeakMemory:
    """The memory of a GPU that is allocated at most, beyond what was allocated before."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._before = device, 0
        if device.type == "cuda":
            # Frees what an earlier workload has left: simulations have cycles of references.
            gc.collect()
            torch.cuda.empty_cache()
            self._before = torch.cuda.memory_allocated(device)

    def of(self, work: TimedFunction) -> int | None:
        """The peak in bytes while this is done; None on a CPU, where torch does not count."""
        if self.device.type != "cuda":
            work()
            return None
        torch.cuda.reset_peak_memory_stats(self.device)
        work()
        return torch.cuda.max_memory_allocated(self.device) - self._before


def _capture(simulation: Simulation, memory: PeakMemory) -> dict[str, Any]:
    """Run until iterations are replayed, or not; the memory that takes, also in models."""
    peak = memory.of(lambda: run_iterations(simulation, UNTIL_CAPTURED))
    task = simulation.task
    return {
        "parameters": task.parameters,
        "captured": simulation.captured,
        "why_not_captured": simulation.why_not_captured,
        "peak_memory_bytes": peak,
        # One unit is one number of four bytes for every parameter of every client.
        "peak_memory_models": peak and peak / (4 * task.clients * task.parameters),
    }


def _details(
    workload: Workload, images: Images, simulation: Simulation, timings: Timings
) -> dict[str, Any]:
    steps = workload.client_steps
    details: dict[str, Any] = {
        "ours_us_per_client_step": 1e6 * timings.median(OURS) / steps,
        "limit_us_per_client_step": 1e6 * timings.median(LIMIT) / steps,
        "client_steps": steps,
        "algorithm": simulation.algorithm.name,
        "gradients": simulation.gradients.strategy,
        "data": images.source,
    }
    if workload.limits == "both":
        versus = timings.ratio(OURS, ONE_BATCH)
        details |= {
            "precision": workload.precision,
            "reason": simulation.gradients.reason,
            "one_batch_seconds": timings.median(ONE_BATCH),
            "one_batch_ratio": versus.median,
            "one_batch_low": versus.low,
            "one_batch_high": versus.high,
        }
    if SMALLER in timings.seconds:
        versus = timings.ratio(OURS, SMALLER)
        details |= {"vs_W2": versus.median, "vs_W2_low": versus.low, "vs_W2_high": versus.high}
    if workload.dataset is not None:
        accuracy = simulation.observe().accuracy if images.test is not None else None
        details |= {
            "rounds": simulation.t // workload.iterations,
            "all_rounds_seconds": workload.rounds * timings.median(OURS),
            "accuracy": None if accuracy is None else accuracy.mean,
        }
    return details
