"""The simulator, compared with a limit: a plain loop of the same gradients on one model.

A repeat is one round of the simulator (`Simulation.step`, no evaluation) and the same number of
forward and backward passes of one `nn.Module`: batches are taken by index from a tensor in memory,
with cross-entropy, no optimizer and torch's default threads. Making data and models, choosing the
backend of gradients, and the first round are not timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.bench.benchmark import BenchOptions, BenchResult, TimedFunction, Timings
from tacit.bench.workloads import W2, W3, WORKLOADS as KNOWN, Images, Workload
from tacit.core.workers import torch_threads
from tacit.simulation import Simulation

SUMMARY = (
    "a round of the simulator / as many forward and backward passes of one model in a plain loop"
)
WORKLOADS = tuple(KNOWN)
# W4 and W5 take hours without a GPU.
DEFAULTS = {"cpu": WORKLOADS[:3], "cuda": WORKLOADS}
QUICK_REPEATS = 3
OURS, LIMIT, SMALLER = "ours", "limit", W2.name


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    """Measure each workload; W3 also in turn with W2."""
    for name in options.workloads:
        yield _measure(KNOWN[name], options)


def _measure(workload: Workload, options: BenchOptions) -> BenchResult:
    # Before the simulation can change it.
    threads = torch.get_num_threads()
    options.progress(f"sim {workload.name}: preparing", 0, 1)
    images = workload.images()
    simulation = workload.simulation(images, options.device)
    functions: dict[str, TimedFunction] = {
        OURS: lambda: run_iterations(simulation, workload.iterations),
        LIMIT: plain_loop(workload, images, options.device, threads),
    }
    if workload is W3:
        smaller = W2.simulation(W2.images(), options.device)
        # As many client-steps with a tenth of the clients.
        functions[SMALLER] = lambda: run_iterations(smaller, W3.client_steps // W2.clients)
    # The first round is the warm-up.
    title, repeats = f"sim {workload.name}", workload.rounds - 1
    timings = options.time(title, functions, repeats, QUICK_REPEATS)
    limit = "a plain loop on one model"
    if workload.one_batch:
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
        details=_details(workload, images, simulation, timings),
    )


def run_iterations(simulation: Simulation, iterations: int) -> None:
    for _ in range(iterations):
        simulation.step()


def plain_loop(
    workload: Workload, images: Images, device: torch.device, threads: int
) -> TimedFunction:
    """A function that passes the samples of one round forward and backward through one module."""
    x, y = images.x.to(device), images.y.to(device)
    module = workload.module().to(device)
    steps, size = workload.client_steps, workload.batch_size
    if workload.one_batch:
        steps, size = workload.iterations, workload.batch_size * workload.clients
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(x), generator=generator)[: steps * size].view(steps, size).to(device)

    def run() -> None:
        with torch_threads(threads):
            pass_batches(module, x, y, order)

    return run


def pass_batches(module: nn.Module, x: Tensor, y: Tensor, order: Tensor) -> None:
    """Forward and backward on each batch order[k] of samples."""
    for batch in order:
        module.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(module(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]


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
