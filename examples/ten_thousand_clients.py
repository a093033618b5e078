"""Ten thousand clients on a ring, a network of 50,000 parameters each, in less than 14 GiB.

    python examples/ten_thousand_clients.py [dsgt|lppa]

Random data: this shows size, not learning. Prints the time of every iteration and the peak memory.
"""

import resource
import sys
import time

import torch
from torch import nn

import tacit

CLIENTS = 10_000
module = nn.Sequential(nn.Flatten(), nn.Linear(784, 62), nn.ReLU(), nn.Linear(62, 20))
x, y = torch.rand(6 * CLIENTS, 1, 28, 28), torch.randint(0, 20, (6 * CLIENTS,))
task = tacit.Task.from_module(module, list(zip(x.split(6), y.split(6), strict=True)), batch_size=6)
graph = tacit.Topology.ring(CLIENTS).mixing("metropolis")
rule = {"dsgt": tacit.DSGT(lr=0.05), "lppa": tacit.LPPA(lr=0.05)}[
    sys.argv[1] if len(sys.argv) > 1 else "lppa"
]


def peak() -> float:
    """The most memory this process has held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


begun = time.perf_counter()


def progress(simulation: tacit.Simulation) -> None:
    print(
        f"iteration {simulation.t}: {time.perf_counter() - begun:.0f} s, peak {peak():.1f} GiB",
        flush=True,
    )


print(f"{task}, {graph.describe()}", flush=True)
run = tacit.simulate(rule, task, graph, steps=10, record_every=10, progress=progress)
error = (
    (run.state.gamma.sum(0, dtype=torch.float64) - run.state.grad.sum(0, dtype=torch.float64))
    .abs()
    .max()
)
print(f"largest deviation of Σγ from Σ∇L: {float(error):.1e}; peak memory {peak():.2f} GiB")
