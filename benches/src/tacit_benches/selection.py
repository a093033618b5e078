"""Which benchmarks run, with which workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import cast

from tacit.core.errors import Misuse, unknown_name
from tacit_benches.benchmark import Benchmark, BenchOptions, BenchResult

NAMES = ("sim", "scaling", "mix", "attack", "noise", "codec", "peer")


def load_benchmark(name: str) -> Benchmark:
    """The module of a benchmark."""
    if name not in NAMES:
        raise unknown_name(f"There is no bench {name!r}.", name, NAMES)
    return cast(Benchmark, import_module(f"tacit_benches.{name}"))


def select(names: Sequence[str], options: BenchOptions) -> dict[str, BenchOptions]:
    """The benchmarks to run (all if none are named) with the workloads of each.

    Without workloads in the options, each benchmark runs its defaults for the device.
    """
    benchmarks = {name: load_benchmark(name) for name in names or NAMES}
    known = list(dict.fromkeys(name for each in benchmarks.values() for name in each.WORKLOADS))
    for workload in options.workloads:
        if workload not in known:
            raise unknown_name(f"There is no workload {workload!r}.", workload, known)
    selected = {}
    for name, each in benchmarks.items():
        defaults = each.DEFAULTS[options.device.type]
        chosen = tuple(workload for workload in options.workloads if workload in each.WORKLOADS)
        chosen = chosen if options.workloads else defaults
        # A benchmark without defaults does not run on this device.
        if chosen and defaults:
            selected[name] = replace(options, workloads=chosen)
    if not selected:
        wanted = ", ".join(options.workloads or names)
        raise Misuse(f"{wanted} cannot run on {options.device}.", "Use --device cpu.")
    return selected


def measure(
    names: Sequence[str], options: BenchOptions, on_skip: Callable[[str, Misuse], None]
) -> Iterator[BenchResult]:
    """Run benchmarks and yield their results.

    If a benchmark cannot run here, that is an error if it was named; otherwise it is skipped.
    """
    for name, chosen in select(names, options).items():
        try:
            yield from load_benchmark(name).measure(chosen)
        except Misuse as problem:
            if names:
                raise
            on_skip(name, problem)
