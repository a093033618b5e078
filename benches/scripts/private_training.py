"""Times whole iterations of private training: draw, gradients per sample, noise, sum, step.

    python benches/scripts/private_training.py                     # CPU
    python benches/scripts/private_training.py --device cuda --repeats 20

All cases train the same network with the same expected number of samples per iteration, and take
turns, so that a busy machine slows all alike. Prints the median time per iteration of each case and
the median of two ratios, turn by turn: to plain SGD of the same clients, and to DP-SGD of one
client that has all data.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from private_step import BOUND, SAMPLES, network

import tacit
from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.private_algorithm import prepare
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.tasks.parts import Parts

CLIENTS, MANY = 10, 1000


def simulation(
    algorithm: Algorithm, clients: int, batch: int, parts: Parts, device: str
) -> Simulation:
    """A simulation that has begun."""
    task = tacit.Task(network(), parts, batch_size=max(1, batch // clients), init="same")
    families = {1: tacit.Topology.complete, CLIENTS: tacit.Topology.complete}
    graph = families.get(clients, tacit.Topology.ring)(clients).mixing("metropolis")
    if isinstance(algorithm, tacit.PrivateSGD):
        # The noise of ε = 3 after 1,160 iterations; a larger ε lets the bench go on.
        honest = 1 if clients == 1 else None
        promise = tacit.Privacy(epsilon=30.0, honest=honest, noise_multiplier=1.8, clip=BOUND)
        algorithm = prepare(algorithm, promise, task, graph, steps=1)
    begun = Simulation(Setting(algorithm, task, graph, seed=0, device=device))
    begun.start()
    return begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=2048, help="expected samples per iteration")
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=None, help="of each case in each turn")
    options = parser.parse_args()
    device, batch = options.device, options.batch
    iterations = options.iterations or (100 if device == "cuda" else 2)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(SAMPLES, 1, 28, 28, generator=generator)
    labels = torch.randint(10, (SAMPLES,), generator=generator)

    def of(algorithm: Algorithm, clients: int) -> Simulation:
        parts = Parts.split((images, labels), torch.arange(SAMPLES).tensor_split(clients))
        return simulation(algorithm, clients, batch, parts, device)

    private = tacit.PrivateSGD(lr=1.0, momentum=0.9)
    cases = {
        "plain SGD, 10 clients": of(tacit.DPSGD(lr=0.1), CLIENTS),
        "DP-SGD, one client": of(private, 1),
        "private, 10 clients": of(private, CLIENTS),
        "private, 1000 clients": of(private, MANY),
    }
    turns = []
    for turn in range(-2, options.repeats):
        seconds = {}
        for name, running in cases.items():
            begin = time.perf_counter()
            for _ in range(iterations):
                running.step()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds[name] = (time.perf_counter() - begin) / iterations
        if turn >= 0:
            turns.append(seconds)
    plain, central = list(cases)[:2]
    for name in cases:
        line = {
            "case": name,
            "milliseconds": round(1000 * statistics.median(turn[name] for turn in turns), 3),
            "to plain": round(statistics.median(turn[name] / turn[plain] for turn in turns), 3),
            "to DP-SGD": round(statistics.median(turn[name] / turn[central] for turn in turns), 3),
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
