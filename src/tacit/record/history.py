"""Metrics of a run over its rounds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.core.errors import unknown
from tacit.tasks.evaluation import Evaluation, ModelScores

if TYPE_CHECKING:
    from tacit.engines.group import Hosted

OBSERVED = 32  # clients whose models are judged where there are more


@dataclass(frozen=True)
class Spread:
    """A metric over the observed clients, and of the average model."""

    mean: float
    min: float
    max: float
    average_model: float


@dataclass(frozen=True)
class Record:
    """One line of the history. `consensus_distance` is the root mean square of ‖θᵢ − θ̄‖ over all clients.

    `msd` is the mean-square deviation (1/N) Σᵢ ‖θᵢ − θ*‖² over all clients, where the optimum θ* is known. Where it
    moves, it is the one at the time of the last gradient's batch.
    """

    round: int
    step: int
    accuracy: Spread | None  # percent
    loss: Spread
    consensus_distance: float
    bytes_sent: int  # by all clients together, since the start
    wall_seconds: float
    msd: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, None where one is not finite (JSON has no NaN)."""
        plain: dict[str, Any] = _finite(asdict(self))
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        """The inverse of `as_dict`."""
        spreads = {key: _spread(values[key]) for key in ("accuracy", "loss")}
        return cls(
            **{**values, **spreads, "consensus_distance": _number(values["consensus_distance"])}
        )


_MISSING = object()
COLUMNS = [
    *(
        f"{metric}.{field}"
        for metric in ("accuracy", "loss")
        for field in Spread.__dataclass_fields__
    ),
    *(name for name in Record.__dataclass_fields__ if name not in ("accuracy", "loss")),
]


class History(Sequence[Record]):
    """The records of a run in order."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records = list(records)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        if not self.records:
            return "History(empty)"
        last = self.records[-1]
        accuracy = f", accuracy {last.accuracy.mean:.2f} %" if last.accuracy else ""
        deviation = f", MSD {decibels(last.msd):.1f} dB" if last.msd is not None else ""
        return f"History({len(self)} records to step {last.step}: loss {last.loss.mean:.4g}{accuracy}{deviation})"

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __getitem__(self, index: Any) -> Any:
        """The record at a place, or a list of them for a slice."""
        return self.records[index]

    def column(self, path: str) -> list[float]:
        """One metric over time, e.g. `column("accuracy.mean")`; NaN where it was not measured."""
        values = []
        for record in self.records:
            value: Any = record
            for name in path.split("."):
                value = getattr(value, name, _MISSING) if value is not None else None
            if value is _MISSING or isinstance(value, Spread):
                raise unknown(f"There is no column {path!r}.", path, COLUMNS)
            values.append(math.nan if value is None else float(value))
        return values

    def to_jsonl(self) -> str:
        """One JSON object per line."""
        return "".join(json.dumps(record.as_dict()) + "\n" for record in self.records)

    @classmethod
    def from_jsonl(cls, text: str) -> History:
        """The inverse of `to_jsonl`."""
        return cls(Record.from_dict(json.loads(line)) for line in text.splitlines() if line.strip())


def observe(
    theta: Tensor,
    evaluation: Evaluation,
    *,
    hosted: Hosted | None = None,
    optimum: Tensor | None = None,
    round: int,
    step: int,
    bytes_sent: int,
    wall_seconds: float,
) -> Record:
    """Judge the models of all clients, also by their distance from the optimum [P] where one is known.

    theta [n, P] are those `hosted` here, all if not said. Each process judges its own; the first also the average.
    """
    count = len(theta) if hosted is None else hosted.clients
    ids = range(count) if hosted is None else hosted.ids.tolist()
    average = mean_row(theta, hosted)
    scores = _total(_scores(theta, average, evaluation, ids, observed_clients(count)), hosted)
    loss, accuracy, classified = scores
    return Record(
        round, step, _summary(accuracy) if bool(classified.all()) else None, _summary(loss),
        consensus_distance(theta, average, hosted), bytes_sent, wall_seconds,
        None if optimum is None else mean_square_deviation(theta, optimum, hosted),
    )  # fmt: skip


def _scores(
    theta: Tensor,
    average: Tensor,
    evaluation: Evaluation,
    ids: Sequence[int],
    observed: Sequence[int],
) -> Tensor:
    """Loss, accuracy and whether there is one, of each observed client and the average model; zero where not ours."""
    table = torch.zeros(3, len(observed) + 1, dtype=torch.float64)

    def enter(places: list[int], scores: ModelScores) -> None:
        table[0, places] = scores.loss.double().cpu()
        if scores.accuracy is not None:
            table[1, places], table[2, places] = scores.accuracy.double().cpu(), 1.0

    row_of = {client: row for row, client in enumerate(ids)}
    ours = [place for place, client in enumerate(observed) if client in row_of]
    if ours:
        clients = [observed[place] for place in ours]
        enter(ours, evaluation.models(theta[[row_of[client] for client in clients]], clients))
    if 0 in row_of:  # one process has client 0
        enter([len(observed)], evaluation.average(average))
    return table


def observed_clients(count: int) -> list[int]:
    """All clients, or evenly spaced ones where there are many."""
    if count <= OBSERVED:
        return list(range(count))
    return [k * count // OBSERVED for k in range(OBSERVED)]


def mean_row(theta: Tensor, hosted: Hosted | None = None) -> Tensor:
    """The average model [P] of all clients, summed in double precision."""
    count = len(theta) if hosted is None else hosted.clients
    return (_total(theta.sum(0, dtype=torch.float64), hosted) / count).to(theta.dtype)


def consensus_distance(theta: Tensor, average: Tensor, hosted: Hosted | None = None) -> float:
    """(1/N Σᵢ ‖θᵢ − θ̄‖²)^½."""
    return math.sqrt(mean_square_deviation(theta, average, hosted))


def mean_square_deviation(theta: Tensor, point: Tensor, hosted: Hosted | None = None) -> float:
    """1/N Σᵢ ‖θᵢ − point‖², some rows at a time; NaN where that is not finite."""
    step = max(1, (1 << 24) // theta.shape[1])
    point = point.to(theta)
    here = 0.0
    for rows in torch.split(theta, step):
        here += float((rows - point).square().sum(dtype=torch.float64))
    total = float(_total(torch.tensor(here, dtype=torch.float64), hosted))
    count = len(theta) if hosted is None else hosted.clients
    return total / count if math.isfinite(total) else math.nan


def _total(values: Tensor, hosted: Hosted | None) -> Tensor:
    """The sum over the processes that host clients."""
    return values if hosted is None else hosted.group.total(values)


def decibels(value: float | None) -> float:
    """10 log₁₀ of a power; −∞ of zero, NaN where there is none."""
    if value is None or not value >= 0:
        return math.nan
    return 10 * math.log10(value) if value > 0 else -math.inf


def _summary(scores: Tensor) -> Spread:
    """The spread of scores of which the last is the average model's."""
    each = scores[:-1]
    return Spread(float(each.mean()), float(each.min()), float(each.max()), float(scores[-1]))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _spread(values: dict[str, float | None] | None) -> Spread | None:
    return (
        None if values is None else Spread(**{key: _number(value) for key, value in values.items()})
    )
