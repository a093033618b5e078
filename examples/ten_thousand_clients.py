"""Ten thousand clients on a ring, each with a 50,000-parameter network, in less than 14 GiB.

    python examples/ten_thousand_clients.py [dsgt|lppa]

The data are random: this shows scale, not learning. Prints time and peak memory per iteration.
"""

import argparse
import resource
import time

import torch
from torch import nn

import tacit

CLIENTS = 10_000
ALGORITHMS = {"dsgt": tacit.DSGT(lr=0.05), "lppa": tacit.LPPA(lr=0.05)}

parser = argparse.ArgumentParser(description="Ten thousand clients on a ring.")
parser.add_argument("algorithm", nargs="?", choices=ALGORITHMS, default="lppa")
name = parser.parse_args().algorithm

module = nn.Sequential(nn.Flatten(), nn.Linear(784, 62), nn.ReLU(), nn.Linear(62, 20))
x, y = torch.rand(6 * CLIENTS, 1, 28, 28), torch.randint(0, 20, (6 * CLIENTS,))
task = tacit.Task(module, list(zip(x.split(6), y.split(6), strict=True)), batch_size=6)
graph = tacit.Topology.ring(CLIENTS).mixing("metropolis")
algorithm = ALGORITHMS[name]


def peak() -> float:
    """Peak memory of this process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


begin = time.perf_counter()


def progress(simulation: tacit.Simulation) -> None:
    print(
        f"iteration {simulation.t}: {time.perf_counter() - begin:.0f} s, peak {peak():.1f} GiB",
        flush=True,
    )


print(f"{task}, {graph.describe()}", flush=True)
run = tacit.run(task, algorithm, graph, steps=10, record_every=10, progress=progress)
error = (
    (run.state.gamma.sum(0, dtype=torch.float64) - run.state.grad.sum(0, dtype=torch.float64))
    .abs()
    .max()
)
print(f"largest deviation of Σγ from Σ∇L: {float(error):.1e}; peak memory {peak():.2f} GiB")
