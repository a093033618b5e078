"""The files of a finished run: their schema, and reading them with checks."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import (
    BaseModel,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from tacit.core.errors import Misuse
from tacit.core.storage import read_json
from tacit.core.toml import flatten
from tacit.data import Dataset, Partition
from tacit.graph import Graph, World
from tacit.record.history import SCALARS, STANDARD, History, Record
from tacit.record.run_files import graph_facts
from tacit.report import stored_audit
from tacit.report.spending import Spending
from tacit.report.stored_audit import StoredAudit

PROVENANCE = "provenance.json"
# What `Record.from_dict` raises.
NO_RECORD = (ValueError, KeyError, TypeError, AttributeError)


class StoredModel(BaseModel):
    """What a file of a run holds."""

    model_config = {"frozen": True}


class StoredConfusion(StoredModel):
    """Predictions by class (rows) and prediction (columns), summed over so many models."""

    classes: list[str]
    counts: list[list[NonNegativeInt]]
    models: PositiveInt

    @model_validator(mode="after")
    def _check(self) -> Self:
        if {len(self.counts), *map(len, self.counts)} != {len(self.classes)}:
            raise ValueError("the confusion matrix does not have one row and column per class")
        return self


class Summary(StoredModel, extra="allow"):
    """The content of `summary.json`; further keys are those of the last record."""

    algorithm: str
    steps: int
    rounds: int
    clients: int
    names: list[str] = []  # of the clients, if they have some
    parameters: int | None = None
    seed: int | str | None = None
    confusion: StoredConfusion | None = None
    alerts: list[str] = []
    privacy: dict[str, Any] | None = None
    diverged: str | None = None
    notes: list[str] = []

    @property
    def last(self) -> Record:
        """The numbers at the end; raises what `Record.from_dict` raises."""
        known = dict.fromkeys((*STANDARD, *SCALARS)) | (self.model_extra or {})
        return Record.from_dict(known | {"round": self.rounds, "step": self.steps})

    @property
    def spending(self) -> Spending | None:
        """What is spent of the promise; None if there is none. Raises what `Spending.of` raises."""
        if self.privacy is None:
            return None
        return Spending.of(self.privacy, self.steps, self.clients)


class StoredGraph(StoredModel):
    """The content of `graph.json`; without edges if they are too many to draw.

    An undirected graph may list an edge once or in both directions.
    """

    description: str
    clients: PositiveInt
    directed: bool
    edges: list[tuple[NonNegativeInt, NonNegativeInt]] | None = None
    positions: list[tuple[float, float]] | None = None
    names: list[str] = []  # of the clients, if they have some

    @classmethod
    def of(cls, graph: Graph | World, names: Sequence[str] = ()) -> StoredGraph:
        world = World.of(graph)
        return cls(**graph_facts(world.graph, names) | {"description": world.describe()})

    def name_of(self, client: int) -> str:
        """The name of a client, or its number."""
        return self.names[client] if self.names else str(client)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(end >= self.clients for edge in self.edges or () for end in edge):
            raise ValueError("an edge names a client that does not exist")
        if self.positions is not None and len(self.positions) != self.clients:
            raise ValueError("there is not one position per client")
        if self.names and len(self.names) != self.clients:
            raise ValueError("there is not one name per client")
        return self


class StoredPartition(StoredModel):
    """The content of `partition.json`: samples per client (rows) and class (columns)."""

    description: str
    classes: list[str]
    counts: list[list[NonNegativeInt]]
    # Of the clients, if they have some. The file does not have them: graph.json does.
    names: list[str] = Field(default=[], exclude=True)

    @classmethod
    def of(cls, dataset: Dataset, partition: Partition) -> StoredPartition:
        description = f"{dataset.note}: {partition.description}"
        if dataset.target is not None:
            counts = [[size] for size in partition.sizes.tolist()]
            return cls(description=description, classes=["all"], counts=counts)
        return cls(
            description=description,
            classes=list(dataset.class_names),
            counts=partition.counts(dataset.train.y.numpy(), dataset.classes).tolist(),
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(len(row) != len(self.classes) for row in self.counts):
            raise ValueError("a row of counts does not have one number per class")
        return self

    @property
    def client_names(self) -> list[str]:
        """The names of the clients, or their numbers."""
        return self.names or [str(client) for client in range(len(self.counts))]


@dataclass(frozen=True)
class FinishedRun:
    """What a report shows of one run.

    Attributes:
        name: The name of its folder.
        path: The folder as it was given; only its name if that was an absolute path.
        config: The text of its config.toml.
        settings: The same as a flat dictionary, such as {"algorithm.lr": 0.1}.
        last: The numbers at the end.
        spending: What it has spent of its promise; None if it promises nothing.
        is_finished: Whether it has ended; otherwise its summary is that of the last record.
        audit: Its audit, if it has one.
        made: When, by which version and command, and on which machine it was started.
    """

    name: str
    path: str
    config: str
    settings: dict[str, Any]
    summary: Summary
    last: Record
    history: History
    graph: StoredGraph
    partition: StoredPartition | None
    spending: Spending | None = None
    is_finished: bool = True
    audit: StoredAudit | None = None
    made: dict[str, str] = field(default_factory=dict)

    @property
    def clients(self) -> int:
        return self.graph.clients


def read_run(folder: Path) -> FinishedRun:
    """Read a run folder; Misuse names the file that is missing or damaged."""
    if folder.is_file():
        raise Misuse(f"{folder} is a file.", f"Give the folder: {folder.parent}.")
    if not (folder / "history.jsonl").is_file():
        raise Misuse(
            f"{folder} is not a run folder: it has no history.jsonl.", "Run `tacit run` first."
        )
    config = _read_text(folder / "config.toml")
    try:
        settings = flatten(tomllib.loads(config))
    except tomllib.TOMLDecodeError as problem:
        raise _damaged(folder / "config.toml", problem) from None
    is_finished = (folder / "summary.json").exists()
    history = read_history(folder / "history.jsonl", is_finished=is_finished)
    graph = read_stored(StoredGraph, folder / "graph.json")
    if is_finished:
        summary = read_stored(Summary, folder / "summary.json")
        if len(summary.names) == graph.clients:
            # Older runs have names here only.
            graph = graph.model_copy(update={"names": summary.names})
    else:
        summary = _summary_so_far(settings, history, graph)
    try:
        last, spending = summary.last, summary.spending
    except NO_RECORD as problem:
        raise _damaged(folder / "summary.json", problem) from None
    except Misuse as refused:
        raise _damaged(folder / "summary.json", refused.problem.rstrip(".")) from None
    return FinishedRun(
        name=folder.resolve().name,
        path=folder.resolve().name if folder.is_absolute() else folder.as_posix(),
        config=config,
        settings=settings,
        summary=summary,
        last=last,
        history=history,
        graph=graph,
        partition=_read_partition(folder / "partition.json", graph.names),
        spending=spending,
        is_finished=is_finished,
        audit=_read_audit(folder),
        made=read_json(folder / PROVENANCE) if (folder / PROVENANCE).exists() else {},
    )


def _read_partition(path: Path, names: list[str]) -> StoredPartition | None:
    if not path.exists():
        return None
    partition = read_stored(StoredPartition, path)
    named = len(names) == len(partition.counts)
    return partition.model_copy(update={"names": names}) if named else partition


def _summary_so_far(settings: dict[str, Any], history: History, graph: StoredGraph) -> Summary:
    """The summary of a run that has not ended, from its last record."""
    known = {
        "algorithm": str(settings.get("algorithm.name", "?")),
        "steps": history[-1].step if history else 0,
        "rounds": history[-1].round if history else 0,
        "clients": graph.clients,
        "names": graph.names,
        "seed": settings.get("run.seed"),
    }
    return Summary.model_validate((history[-1].as_dict() if history else {}) | known)


def _read_audit(folder: Path) -> StoredAudit | None:
    """The audit of this very configuration, if the folder has one."""
    path = folder / stored_audit.FILE
    if not path.exists():
        return None
    audit = read_stored(StoredAudit, path)
    return audit if audit.config == stored_audit.config_digest(folder) else None


M = TypeVar("M", bound=BaseModel)


def read_stored(model: type[M], path: Path) -> M:
    try:
        return model.model_validate_json(_read_text(path))
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise _damaged(path, f"{key}: {first['msg']}" if key else first["msg"]) from None


def read_history(path: Path, *, is_finished: bool = False) -> History:
    """The records of a run; unless it has ended, without a last line that is half written."""
    text, records = _read_text(path), []
    if not is_finished:
        text, _, _ = text.rpartition("\n")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            records.append(Record.from_dict(json.loads(line)))
        except NO_RECORD as problem:
            raise _damaged(path, f"line {number} is not a record ({problem})") from None
    return History(records)


def _read_text(path: Path) -> str:
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
