"""Times of the symbolic audit: one adversary of a large run, and whole heat maps.

python benches/scripts/knowledge.py            # 50 clients × 50 iterations; heat maps of 30 × 20
python benches/scripts/knowledge.py --small
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import tacit
from tacit.algorithms import ALGORITHMS
from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.exposure import LEVELS, compute_exposure
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.symbols import run_on_symbols

CASES = {
    "dsgt": ALGORITHMS["dsgt"](lr=0.05),
    "lppa, fresh": ALGORITHMS["lppa"](lr=0.05, fresh=True),
    "pdmm": ALGORITHMS["pdmm"](),
}


def one_adversary(name: str, adversary: str, clients: int, steps: int) -> None:
    """What one adversary knows about all gradients of all clients."""
    graph = tacit.Topology.random_regular(clients, 4, seed=1).mixing("metropolis")
    begin = time.perf_counter()
    run = run_on_symbols(CASES[name], graph, steps)
    know = Knowledge(run, Adversary.parse(adversary))
    honest = [i for i in range(clients) if i not in know.adversary.corrupt]
    queries = np.stack([know.vector((u, 1.0)) for i in honest for u in run.gradients(i)])
    variances = know.variances(queries)
    seconds = time.perf_counter() - begin
    exact, hidden = int((variances == 0).sum()), int(np.isinf(variances).sum())
    print(
        f"{name:12} {adversary:14} {clients} × {steps}: {seconds:6.1f} s; "
        f"{len(run.unknowns):,} unknowns, {len(know.seen):,} rows, rank {know.rank:,}; "
        f"{exact} gradients exact, {len(queries) - exact - hidden} noisy, {hidden} hidden"
    )


def heat_map(name: str, graph_name: str, topology: tacit.Topology, steps: int) -> None:
    """Every client as adversary of every other."""
    begin = time.perf_counter()
    run = run_on_symbols(CASES[name], topology.mixing("metropolis"), steps)
    levels = compute_exposure(run).levels
    seconds = time.perf_counter() - begin
    found = {level: int((levels == k).sum()) for k, level in enumerate(LEVELS)}
    print(f"{name:12} heat map of {graph_name} × {steps}: {seconds:6.1f} s; {found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    clients, steps = (12, 8) if small else (50, 50)
    for name in CASES:
        for adversary in ("curious(0)", "eavesdropper"):
            one_adversary(name, adversary, clients, steps)
    clients, steps = (8, 5) if small else (30, 20)
    topologies = {
        f"ring({clients})": tacit.Topology.ring(clients),
        f"random({clients})": tacit.Topology.erdos_renyi(clients, 0.3, seed=1),
        f"complete({clients})": tacit.Topology.complete(clients),
    }
    for name in CASES:
        for graph_name, topology in topologies.items():
            heat_map(name, graph_name, topology, steps)


if __name__ == "__main__":
    main()
