"""Reproducible measurements: each is a ratio of two things timed in turns within one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import cast

from tacit.bench.result import Asked, Bench, Result
from tacit.core.errors import Misuse, unknown_name

NAMES = ("sim", "scaling", "mix", "attack", "noise", "codec", "peer")


def bench(name: str) -> Bench:
    """The module that measures `name`."""
    if name not in NAMES:
        raise unknown_name(f"There is no bench {name!r}.", name, NAMES)
    return cast(Bench, import_module(f"tacit.bench.{name}"))


def choose(names: Sequence[str], asked: Asked) -> dict[str, Asked]:
    """What each bench is asked for: the benches named, or all; the workloads named, or those fit for the device."""
    benches = {name: bench(name) for name in names or NAMES}
    known = list(
        dict.fromkeys(workload for each in benches.values() for workload in each.WORKLOADS)
    )
    for workload in asked.workloads:
        if workload not in known:
            raise unknown_name(f"There is no workload {workload!r}.", workload, known)
    chosen = {}
    for name, each in benches.items():
        offered = each.offered(asked.device)
        wanted = tuple(workload for workload in asked.workloads if workload in each.WORKLOADS)
        wanted = wanted if asked.workloads else offered
        if wanted and offered:  # a bench that offers nothing does not run on this device
            chosen[name] = replace(asked, workloads=wanted)
    if not chosen:
        what = ", ".join(asked.workloads or names)
        raise Misuse(f"{what}: nothing of it runs on {asked.device}.", "Use --device cpu.")
    return chosen


def measure(
    names: Sequence[str], asked: Asked, skipped: Callable[[str, Misuse], None]
) -> Iterator[Result]:
    """Results as they come. A bench that cannot run here is an error if it was named, and skipped otherwise."""
    for name, wanted in choose(names, asked).items():
        try:
            yield from bench(name).measure(wanted)
        except Misuse as problem:
            if names:
                raise
            skipped(name, problem)
