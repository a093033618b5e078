"""How the time of an iteration grows with the clients, the parameters and the degree of the graph.

All sizes are timed in turn, small ones several iterations at a time so that none is too short for
the clock. The exponent b of seconds ≈ a·sizeᵇ is fitted to the medians.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.stats import linregress

from tacit.graph import Topology
from tacit_benches.benchmark import BenchOptions, BenchResult, Quartiles, TimedFunction
from tacit_benches.sim import run_iterations
from tacit_benches.workloads import W2, Workload

SUMMARY = "the exponent b of: seconds per iteration = a · sizeᵇ"
WORKLOADS = ("clients", "parameters", "degree")
DEFAULTS = {"cpu": WORKLOADS, "cuda": WORKLOADS}
CLIENTS = (100, 200, 400, 800, 1_600)
WIDTHS = (16, 32, 64, 128, 256)
DEGREES = (2, 4, 8, 16, 32)
REPEATS, QUICK_REPEATS = 5, 2
# Client-steps that are timed at a time, at least.
MIN_CLIENT_STEPS = 400


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    families = {"clients": _by_clients, "parameters": _by_width, "degree": _by_degree}
    for name in options.workloads:
        yield _measure(name, families[name](options.quick), options)


def _by_clients(quick: bool) -> list[Workload]:
    return [replace(W2, clients=clients // 10 if quick else clients) for clients in CLIENTS]


def _by_width(quick: bool) -> list[Workload]:
    small = replace(W2, clients=10 if quick else 50)
    return [replace(small, options={"hidden": [width]}) for width in WIDTHS]


def _by_degree(quick: bool) -> list[Workload]:
    # Enough clients that no graph is stored as a dense matrix.
    small = replace(W2, clients=200, options={"hidden": [4 if quick else 16]})

    def regular(degree: int) -> Workload:
        topology = Topology.ring(small.clients)
        if degree > 2:
            topology = Topology.random_regular(small.clients, degree)
        return replace(small, graph=lambda clients: topology.mixing("metropolis"))

    return [regular(degree) for degree in DEGREES]


def _measure(name: str, workloads: list[Workload], options: BenchOptions) -> BenchResult:
    functions: dict[str, TimedFunction] = {}
    sizes: list[int] = []
    iterations: dict[str, int] = {}
    for number, workload in enumerate(workloads):
        options.progress(f"scaling {name}: preparing", number, len(workloads))
        simulation = workload.simulation(workload.images(), options.device)
        client_steps = MIN_CLIENT_STEPS // 10 if options.quick else MIN_CLIENT_STEPS
        key = str(number)
        iterations[key] = max(1, client_steps // workload.clients)
        functions[key] = partial(run_iterations, simulation, iterations[key])
        parameters = simulation.task.parameters
        degree = len(workload.graph(workload.clients).edges) // workload.clients
        sizes.append(
            {"clients": workload.clients, "parameters": parameters, "degree": degree}[name]
        )
    timings = options.time(f"scaling {name}", functions, REPEATS, QUICK_REPEATS)
    seconds = [timings.median(key) / iterations[key] for key in functions]
    fit = linregress(np.log(sizes), np.log(seconds))
    # The standard error is large if the times do not follow a power law.
    exponent, error = float(fit.slope), float(fit.stderr)
    return BenchResult(
        "scaling",
        name,
        Quartiles(exponent, exponent - error, exponent + error),
        seconds[-1],
        seconds[0],
        f"iteration with {sizes[-1]:,} (ours) and {sizes[0]:,} (other) {name}",
        timings.repeats,
        "exponent of the cost of an iteration, ± its standard error; 1 is linear",
        details={
            "standard_error": error,
            "points": [
                {name: size, "seconds": each} for size, each in zip(sizes, seconds, strict=True)
            ],
        },
    )
