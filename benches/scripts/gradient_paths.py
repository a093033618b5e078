"""Which path the gradients of models take, and its time over that of a plain loop.

    OMP_NUM_THREADS=1 python benches/scripts/gradient_paths.py

For clients: ten clients with models of their own, a batch of 16 each, over a loop of the same
steps. For samples: sums of clipped gradients of 64 samples, over one plain gradient of as many, and
over a loop over samples. All take turns; prints a table of the median ratios, turn by turn. Times
are those of the process, so that other programs count little.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

import tacit
from tacit.core.workers import WorkerPool
from tacit.engines.gradients.client_passes import Strategy, choose_backend
from tacit.engines.gradients.clipped import ClippedSums
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.gradients.sample_passes import SampleBackend, Way
from tacit.tasks.poisson import PoissonSample
from tacit_benches.models import KINDS, Kind

CLIENTS, BATCH, SAMPLES, BOUND = 10, 16, 64, 0.1


def clients(kind: Kind) -> tuple[str, dict[str, Callable[[int], object]]]:
    """The path of clients, and both ways to compute their gradients."""
    x, y = kind.samples(CLIENTS * BATCH)
    parts = list(zip(x.split(BATCH), y.split(BATCH), strict=True))
    task = tacit.Task(kind.module(), parts, batch_size=BATCH, init="module")
    loader = task.loader(torch.arange(CLIENTS), 0, "cpu")
    choice = choose_backend(task, range(CLIENTS), loader, 0, "cpu", pool=WorkerPool(1))
    theta = task.initial(0, range(CLIENTS))

    def of(strategy: Strategy) -> Callable[[int], object]:
        hosted = HostedObjective(task, range(CLIENTS), loader, strategy, 0, "cpu")
        return lambda turn: hosted.grad(theta, turn)

    return choice.strategy, {"path": of(choice.strategy), "loop": of("looped")}


def samples(kind: Kind) -> tuple[str, dict[str, Callable[[int], object]]]:
    """The path of samples, both ways to clip and sum, and the plain gradient."""
    task = tacit.Task(kind.module(), [kind.samples(SAMPLES)], batch_size=SAMPLES, init="module")
    loader = task.loader(torch.arange(1), 0, "cpu")
    theta = task.initial(0, [0])
    private = ClippedSums.of(task, loader, theta[0], WorkerPool(1))
    chosen = private.backend
    count = torch.tensor([SAMPLES])
    sample = PoissonSample(torch.arange(SAMPLES), count, count, 1.0)
    plain = HostedObjective(task, [0], loader, "looped", 0, "cpu")

    def of(way: Way) -> Callable[[int], object]:
        backend = chosen if way == chosen.way else SampleBackend.of(task, way)
        sums = replace(private, backend=backend, trial=None)
        out = torch.empty_like(theta)
        return lambda turn: sums.write(theta, sample, BOUND, out)

    return chosen.way, {
        "path": of(chosen.way),
        "loop": of("looped"),
        "plain": lambda turn: plain.grad(theta, turn),
    }


def medians(cases: dict[str, Callable[[int], object]], repeats: int) -> dict[str, float]:
    """Median ratios of the first case to each other one."""
    turns = []
    for turn in range(-1, repeats):
        seconds = {}
        for name, run in cases.items():
            begin = time.process_time()
            run(turn + 1)
            seconds[name] = time.process_time() - begin
        if turn >= 0:
            turns.append(seconds)
    others = [name for name in cases if name != "path"]
    return {o: statistics.median(turn["path"] / turn[o] for turn in turns) for o in others}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--models", nargs="*", default=list(KINDS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | clients | over a loop | samples | over a loop | over the plain gradient |")
    print("| --- | --- | ---: | --- | ---: | ---: |")
    for name in options.models:
        together, of_clients = clients(KINDS[name])
        way, of_samples = samples(KINDS[name])
        first, second = medians(of_clients, options.repeats), medians(of_samples, options.repeats)
        numbers = f"{second['loop']:.2f} | {second['plain']:.2f}"
        print(f"| {name} | {together} | {first['loop']:.2f} | {way} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
