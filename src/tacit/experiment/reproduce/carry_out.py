"""Measuring the cells of an artifact one after the other; what is measured is kept, so that a table can go on."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tacit
from tacit.bench.machine import Machine
from tacit.errors import Interrupted, Misuse
from tacit.experiment.folder import read_json, write_json
from tacit.experiment.reproduce.artifact import Artifact, Cell, Place, Scale, Values
from tacit.experiment.reproduce.outcome import Outcome
from tacit.experiment.run import Watcher


@dataclass(frozen=True, eq=False)
class Teller:
    """What wants to know how an artifact goes on."""

    watch: Callable[[str, int], Watcher] = lambda label, seed: Watcher()
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
                f"{axis}: {', '.join(places)}" for axis, places in zip(self.artifact.axes, known, strict=True)
            )
            raise Misuse(
                f"{self.artifact.name} has no cell with {', '.join(self.only)}.", f"Choose of {words}."
            )
        return found


@dataclass
class Clock:
    """How long the rest takes, from how long cells took so far."""

    to_do: int
    done: int = 0
    begun: float = field(default_factory=time.monotonic)

    def tick(self) -> float:
        """One more is done; the seconds left."""
        self.done += 1
        return (time.monotonic() - self.begun) / self.done * (self.to_do - self.done)


def carry_out(wanted: Wanted, out: Path, *, resume: bool = False, teller: Teller | None = None) -> Outcome:
    """Measure what is asked for and not there yet; result.json in `out` has it all after each measurement."""
    teller, artifact = teller or Teller(), wanted.artifact
    folder = out / artifact.name
    cells = wanted.cells()
    outcome = Outcome.empty(artifact, wanted.scale, artifact.cells(wanted.scale))
    before = _earlier(wanted, folder, resume)
    machines = _take_over(outcome, before, teller) if before is not None else []
    machine = _machine(wanted.device)
    machines = [*machines, machine] if machine not in machines else machines
    missing = [
        (cell, seed) for seed in wanted.seeds for cell in cells if seed not in outcome[cell.key].values
    ]
    clock = Clock(len(missing))
    for cell, seed in missing:
        values = _measured(cell, seed, wanted, folder, teller)
        outcome[cell.key].values[seed] = values | {"machine": machines.index(machine)}
        write_json(folder / "result.json", as_dict(outcome, machines))
        teller.measured(clock.done + 1, clock.to_do, clock.tick())
    if not missing:
        write_json(folder / "result.json", as_dict(outcome, machines))
    return outcome


def as_dict(outcome: Outcome, machines: list[str]) -> dict[str, Any]:
    """Everything about an artifact as plain values."""
    artifact = outcome.artifact
    return {
        "artifact": artifact.name,
        "title": artifact.title,
        "protocol": artifact.protocol,
        "quick": outcome.scale.quick,
        "quickly": artifact.quickly if outcome.scale.quick else None,
        "metric": artifact.metric,
        "unit": artifact.unit,
        "version": tacit.__version__,
        "machines": machines,
        "claims": [
            {"claim": claim.text, "paper": claim.paper, **vars(claim.verdict(outcome))}
            for claim in artifact.claims
        ],
        "cells": outcome.cells_as_dicts(),
    }


def _measured(cell: Cell, seed: int, wanted: Wanted, folder: Path, teller: Teller) -> Values:
    label = " · ".join(cell.key)
    mark = json.dumps([cell.measure.describe(), seed], sort_keys=True, default=str)
    scratch = folder / "unfinished" / hashlib.sha256(mark.encode()).hexdigest()[:16]
    scratch.parent.mkdir(parents=True, exist_ok=True)
    place = Place(wanted.device, wanted.data_folder, scratch, teller.watch(label, seed), teller.said)
    try:
        values = cell.measure(seed, place)
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted(
            f"Stopped in {wanted.artifact.name}, {label}, seed {seed}; what was measured is kept. Continue with\n"
            f"  {_command(wanted, folder)}"
        ) from None
    shutil.rmtree(scratch, ignore_errors=True)
    if not any(scratch.parent.iterdir()):
        scratch.parent.rmdir()
    return values


def _earlier(wanted: Wanted, folder: Path, resume: bool) -> dict[str, Any] | None:
    """What an earlier run left; refused if it is not to be continued, or is of the other size."""
    path = folder / "result.json"
    if not path.exists():
        return None
    if not resume:
        raise Misuse(
            f"{path} is there already.",
            "Continue it with --resume (what is measured stays), choose another --out, or remove it first.",
        )
    told = read_json(path)
    if told.get("quick") != wanted.scale.quick:
        size = "a quick version" if told.get("quick") else "full"
        raise Misuse(f"{path} is {size}, and the other was asked for.", "Choose another --out.")
    return told


def _take_over(outcome: Outcome, told: dict[str, Any], teller: Teller) -> list[str]:
    """Numbers of cells that are measured now as they were then; the machines they come from."""
    then = Outcome.from_dict(outcome.artifact, told)
    for cell in outcome.cells:
        earlier = [one for one in then.cells if one.key == cell.key]
        if not earlier:
            continue
        if earlier[0].measure == json.loads(json.dumps(cell.measure)):
            cell.values.update(earlier[0].values)
        else:
            teller.noted(f"{' · '.join(cell.key)} is measured in another way now: its numbers are dropped.")
    machines: list[str] = told["machines"]
    return machines


def _machine(device: str) -> str:
    here = Machine.here(device)
    return f"{here.gpu or here.processor}, {here.cores} cores, torch {here.torch_version}"


def _command(wanted: Wanted, folder: Path) -> str:
    words = ["tacit", "reproduce", wanted.artifact.name, "--out", str(folder.parent.parent), "--resume"]
    words += ["--quick"] if wanted.scale.quick else []
    words += [] if wanted.repeats is None else ["--repeats", str(wanted.repeats)]
    words += [part for name in wanted.only for part in ("--only", name)]
    words += [] if wanted.device == "cpu" else ["--device", wanted.device]
    words += [] if wanted.data_folder is None else ["--data", str(wanted.data_folder)]
    return shlex.join(words)
