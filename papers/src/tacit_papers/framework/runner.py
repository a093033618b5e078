"""Measure the cells of an artifact. Measurements are stored one by one, so a run can be continued.

Several processes can measure one artifact in one folder: each measurement is claimed with a lock.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from tacit.core.errors import Interrupted, Misuse
from tacit.core.provenance import available_cores, processor_name
from tacit.core.storage import file_lock
from tacit.experiment.run import ProgressListener
from tacit_papers.framework import gpu
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import (
    Cell,
    DatasetCache,
    MeasureContext,
    Scale,
    Values,
    rounded,
)
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.framework.results_file import LOCK, ResultsFile, stored_scale


@dataclass(frozen=True, eq=False)
class ReproductionListener:
    """Callbacks that report progress."""

    on_run: Callable[[str, int], ProgressListener] = lambda label, seed: ProgressListener()
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None
    on_measured: Callable[[int, int, float], None] = lambda done, total, seconds_left: None
    on_warning: Callable[[str], None] = lambda message: None
    on_failure: Callable[[str], None] = lambda message: None


@dataclass(frozen=True)
class Reproduction:
    """The request to measure an artifact, or some of its cells."""

    artifact: Artifact
    scale: Scale
    out: Path  # the folder of all results
    repeats: int | None = None  # by default the artifact's
    only: Sequence[str] = ()  # only cells with all of these in their key
    device: str = "cpu"
    data_folder: Path | None = None

    @property
    def folder(self) -> Path:
        return self.out / self.artifact.name

    @property
    def seeds(self) -> range:
        """One per repeat."""
        usual = self.scale.pick(self.artifact.repeats, self.artifact.quick_repeats)
        return range(usual if self.repeats is None else self.repeats)

    def cells(self) -> list[Cell]:
        """The requested cells.

        Raises:
            Misuse: If no cell matches.
        """
        cells = self.artifact.cells(self.scale)
        found = [cell for cell in cells if set(self.only) <= set(cell.key)]
        if not found:
            labels = [
                f"{axis}: {', '.join(dict.fromkeys(column))}"
                for axis, column in zip(
                    self.artifact.axes, zip(*(cell.key for cell in cells), strict=True), strict=True
                )
            ]
            raise Misuse(
                f"{self.artifact.name} has no cell with {', '.join(self.only)}.",
                f"Choose from {'; '.join(labels)}.",
            )
        return found

    def check_new(self) -> None:
        """Raise Misuse if the folder already has results."""
        path = self.folder / "result.json"
        if path.exists():
            raise Misuse(
                f"{path} already exists.",
                "Continue it with --resume (its measurements stay), choose another --out, "
                "or remove it first.",
            )

    def check_scale(self) -> None:
        """Raise Misuse if the folder has the results of another size."""
        stored = stored_scale(self.folder)
        if stored is not None and stored != self.scale:
            raise Misuse(
                f"{self.folder / 'result.json'} is {stored.pick('full', 'a quick version')}, "
                "but the other version is requested.",
                "Choose another --out.",
            )

    def command(self) -> list[str]:
        """The command that continues this reproduction."""
        words = ["tacit", "reproduce", self.artifact.name, "--out", str(self.out), "--resume"]
        words += ["--quick"] if self.scale.quick else []
        words += [] if self.repeats is None else ["--repeats", str(self.repeats)]
        words += [part for label in self.only for part in ("--only", label)]
        words += [] if self.device == "cpu" else ["--device", self.device]
        return words if self.data_folder is None else [*words, "--data", str(self.data_folder)]


class Measurer:
    """Measures cells of an artifact one by one, and stores each measurement at once.

    `command` continues after an interruption.
    """

    def __init__(
        self,
        request: Reproduction,
        command: Sequence[str],
        listener: ReproductionListener,
        datasets: DatasetCache,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._request, self._command, self._listener = request, command, listener
        self._datasets, self._machine = datasets, machine_description(request.device)
        request.folder.mkdir(parents=True, exist_ok=True)
        self.file = ResultsFile.read(request.folder, request.artifact, request.scale)
        for key in self.file.outdated:
            listener.on_warning(
                f"{' · '.join(key)} is measured in another way now: its stored numbers are dropped."
            )

    def is_measured(self, cell: Cell, seed: int) -> bool:
        """Whether there are numbers, and they need not be measured again."""
        return seed in self.file.result[cell.key].current

    def measure(self, cell: Cell, seed: int) -> bool:
        """Whether this process measured the cell: another one may do it, or have done it."""
        request, listener = self._request, self._listener
        if self.is_measured(cell, seed):
            return False
        with _claimed(cell, seed, request.folder) as scratch:
            if scratch is None:
                return False
            self.file.refresh()
            if self.is_measured(cell, seed):
                return False
            context = MeasureContext(
                request.device,
                request.data_folder,
                scratch,
                listener.on_run(" · ".join(cell.key), seed),
                listener.on_progress,
                self._datasets,
            )
            begun = self._clock()
            values = self._interruptible(cell, seed, context)
            took = rounded(self._clock() - begun)
            self.file.add(cell.key, seed, values | {"took": took}, self._machine)
            shutil.rmtree(scratch, ignore_errors=True)
        return True

    def _interruptible(self, cell: Cell, seed: int, context: MeasureContext) -> Values:
        try:
            return cell.measure(seed, context)
        except (Interrupted, KeyboardInterrupt):
            raise Interrupted(
                f"Stopped in {self._request.artifact.name}, {' · '.join(cell.key)}, seed {seed}; "
                f"finished measurements are kept. "
                f"Continue with\n  {shlex.join(self._command)}"
            ) from None


def run_artifact(
    request: Reproduction, *, resume: bool = False, listener: ReproductionListener | None = None
) -> ArtifactResult:
    """Measure what is missing; result.json is complete after each measurement."""
    listener, cells = listener or ReproductionListener(), request.cells()
    if not resume:
        request.check_new()
    request.check_scale()
    measurer = Measurer(request, request.command(), listener, DatasetCache())

    def missing() -> list[tuple[Cell, int]]:
        return [
            (cell, seed)
            for seed in request.seeds
            for cell in cells
            if not measurer.is_measured(cell, seed)
        ]

    todo, begun = missing(), time.monotonic()
    for cell, seed in todo:
        measurer.measure(cell, seed)
        gpu.release_memory()
        left = len(missing())
        done = len(todo) - left
        seconds_left = (time.monotonic() - begun) / max(1, done) * left
        listener.on_measured(done, len(todo), seconds_left)
    measurer.file.write()
    return measurer.file.result


@contextmanager
def _claimed(cell: Cell, seed: int, folder: Path) -> Iterator[Path | None]:
    """The scratch folder of a measurement; None if another process is measuring it."""
    description = json.dumps([cell.measure.describe(), seed], sort_keys=True, default=str)
    scratch = folder / "unfinished" / hashlib.sha256(description.encode()).hexdigest()[:16]
    claim = scratch.with_suffix(".claim")
    with ExitStack() as stack:
        # Under the lock, no other process removes the claim or its folder before we hold it.
        with file_lock(folder / LOCK):
            scratch.parent.mkdir(parents=True, exist_ok=True)
            claimed = stack.enter_context(file_lock(claim, wait=False))
        yield scratch if claimed else None
        if claimed:
            # rmdir fails while another claim is in the folder.
            with file_lock(folder / LOCK), suppress(OSError):
                claim.unlink(missing_ok=True)
                scratch.parent.rmdir()


def machine_description(device: str) -> str:
    """Processor or GPU, cores and torch's version, separated by commas."""
    if torch.device(device).type == "cuda":
        processor = torch.cuda.get_device_name(device)
    else:
        processor = processor_name(Path("/proc/cpuinfo"))
    return f"{processor}, {available_cores()} cores, torch {torch.__version__}"
