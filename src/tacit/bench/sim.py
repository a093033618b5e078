"""The simulator against the limit: a plain loop of the same gradients on one model that talks to nobody.

A turn is a round of ours (`Simulation.step`, no evaluation) and as many forward and backward passes of one
`nn.Module`: batches taken by index from a tensor in memory, cross-entropy, no optimizer, torch's default threads.
Making data and models, choosing how gradients are taken, and the first round are not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.bench.result import Asked, Result
from tacit.bench.stopwatch import Stopwatch, Timings, Work
from tacit.bench.workloads import W2, W3, Images, Workload
from tacit.bench.workloads import WORKLOADS as KNOWN
from tacit.simulation import Simulation

SUMMARY = (
    "a round of the simulator / as many forward and backward passes of one model in a plain loop"
)
WORKLOADS = tuple(KNOWN)
QUICK_REPEATS = 3
OURS, LIMIT, SMALLER = "ours", "limit", W2.name


def offered(device: torch.device) -> tuple[str, ...]:
    """W4 and W5 take hours without a GPU."""
    return WORKLOADS if device.type == "cuda" else WORKLOADS[:3]


def measure(asked: Asked) -> Iterator[Result]:
    """Each workload by itself; W3 in turns with W2 as well."""
    for name in asked.workloads:
        yield _measure(KNOWN[name], asked)


def _measure(workload: Workload, asked: Asked) -> Result:
    threads = torch.get_num_threads()  # before anything of ours can change it
    asked.progress(f"sim {workload.name}: preparing", 0, 1)
    images = workload.images()
    simulation = workload.simulation(images, asked.device)
    works: dict[str, Work] = {
        OURS: lambda: rounds(simulation, workload.iterations),
        LIMIT: limit(workload, images, asked.device, threads),
    }
    if workload is W3:
        works[SMALLER] = _as_many_rounds_of_w2(asked.device)
    # The first round warms up; the others are all that the workload has, unless fewer or more are asked for.
    repeats = asked.repeats or (QUICK_REPEATS if asked.quick else workload.rounds - 1)
    turns = asked.turns_of(f"sim {workload.name}")
    timings = Stopwatch.on(asked.device).interleaved(works, repeats, turns=turns)
    against = (
        "one model on one batch of all samples"
        if workload.one_batch
        else "a plain loop on one model"
    )
    return Result(
        "sim",
        workload.name,
        timings.ratio(OURS, LIMIT),
        timings.median(OURS),
        timings.median(LIMIT),
        f"round of {workload.client_steps:,} client-steps",
        repeats,
        f"our time for a round / that of {against}",
        details=_details(workload, images, simulation, timings),
    )


def rounds(simulation: Simulation, iterations: int) -> None:
    """So many iterations."""
    for _ in range(iterations):
        simulation.step()


def limit(workload: Workload, images: Images, device: torch.device, threads: int) -> Work:
    """The same number of samples through forward and backward of one module, per call."""
    x, y = images.x.to(device), images.y.to(device)
    module = workload.module().to(device)
    steps, size = workload.client_steps, workload.batch_size
    if workload.one_batch:
        steps, size = workload.iterations, workload.batch_size * workload.clients
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(x), generator=generator)[: steps * size].view(steps, size).to(device)

    def work() -> None:
        with default_threads(threads):
            plain_loop(module, x, y, order)

    return work


def plain_loop(module: nn.Module, x: Tensor, y: Tensor, order: Tensor) -> None:
    """Forward and backward on each batch order[k] of samples."""
    for batch in order:
        module.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(module(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]


@contextmanager
def default_threads(threads: int) -> Iterator[None]:
    """Torch with so many threads, and as it was afterwards."""
    before = torch.get_num_threads()
    if before == threads:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _as_many_rounds_of_w2(device: torch.device) -> Callable[[], None]:
    """As many client-steps as a round of W3, with a tenth of the clients."""
    simulation = W2.simulation(W2.images(), device)
    iterations = W3.client_steps // W2.clients
    return lambda: rounds(simulation, iterations)


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
        rounds_done = simulation.t // workload.iterations
        details |= {
            "rounds": rounds_done,
            "all_rounds_seconds": workload.rounds * timings.median(OURS),
            "accuracy": _accuracy(simulation) if images.test is not None else None,
        }
    return details


def _accuracy(simulation: Simulation) -> float | None:
    """Mean over the clients, in percent."""
    accuracy = simulation.observe().accuracy
    return None if accuracy is None else accuracy.mean
