"""How the cost of an iteration grows with the number of clients, the parameters and the degree of the graph.

All sizes are timed in turns, small ones several iterations at a time so that none is too short for the clock; the
exponent is fitted to their medians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch

from tacit.bench.exponents import fit_exponent
from tacit.bench.result import Asked, Result
from tacit.bench.sim import rounds
from tacit.bench.stopwatch import Quartiles, Stopwatch, Work
from tacit.bench.workloads import W2, Workload
from tacit.graph import Topology

SUMMARY = "the exponent b of: seconds per iteration = a · sizeᵇ"
WORKLOADS = ("clients", "parameters", "degree")
CLIENTS = (100, 200, 400, 800, 1_600)
WIDTHS = (16, 32, 64, 128, 256)
DEGREES = (2, 4, 8, 16, 32)
REPEATS, QUICK_REPEATS = 5, 2
MANY = 400  # client-steps timed at a time, at least


def offered(device: torch.device) -> tuple[str, ...]:
    """All of them everywhere."""
    return WORKLOADS


def measure(asked: Asked) -> Iterator[Result]:
    """One exponent after the other."""
    families: Mapping[str, Callable[[bool], list[Workload]]] = {
        "clients": _by_clients,
        "parameters": _by_width,
        "degree": _by_degree,
    }
    for name in asked.workloads:
        yield _exponent(name, families[name](asked.quick), asked)


def _by_clients(quick: bool) -> list[Workload]:
    return [replace(W2, clients=clients // 10 if quick else clients) for clients in CLIENTS]


def _by_width(quick: bool) -> list[Workload]:
    small = replace(W2, clients=10 if quick else 50)
    return [replace(small, options={"hidden": [width]}) for width in WIDTHS]


def _by_degree(quick: bool) -> list[Workload]:
    # So many clients that no graph is kept as a full matrix.
    small = replace(W2, clients=200, options={"hidden": [4 if quick else 16]})

    def regular(degree: int) -> Workload:
        topology = Topology.ring(small.clients)
        if degree > 2:
            topology = Topology.random_regular(small.clients, degree)
        return replace(small, graph=lambda clients: topology.mixing("metropolis"))

    return [regular(degree) for degree in DEGREES]


def _exponent(name: str, workloads: list[Workload], asked: Asked) -> Result:
    works: dict[str, Work] = {}
    sizes: list[int] = []
    iterations: list[int] = []
    for number, workload in enumerate(workloads):
        asked.progress(f"scaling {name}: preparing", number, len(workloads))
        simulation = workload.simulation(workload.images(), asked.device)
        at_a_time = max(1, (MANY // 10 if asked.quick else MANY) // workload.clients)
        works[str(number)] = partial(rounds, simulation, at_a_time)
        parameters = simulation.task.parameters
        degree = len(workload.graph(workload.clients).edges) // workload.clients
        sizes.append(
            {"clients": workload.clients, "parameters": parameters, "degree": degree}[name]
        )
        iterations.append(at_a_time)
    repeats = asked.repeats or (QUICK_REPEATS if asked.quick else REPEATS)
    turns = asked.turns_of(f"scaling {name}")
    timings = Stopwatch.on(asked.device).interleaved(works, repeats, turns=turns)
    seconds = [timings.median(key) / steps for key, steps in zip(works, iterations, strict=True)]
    found = fit_exponent(sizes, seconds)
    return Result(
        "scaling",
        name,
        Quartiles(found.value, found.value - found.error, found.value + found.error),
        seconds[-1],
        seconds[0],
        f"iteration with {sizes[-1]:,} (ours) and {sizes[0]:,} (other) {name}",
        repeats,
        "exponent of the cost of an iteration, ± its standard error; 1 is linear",
        details={
            "standard_error": found.error,
            "points": [
                {name: size, "seconds": cost} for size, cost in zip(sizes, seconds, strict=True)
            ],
        },
    )
