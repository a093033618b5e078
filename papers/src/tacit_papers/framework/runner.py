"""Measuring the cells of an artifact; what is measured is kept, so that a table can go on.

Several processes may carry out one artifact in one folder: each measurement is claimed by a lock.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tacit.bench.machine import Machine
from tacit.core.errors import Interrupted, Misuse
from tacit.core.storage import file_lock
from tacit.experiment.run import ProgressListener
from tacit_papers.framework.artifact import Artifact, Cell, MeasureContext, Scale, Values
from tacit_papers.framework.dataset_cache import DatasetCache
from tacit_papers.framework.outcome import ArtifactResult
from tacit_papers.framework.results_file import LOCK, ResultsFile


@dataclass(frozen=True, eq=False)
class ReproductionListener:
    """What wants to know how an artifact goes on."""

    watch: Callable[[str, int], ProgressListener] = lambda label, seed: ProgressListener()
    said: Callable[[str, int, int], None] = lambda what, done, of: None
    measured: Callable[[int, int, float], None] = lambda done, of, seconds_left: None
    noted: Callable[[str], None] = lambda words: None


@dataclass(frozen=True)
class Wanted:
    """What is asked for."""

    artifact: Artifact
    scale: Scale
    repeats: int | None = None
    only: Sequence[str] = ()  # cells whose key has all of these
    device: str = "cpu"
    data_folder: Path | None = None

    def folder(self, out: Path) -> Path:
        """Where its results belong below the folder of all."""
        return out / self.artifact.name

    @property
    def seeds(self) -> range:
        """One for each repeat."""
        return range(self.artifact.repeats_at(self.scale) if self.repeats is None else self.repeats)

    def cells(self) -> list[Cell]:
        """Those that are asked for; refused if there are none."""
        every = self.artifact.cells(self.scale)
        found = [cell for cell in every if set(self.only) <= set(cell.key)]
        if not found:
            known = [
                list(dict.fromkeys(cell.key[axis] for cell in every))
                for axis in range(len(self.artifact.axes))
            ]
            words = "; ".join(
                f"{axis}: {', '.join(places)}"
                for axis, places in zip(self.artifact.axes, known, strict=True)
            )
            raise Misuse(
                f"{self.artifact.name} has no cell with {', '.join(self.only)}.",
                f"Choose of {words}.",
            )
        return found


@dataclass
class Clock:
    """How long the rest takes, from how long measurements took so far, whoever made them."""

    missing: int
    begun: float = field(default_factory=time.monotonic)

    def left(self, missing: int) -> float:
        """The seconds until nothing is missing."""
        return (time.monotonic() - self.begun) / max(1, self.missing - missing) * missing


def run_artifact(
    wanted: Wanted, out: Path, *, resume: bool = False, teller: ReproductionListener | None = None
) -> ArtifactResult:
    """Measure what is asked for and not there yet; result.json in `out` has it all after each measurement."""
    teller, artifact, folder = teller or ReproductionListener(), wanted.artifact, wanted.folder(out)
    cells, shelf, machine = wanted.cells(), DatasetCache(), _machine(wanted.device)
    if not resume:
        refuse_to_overwrite(wanted, out)
    ledger = ResultsFile.empty(folder, artifact, wanted.scale)
    for key in ledger.refresh():
        teller.noted(f"{' · '.join(key)} is measured in another way now: its numbers are dropped.")
    outcome = ledger.outcome

    def missing() -> list[tuple[Cell, int]]:
        return [
            (one, seed)
            for seed in wanted.seeds
            for one in cells
            if seed not in outcome[one.key].values
        ]

    to_do = missing()
    clock = Clock(len(to_do))
    for cell, seed in to_do:
        with _claimed(cell, seed, folder) as scratch:
            if scratch is None:
                continue
            ledger.refresh()
            if seed in outcome[cell.key].values:  # by another process meanwhile
                continue
            place = MeasureContext(
                wanted.device,
                wanted.data_folder,
                scratch,
                teller.watch(" · ".join(cell.key), seed),
                teller.said,
                shelf,
            )
            ledger.add(cell.key, seed, _measured(cell, seed, wanted, out, place), machine)
            shutil.rmtree(scratch, ignore_errors=True)
        rest = len(missing())
        teller.measured(clock.missing - rest, clock.missing, clock.left(rest))
    ledger.write()
    return outcome


def refuse_to_overwrite(wanted: Wanted, out: Path) -> None:
    """Refuse a folder with results that nobody asked to continue."""
    path = wanted.folder(out) / "result.json"
    if path.exists():
        raise Misuse(
            f"{path} is there already.",
            "Continue it with --resume (what is measured stays), choose another --out, or remove it first.",
        )


def command(wanted: Wanted, out: Path) -> list[str]:
    """What to type to go on."""
    words = ["tacit", "reproduce", wanted.artifact.name, "--out", str(out), "--resume"]
    words += ["--quick"] if wanted.scale.quick else []
    words += [] if wanted.repeats is None else ["--repeats", str(wanted.repeats)]
    words += [part for name in wanted.only for part in ("--only", name)]
    words += [] if wanted.device == "cpu" else ["--device", wanted.device]
    return words if wanted.data_folder is None else [*words, "--data", str(wanted.data_folder)]


@contextmanager
def _claimed(cell: Cell, seed: int, folder: Path) -> Iterator[Path | None]:
    """A folder for what is needed to go on after an interruption; None if another process measures this now."""
    mark = json.dumps([cell.measure.describe(), seed], sort_keys=True, default=str)
    scratch = folder / "unfinished" / hashlib.sha256(mark.encode()).hexdigest()[:16]
    claim = scratch.with_suffix(".claim")
    with ExitStack() as held:
        with file_lock(
            folder / LOCK
        ):  # so that neither the claim nor its folder is removed before we have it
            scratch.parent.mkdir(parents=True, exist_ok=True)
            mine = held.enter_context(file_lock(claim, wait=False))
        yield scratch if mine else None
        if mine:
            with file_lock(folder / LOCK), suppress(OSError):
                claim.unlink(missing_ok=True)
                scratch.parent.rmdir()  # not while something is in it


def _measured(cell: Cell, seed: int, wanted: Wanted, out: Path, place: MeasureContext) -> Values:
    try:
        return cell.measure(seed, place)
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted(
            f"Stopped in {wanted.artifact.name}, {' · '.join(cell.key)}, seed {seed}; what was measured is kept. "
            f"Continue with\n  {shlex.join(command(wanted, out))}"
        ) from None


def _machine(device: str) -> str:
    here = Machine.here(device)
    return f"{here.gpu or here.processor}, {here.cores} cores, torch {here.torch_version}"
