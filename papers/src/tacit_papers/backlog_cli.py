"""`tacit reproduce status` and `tacit reproduce all`: what is missing, and measuring it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tacit.cli.progress import ProgressBar, ProgressBars
from tacit.core.devices import check_device
from tacit.core.errors import Misuse
from tacit.core.storage import read_json
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.backlog import (
    FULL,
    ArtifactStatus,
    Backlog,
    guessed_seconds,
    measure_backlog,
)
from tacit_papers.framework.drawing import write_figure
from tacit_papers.framework.registry import ARTIFACTS
from tacit_papers.framework.results_file import ResultsFile
from tacit_papers.framework.runner import ReproductionListener
from tacit_papers.framework.summary import MARKS, write_summary
from tacit_papers.framework.workers import worker_processes

WIDE = 120  # columns of a terminal in which the table of the status also names machines


@dataclass(frozen=True)
class BacklogOptions:
    """The options of the command line that both have."""

    out: Path
    minutes: float | None
    device: str
    data: Path | None
    resume: bool
    jobs: int
    as_json: bool
    only: tuple[str, ...]  # patterns of artifacts' names
    figures: bool  # draw them, and summarise the claims

    def refuse(self, others: Mapping[str, Any], name: str) -> None:
        """Raise Misuse for options of a single artifact."""
        if others:
            problem = f"`tacit reproduce {name}` has no {' or '.join(others)}."
            raise Misuse(problem, "Name an artifact, e.g. tacit reproduce lppa/table1.")

    def backlog(self) -> Backlog:
        minutes = math.inf if self.minutes is None else self.minutes
        artifacts = tuple(ARTIFACTS.values())
        return Backlog(artifacts, self.out, minutes, self.device, self.data, self.only)


def show_status(options: BacklogOptions) -> None:
    """Print what every artifact lacks, how long that takes, and how the claims stand."""
    statuses, verdicts = options.backlog().statuses(), _verdicts(options.out)
    if options.as_json:
        print(json.dumps([_as_dict(status) for status in statuses]))
        return
    guesses = guessed_seconds(statuses)
    table = Table(title=f"Measurements in {options.out}")
    table.add_column("artifact", no_wrap=True)
    table.add_column("size")
    for column in ("measured", "old", "missing", "takes"):
        table.add_column(column, justify="right", no_wrap=True)
    console = Console()
    shows_machines = console.width >= WIDE
    if shows_machines:
        table.add_column("measured on")
    for status in statuses:
        size = "quick" if status.is_quick else "full" if status.measured else "–"
        old, lacks = (
            str(count) if count else "–" for count in (status.outdated.total(), len(status.missing))
        )
        machines = dict.fromkeys(machine.split(",")[0] for machine in status.machines)
        guess = guesses.get(status.artifact.paper)
        row = [status.artifact.name, size, str(status.measured), old, lacks, _cost(status, guess)]
        table.add_row(*row, *([", ".join(machines)] if shows_machines else []))
    console.print(table)
    missing = sum(len(status.missing) for status in statuses)
    total = duration(sum(status.seconds for status in statuses))
    print(f"Missing: {missing} measurements, about {total} on these machines.")
    if untimed := sum(status.untimed for status in statuses):
        rest = sum(status.untimed * guesses.get(status.artifact.paper, 0.0) for status in statuses)
        known = f"perhaps {duration(rest)} more" if rest else "not counted"
        print(f"{untimed} of them are of artifacts that were never timed (≈): {known}.")
    for reason, count in sum((status.outdated for status in statuses), Counter()).items():
        print(f"{count} of them have old numbers, which stay until they are repeated: {reason}.")
    print("Claims: " + ", ".join(f"{verdicts[grade]} {grade}" for grade in MARKS) + ".")
    if missing:
        print(f"Measure them: tacit reproduce all --resume --out {options.out} --minutes 25")


def measure_all(options: BacklogOptions) -> None:
    """Measure what is missing, the most valuable first, as far as the time allows."""
    check_device(options.device, "--device")
    backlog, console = options.backlog(), Console(stderr=True)
    if not options.resume and any(status.measured for status in backlog.statuses()):
        raise Misuse(
            f"{options.out} already has measurements.",
            "Keep them and measure the rest with --resume, or choose another --out.",
        )

    def report(message: str) -> None:
        console.print(message, highlight=False, markup=False, soft_wrap=True)

    def report_measured(done: int, total: int, seconds: float) -> None:
        report(f"{done} of {total} considered, {duration(seconds)} left")

    failures: list[str] = []

    def report_failure(message: str) -> None:
        failures.append(message)
        report(f"Failed: {message}")

    before = {status.artifact.name: len(status.missing) for status in backlog.statuses()}
    missing = sum(before.values())
    with ProgressBars(console, runs=missing) as bars, ProgressBar(console) as bar:
        listener = ReproductionListener(
            bars.listener_for, bar, report_measured, report, report_failure
        )
        options.out.mkdir(parents=True, exist_ok=True)
        command = [*backlog.command(), "--no-figures"]
        with worker_processes(command, options.jobs - 1, options.out, report):
            measure_backlog(backlog, listener)
    after = backlog.statuses()
    left = sum(len(status.missing) for status in after)
    print(f"{missing - left} measured, {left} still missing: tacit reproduce status")
    if options.figures:
        for status in after:
            if len(status.missing) < before[status.artifact.name]:
                _draw(status.artifact, options.out)
        print(f"All claims: {write_summary(options.out)}")
    if failures:
        raise Misuse(f"{len(failures)} measurements failed.", "The messages above say why.")


def _draw(artifact: Artifact, out: Path) -> None:
    folder = out / artifact.name
    write_figure(artifact.draw(ResultsFile.read(folder, artifact, FULL).result), folder)


def duration(seconds: float) -> str:
    """Seconds in words, to about two digits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _cost(status: ArtifactStatus, guess: float | None) -> str:
    """What is missing takes that long; a guess, marked, where the artifact was never timed."""
    if not status.missing:
        return ""
    if not status.untimed:
        return duration(status.seconds)
    return "?" if guess is None else "≈ " + duration(status.seconds + status.untimed * guess)


def _as_dict(status: ArtifactStatus) -> dict[str, Any]:
    return {
        "name": status.artifact.name,
        "measured": status.measured,
        "outdated": dict(status.outdated),
        "quick": status.is_quick,
        "seconds": status.seconds,
        "untimed": status.untimed,
        "missing": [
            {"cell": one.cell.key, "seed": one.seed, "seconds": one.seconds}
            for one in status.missing
        ],
    }


def _verdicts(out: Path) -> Counter[str]:
    stored = [read_json(path) for path in sorted(out.glob("*/*/result.json"))]
    return Counter(claim["word"] for one in stored for claim in one["claims"])
