"""A finished run as its folder tells it: what the report reads, checked on the way in."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from tacit.core.errors import Misuse
from tacit.record.history import History, Record


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True)


class FinalSpread(_Stored):
    """A metric of the last round over the clients, and of the average model; None where it is not finite."""

    mean: float | None = None
    min: float | None = None
    max: float | None = None
    average_model: float | None = None


class Summary(_Stored):
    """The outcome of a run: `summary.json`."""

    algorithm: str
    steps: int
    rounds: int
    clients: int
    parameters: int
    accuracy: FinalSpread | None = None  # percent
    loss: FinalSpread | None = None
    consensus_distance: float | None = None
    bytes_sent: float | None = None
    wall_seconds: float | None = None
    seed: int | str | None = None
    msd: float | None = None  # mean-square deviation from the optimum, where that is known
    diverged: str | None = None
    notes: list[str] = Field(default_factory=list)


class StoredGraph(_Stored):
    """Who could send to whom: `graph.json`. An undirected graph may list an edge once or both ways."""

    description: str
    clients: PositiveInt
    directed: bool
    edges: list[tuple[NonNegativeInt, NonNegativeInt]] | None = None  # None: too many to draw
    positions: list[tuple[float, float]] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if any(end >= self.clients for edge in self.edges or () for end in edge):
            raise ValueError("an edge names a client that does not exist")
        if self.positions is not None and len(self.positions) != self.clients:
            raise ValueError("positions are not one per client")
        return self


class StoredPartition(_Stored):
    """Who held how many samples of which class: `partition.json`; counts has a row per client."""

    description: str
    classes: list[str]
    counts: list[list[NonNegativeInt]]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if any(len(row) != len(self.classes) for row in self.counts):
            raise ValueError("a row of counts has not one number per class")
        return self


@dataclass(frozen=True)
class FinishedRun:
    """Everything a report shows of one run."""

    name: str  # of its folder
    config: str  # the text
    settings: dict[str, Any]  # the same, flat: {"algorithm.lr": 0.1, …}
    summary: Summary
    history: History
    graph: StoredGraph
    partition: StoredPartition | None


def read_run(folder: Path) -> FinishedRun:
    """Read a run folder; Misuse names the file that is missing or damaged."""
    if not (folder / "history.jsonl").is_file():
        raise Misuse(
            f"{folder} is not a run folder: it has no history.jsonl.", "Run `tacit run` first."
        )
    config = _text(folder / "config.toml")
    try:
        values = tomllib.loads(config)
    except tomllib.TOMLDecodeError as problem:
        raise _damaged(folder / "config.toml", problem) from None
    has_partition = (folder / "partition.json").exists()
    return FinishedRun(
        name=folder.resolve().name,
        config=config,
        settings=_flat(values),
        summary=_stored(Summary, folder / "summary.json"),
        history=_history(folder / "history.jsonl"),
        graph=_stored(StoredGraph, folder / "graph.json"),
        partition=_stored(StoredPartition, folder / "partition.json") if has_partition else None,
    )


Kind = TypeVar("Kind", bound=_Stored)


def _stored(kind: type[Kind], path: Path) -> Kind:
    try:
        return kind.model_validate_json(_text(path))
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _damaged(path, f"{where}: {first['msg']}" if where else first["msg"]) from None


def _history(path: Path) -> History:
    records = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = Record.from_dict(json.loads(line))
            float(record.loss.mean), int(record.round), int(record.bytes_sent)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise _damaged(path, f"line {number} is not a record ({problem})") from None
        records.append(record)
    return History(records)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Misuse(
            f"{path} is missing.",
            "If the run was interrupted, finish it; otherwise rerun it with `tacit run`.",
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise _damaged(path, problem) from None


def _damaged(path: Path, problem: object) -> Misuse:
    return Misuse(
        f"{path} cannot be read: {problem}.", "Rerun it with `tacit run` into a new folder."
    )


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = isinstance(value, dict) and bool(value)
        flat |= _flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return flat
