"""Compares two gloo ranks on two cores with one process on one core.

Both run the same workload with one thread per process, each process pinned to its core. They are
measured in turns, so that a busy machine slows both alike; one waits on a pipe while the other
runs. Prints medians, the ratio, and the bytes between the ranks next to the cut of the graph.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

RANKS = 2


def simulation(options: argparse.Namespace, rank: int, ranks: int) -> Any:
    """The workload as one of `ranks` processes runs it."""
    import tacit
    from tacit.engines.group import Hosted, ProcessGroup
    from tacit.engines.torchrun import TorchrunGroup
    from tacit_benches.workloads import WORKLOADS

    workload = WORKLOADS[options.workload]
    graph = workload.graph(workload.clients)
    hosted = Hosted.of(ProcessGroup() if ranks == 1 else TorchrunGroup(rank, ranks), graph)
    task = workload.task(workload.images())
    return tacit.Simulation(tacit.Setting(tacit.LPPA(lr=0.02), task, graph), hosted=hosted)


def serve(
    options: argparse.Namespace, rank: int, ranks: int, core: int, rendezvous: str, pipe: Connection
) -> None:
    """Run as many steps as each message on the pipe requests, and reply with time and bytes."""
    os.sched_setaffinity(0, {core})
    import torch

    torch.set_num_threads(1)
    if ranks > 1:
        import torch.distributed as dist

        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks
        )
    run = simulation(options, rank, ranks)
    run.start()
    pipe.send((run.task.parameters, run.hosted.partition.volume, run.gradients.strategy))
    while (steps := pipe.recv()) is not None:
        sent = getattr(run.net, "boundary_bytes", 0)
        begin = time.perf_counter()
        for _ in range(steps):
            run.step()
        pipe.send((time.perf_counter() - begin, getattr(run.net, "boundary_bytes", 0) - sent))


class RankGroup:
    """Processes that run one simulation together."""

    def __init__(self, options: argparse.Namespace, cores: list[int], folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank, core in enumerate(cores):
            ours, theirs = context.Pipe()
            arguments = (
                options,
                rank,
                len(cores),
                core,
                str(folder / f"rendezvous-{len(cores)}"),
                theirs,
            )
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.facts, *_ = [pipe.recv() for pipe in self.pipes]

    def step(self, steps: int) -> tuple[float, int]:
        """Seconds of the slowest process, and bytes sent between all of them."""
        for pipe in self.pipes:
            pipe.send(steps)
        seconds, sent = zip(*(pipe.recv() for pipe in self.pipes), strict=True)
        return max(seconds), sum(sent)

    def close(self) -> None:
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self.processes:
            process.join(10)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workload", choices=["W1", "W2", "W3"], default="W1", help="see `tacit bench list`"
    )
    parser.add_argument("--steps", type=int, default=3, help="iterations in one measurement")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:RANKS]
    if len(cores) < RANKS:
        parser.error(f"two ranks need two cores, but this process may use only {len(cores)}")
    with tempfile.TemporaryDirectory() as folder:
        one = RankGroup(options, cores[:1], Path(folder))
        two = RankGroup(options, cores, Path(folder))
        try:
            # Not counted: the first step takes longer.
            for group in (one, two):
                group.step(1)
            alone, shared, sent = [], [], 0
            for _ in range(options.repeats):
                alone.append(one.step(options.steps)[0])
                seconds, sent = two.step(options.steps)
                shared.append(seconds)
        finally:
            one.close()
            two.close()
    parameters, volume, strategy = two.facts
    # θ and γ in every iteration, in float32.
    exchanged = 2 * options.steps * volume * parameters * 4
    outcome = {
        "ratio": statistics.median(alone) / statistics.median(shared),
        "ratios": [round(a / b, 3) for a, b in zip(alone, shared, strict=True)],
        "one_core_ms": 1e3 * statistics.median(alone) / options.steps,
        "two_ranks_ms": 1e3 * statistics.median(shared) / options.steps,
        "boundary_bytes": sent,
        "cut_bytes": exchanged,
        "workload": options.workload,
        "parameters": parameters,
        "gradients": strategy,
        "cores": cores,
    }
    if options.json:
        print(json.dumps(outcome))
        return
    print(f"{options.workload}: {parameters:,} parameters, {strategy}")
    print(
        f"one process on core {cores[0]}:  {outcome['one_core_ms']:8.1f} ms per iteration (median)"
    )
    print(f"two ranks on cores {cores}: {outcome['two_ranks_ms']:8.1f} ms")
    spread = sorted(outcome["ratios"])
    print(f"ratio {outcome['ratio']:.2f} (single measurements {spread[0]} to {spread[-1]})")
    print(f"between ranks: {sent:,} bytes in {options.steps} iterations; the cut is {exchanged:,}")


if __name__ == "__main__":
    main()
