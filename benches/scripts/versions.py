"""Compares the speed of two checkouts of Tacit: rounds of a workload, timed in turns.

    python benches/scripts/versions.py OLD/src NEW/src --workload W1 --repeats 20

Each checkout runs in its own process, which waits between its turns, so that a busy machine slows
both alike. Prints the median of the ratios new / old, turn by turn, with quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

WORKER = """
import sys, time, torch
try:
    from tacit_benches.workloads import WORKLOADS
except ImportError:
    # A checkout from before the benchmarks were a package of their own.
    from tacit.bench.workloads import WORKLOADS
workload, device = WORKLOADS[sys.argv[1]], torch.device(sys.argv[2])
simulation = workload.simulation(workload.images(), device)
def round():
    for _ in range(workload.iterations):
        simulation.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
round()
print("ready", flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    round()
    print(time.perf_counter() - begin, flush=True)
"""


def start_worker(source: Path, workload: str, device: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, workload, device],
        env=os.environ | {"PYTHONPATH": str(source)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise SystemExit(f"The checkout {source} does not run {workload}.")
    return process


def timed_round(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--workload", default="W1")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    old, new = (
        start_worker(source, options.workload, options.device)
        for source in (options.old, options.new)
    )
    times = []
    for repeat in range(options.repeats):
        pair = (
            [timed_round(old), timed_round(new)]
            if repeat % 2
            else [timed_round(new), timed_round(old)][::-1]
        )
        times.append(pair)
    for process in (old, new):
        process.communicate()
    low, middle, high = statistics.quantiles([b / a for a, b in times], n=4)
    seconds = [statistics.median(column) for column in zip(*times, strict=True)]
    print(
        json.dumps(
            {"workload": options.workload, "device": options.device, "ratio": round(middle, 4),
             "quartiles": [round(low, 4), round(high, 4)],
             "old_seconds": round(seconds[0], 5), "new_seconds": round(seconds[1], 5)}
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
