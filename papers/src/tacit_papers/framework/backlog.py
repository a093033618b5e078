"""What is still to be measured, what it takes, and in which order it is worth most.

First come cells without a number, then those with one repeat, which have no deviation, then the
others; among equals those that take least. Outdated repeats count as missing, and stay until they
are measured again.
"""

from __future__ import annotations

import _thread
import fnmatch
import math
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.core.errors import Interrupted, Misuse
from tacit_papers.framework import gpu
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, DatasetCache, Key, Scale
from tacit_papers.framework.results import OUTDATED, ArtifactResult
from tacit_papers.framework.results_file import ResultsFile, stored_scale
from tacit_papers.framework.runner import (
    Measurer,
    Reproduction,
    ReproductionListener,
    machine_description,
)

FULL = Scale()
# How often a measurement is tried that finds the GPU's memory full, and after how many others.
TRIES, LATER = 3, 10
# Seconds for other processes to return memory, so that not everything fails while they hold it.
PAUSE = 20.0


@dataclass(frozen=True, eq=False)
class Missing:
    """A measurement that an artifact lacks."""

    artifact: Artifact
    cell: Cell
    seed: int
    earlier: int  # repeats that the cell has when it is the turn of this one
    seconds: float | None  # that it probably takes; None if nothing like it was timed

    @property
    def rank(self) -> tuple[int, float]:
        return self.earlier, math.inf if self.seconds is None else self.seconds

    @property
    def label(self) -> str:
        return f"{self.artifact.name}, {' · '.join(self.cell.key)}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class ArtifactStatus:
    """What an artifact has and what it lacks, at full size."""

    artifact: Artifact
    measured: int  # measurements that exist
    outdated: Counter[str]  # those among them that are missing too, by the reason
    is_quick: bool  # only a smaller version is stored
    machines: tuple[str, ...]
    missing: tuple[Missing, ...]
    timed: tuple[float, ...]  # seconds of its measurements

    @property
    def seconds(self) -> float:
        """What is missing takes at least this long."""
        return sum(one.seconds or 0.0 for one in self.missing)

    @property
    def untimed(self) -> int:
        """Missing measurements whose time cannot be estimated."""
        return sum(one.seconds is None for one in self.missing)


def status_of(artifact: Artifact, out: Path, machine: str | None = None) -> ArtifactStatus:
    """Compare what is stored in a folder of results with what the artifact asks for.

    Times are those on this machine (its processor or GPU), where there are any.
    """
    file = ResultsFile.read(out / artifact.name, artifact, FULL)
    missing = tuple(
        one for cell in artifact.cells(FULL) for one in _missing(artifact, cell, file, machine)
    )
    stored = [one for cell in file.result.cells for one in cell.values.values()]
    outdated = Counter(one[OUTDATED] for one in stored if OUTDATED in one)
    is_quick = stored_scale(file.folder) == Scale(quick=True)
    keys = [cell.key for cell in file.result.cells]
    timed = tuple(_timings(file, keys, machine) or _timings(file, keys, None))
    return ArtifactStatus(
        artifact, len(stored), outdated, is_quick, tuple(file.machines), missing, timed
    )


def guessed_seconds(statuses: Sequence[ArtifactStatus]) -> dict[str, float]:
    """Seconds that untimed measurements of each paper may take: as its others, or as all."""
    by_paper: dict[str, list[float]] = {}
    for status in statuses:
        by_paper.setdefault(status.artifact.paper, []).extend(status.timed)
    everything = [seconds for some in by_paper.values() for seconds in some]
    return {
        paper: statistics.fmean(some or everything)
        for paper, some in by_paper.items()
        if everything
    }


def _missing(
    artifact: Artifact, cell: Cell, file: ResultsFile, machine: str | None
) -> Iterator[Missing]:
    stored, seconds = file.result[cell.key], expected(file, cell.key, machine)
    seeds = [seed for seed in range(artifact.repeats) if seed not in stored.current]
    for earlier, seed in enumerate(seeds, start=len(stored.current)):
        # A cell with an outdated number has a number.
        least = min(1, len(stored.values))
        yield Missing(artifact, cell, seed, max(earlier, least), seconds)


def expected(file: ResultsFile, key: Key, machine: str | None = None) -> float | None:
    """Seconds for a repeat of a cell: as its other repeats, or as those of all cells.

    Without times on this machine, those on the fastest count.
    """
    keys = [cell.key for cell in file.result.cells]
    tries = ([key], machine), (keys, machine), ([key], None), (keys, None)
    found = next((some for one in tries if (some := _timings(file, *one))), None)
    return statistics.fmean(found) if found else None


def _timings(file: ResultsFile, keys: Iterable[Key], machine: str | None) -> list[float]:
    """Seconds of repeats on one machine; None: the one that took least.

    Older numbers have only the time of the training in them, the largest part of it.
    """
    by_machine: dict[str, list[float]] = {}
    for one in (one for key in keys for one in file.result[key].values.values()):
        seconds = one.get("took", one.get("seconds"))
        if seconds is not None:
            name = file.machines[one["machine"]].split(",")[0]
            by_machine.setdefault(name, []).append(seconds)
    if machine is not None:
        return by_machine.get(machine, [])
    return min(by_machine.values(), key=statistics.fmean, default=[])


@dataclass(frozen=True)
class Backlog:
    """The request to measure what all artifacts lack."""

    artifacts: Sequence[Artifact]
    out: Path
    minutes: float = math.inf
    device: str = "cpu"
    data_folder: Path | None = None
    only: Sequence[str] = ()  # patterns of artifacts' names; none: all

    @property
    def chosen(self) -> list[Artifact]:
        """The artifacts whose names match one of the patterns.

        Raises:
            Misuse: If a pattern matches none.
        """
        for pattern in self.only:
            if not fnmatch.filter([artifact.name for artifact in self.artifacts], pattern):
                raise Misuse(
                    f"No artifact matches {pattern!r}.", "`tacit reproduce list` shows them."
                )
        patterns = self.only or ["*"]
        return [
            artifact
            for artifact in self.artifacts
            if any(fnmatch.fnmatchcase(artifact.name, pattern) for pattern in patterns)
        ]

    def statuses(self, machine: str | None = None) -> list[ArtifactStatus]:
        """The status of every artifact, with times on one machine where there are any."""
        return [status_of(artifact, self.out, machine) for artifact in self.chosen]

    def missing(self) -> list[Missing]:
        """What is missing, the most valuable first."""
        machine = machine_description(self.device).split(",")[0]
        found = [one for status in self.statuses(machine) for one in status.missing]
        return sorted(found, key=lambda one: one.rank)

    def command(self) -> list[str]:
        """The command that continues with it."""
        words = ["tacit", "reproduce", "all", "--resume", "--out", str(self.out)]
        words += [] if math.isinf(self.minutes) else ["--minutes", f"{self.minutes:g}"]
        words += [] if self.device == "cpu" else ["--device", self.device]
        words += [part for pattern in self.only for part in ("--only", pattern)]
        return words if self.data_folder is None else [*words, "--data", str(self.data_folder)]

    def request(self, artifact: Artifact) -> Reproduction:
        return Reproduction(
            artifact, FULL, self.out, device=self.device, data_folder=self.data_folder
        )


def measure_backlog(
    backlog: Backlog,
    listener: ReproductionListener,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, ArtifactResult]:
    """Measure what is missing while there is time for it; return the artifacts that changed.

    A measurement begins only if it probably ends in time. One that does not is interrupted and
    continues the next time. One that fails is reported, and the others go on; if the GPU had too
    little memory left, they go on after a pause, and it is tried again after some of them. After an
    error that breaks this process's use of the GPU, nothing more is measured.
    """
    todo, deadline = deque(backlog.missing()), clock() + 60 * backlog.minutes
    total, tried = len(todo), Counter[Missing]()
    datasets, measurers = DatasetCache(), dict[str, Measurer]()
    changed: dict[str, ArtifactResult] = {}
    try:
        with _interrupted_after(60 * backlog.minutes):
            while todo:
                one = todo.popleft()
                left = deadline - clock()
                if left <= 0 or (one.seconds or 0.0) > left:
                    continue
                name = one.artifact.name
                if name not in measurers:
                    request = backlog.request(one.artifact)
                    command = backlog.command()
                    measurers[name] = Measurer(request, command, listener, datasets, clock)
                lacks_memory = False
                try:
                    if measurers[name].measure(one.cell, one.seed):
                        changed[name] = measurers[name].file.result
                except Interrupted:
                    raise
                except Exception as problem:  # whatever a measurement raises
                    tried[one] += 1
                    # Its traceback keeps memory, which is returned below.
                    lacks_memory = gpu.lacks_memory(problem)
                    if lacks_memory and tried[one] < TRIES:
                        todo.insert(LATER, one)
                        listener.on_warning(
                            f"{one.label}: the GPU has too little memory left; "
                            "it is tried again after some others."
                        )
                    else:
                        listener.on_failure(f"{one.label}: {type(problem).__name__}: {problem}")
                    if gpu.is_broken(problem):
                        listener.on_warning(
                            "This process stops: the GPU may give it wrong results now."
                        )
                        break
                gpu.release_memory()
                if lacks_memory:
                    sleep(PAUSE)
                rest = sum(later.seconds or 0.0 for later in todo)
                left = min(rest, max(0.0, deadline - clock()))
                listener.on_measured(total - len(todo), total, left)
    except (Interrupted, KeyboardInterrupt):
        if clock() < deadline:
            raise
    for name in changed:
        measurers[name].file.write()
    return changed


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt the block, as Ctrl-C does, if it takes longer."""
    if math.isinf(seconds):
        yield
        return
    timer = threading.Timer(seconds, _thread.interrupt_main)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
