"""Metrics of a run over time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from tacit.core.errors import Misuse, unknown_name
from tacit.core.notebooks import html_table

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Spread:
    """A metric over the evaluated clients, and of the average model."""

    mean: float
    min: float
    max: float
    average_model: float


@dataclass(frozen=True)
class Record:
    """One line of the history.

    `accuracy` is in percent. `consensus_distance` is the root mean square of ‖θᵢ − θ̄‖ over all
    clients. `bytes_sent` counts all clients since the start. `msd` is the mean-square deviation
    (1/N) Σᵢ ‖θᵢ − θ*‖² over all clients, if the optimum θ* is known. If θ* moves, it is the one at
    the last gradient's batch.
    """

    round: int
    step: int
    accuracy: Spread | None
    loss: Spread
    consensus_distance: float
    bytes_sent: int
    wall_seconds: float
    msd: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers; None replaces what is not finite, because JSON has no NaN."""
        return cast(dict[str, Any], _finite(asdict(self)))

    def scalars(self) -> dict[str, float]:
        """Every number that was measured and is finite, by its path, such as "accuracy.mean"."""
        return dict(_numbers("", self.as_dict()))

    def describe(self) -> str:
        """The most telling number in words: accuracy, deviation from the optimum, or loss."""
        if self.accuracy is not None:
            return f"accuracy {self.accuracy.mean:.2f} %"
        if self.msd is not None:
            return f"MSD {decibels(self.msd):.1f} dB"
        return f"loss {self.loss.mean:.4f}"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        spreads = {key: _spread(values[key]) for key in ("accuracy", "loss")}
        distance = _number(values["consensus_distance"])
        return cls(**{**values, **spreads, "consensus_distance": distance})


COLUMNS = [
    *(f"{metric}.{field}" for metric in ("accuracy", "loss") for field in Spread.__annotations__),
    *(name for name in Record.__annotations__ if name not in ("accuracy", "loss")),
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
        return (
            f"History({len(self)} records to step {last.step}: "
            f"loss {last.loss.mean:.4g}{accuracy}{deviation})"
        )

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]

    def column(self, path: str) -> list[float]:
        """One metric over time, such as "accuracy.mean"; NaN where it was not measured."""
        if path not in COLUMNS:
            raise unknown_name(f"There is no column {path!r}.", path, COLUMNS)
        metric, _, part = path.partition(".")
        values = [getattr(record, metric) for record in self.records]
        if part:
            values = [None if spread is None else getattr(spread, part) for spread in values]
        return [float(_number(value)) for value in values]

    def to_pandas(self) -> pandas.DataFrame:
        """A table with a row per record and a column per number, such as "accuracy.mean"."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise Misuse("pandas is not installed.", "Install it: pip install pandas.") from None
        return pandas.DataFrame([record.scalars() for record in self.records])

    def _repr_html_(self) -> str:
        """The last records as a table, for notebooks."""
        rows = [record.scalars() for record in self.records[-10:]]
        names = list(dict.fromkeys(name for row in rows for name in row))
        return html_table(
            repr(self),
            names,
            [[f"{row[name]:.6g}" if name in row else "" for name in names] for row in rows],
        )

    def to_jsonl(self) -> str:
        """One JSON object per line."""
        return "".join(json.dumps(record.as_dict()) + "\n" for record in self.records)

    @classmethod
    def from_jsonl(cls, text: str) -> History:
        return cls(Record.from_dict(json.loads(line)) for line in text.splitlines() if line.strip())


def decibels(value: float | None) -> float:
    """10 log₁₀ of a power: −∞ for zero, NaN for None, NaN and negative numbers."""
    if value is None or not value >= 0:
        return math.nan
    return 10 * math.log10(value) if value > 0 else -math.inf


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(path: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{path}.{key}" if path else str(key), item)
    elif isinstance(value, int | float):
        yield path, value


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _spread(values: dict[str, float | None] | None) -> Spread | None:
    if values is None:
        return None
    return Spread(**{key: _number(value) for key, value in values.items()})
