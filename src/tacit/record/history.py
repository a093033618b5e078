"""Metrics of a run over time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from tacit.core.errors import Misuse, unknown_name
from tacit.core.missing_numbers import nan_if_none, without_nan
from tacit.core.notebooks import html_table
from tacit.record.predictions import ERRORS, Predictions, accuracy_alerts, error_alerts

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
    the last gradient's batch. `baseline` is the accuracy in percent of always predicting the most
    frequent class of the test set. `loss` is None if it could only be computed from training data
    that a guarantee protects.

    `metrics` are further ones by name. `own_test` has the same metrics, with loss, accuracy and
    baseline, of each client's model on the client's own test set; its `average_model` is the mean
    over these test sets. `per_client` has the metrics of single clients: a list per metric, in the
    order of the list "client". `predictions` is not kept in files.
    """

    round: int
    step: int
    accuracy: Spread | None
    loss: Spread | None
    consensus_distance: float
    bytes_sent: int
    wall_seconds: float
    msd: float | None = None
    baseline: float | None = None
    metrics: Mapping[str, Spread] = field(default_factory=dict)
    own_test: Mapping[str, Spread] = field(default_factory=dict)
    per_client: Mapping[str, Sequence[float]] = field(default_factory=dict)
    predictions: Predictions | None = field(default=None, compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers; None replaces what is not finite, because JSON has no NaN."""
        plain = asdict(replace(self, predictions=None))
        optional = [key for key in OPTIONAL if not plain[key]]
        for key in ("predictions", *optional):
            del plain[key]
        return cast(dict[str, Any], without_nan(plain))

    @cached_property
    def numbers(self) -> dict[str, float | None]:
        """Every number by its column, such as "accuracy.mean", "msd" or "auc.clients.3"."""
        spreads: dict[str, Spread | None] = {"accuracy": self.accuracy, "loss": self.loss}
        spreads |= self.metrics
        spreads |= {f"own_test.{name}": spread for name, spread in self.own_test.items()}
        numbers = {
            f"{metric}.{part}": None if spread is None else getattr(spread, part)
            for metric, spread in spreads.items()
            for part in PARTS
        }
        numbers |= {name: getattr(self, name) for name in SCALARS}
        clients = [int(client) for client in self.per_client.get("client", ())]
        for metric, values in self.per_client.items():
            if metric != "client":
                columns = (f"{metric}.clients.{client}" for client in clients)
                numbers |= zip(columns, values, strict=False)
        return numbers

    def scalars(self) -> dict[str, float]:
        """Every number that was measured and is finite, by its column."""
        # What a table is read by stands first.
        names = dict.fromkeys(("round", "step", *self.numbers))
        values = {column: self.numbers[column] for column in names}
        return {
            column: value
            for column, value in values.items()
            if value is not None and math.isfinite(value)
        }

    def describe(self) -> str:
        """The most telling number in words: accuracy, deviation from the optimum, error or loss."""
        if self.accuracy is not None:
            text = f"accuracy {self.accuracy.mean:.2f} %"
            return text if self.baseline is None else f"{text} (majority {self.baseline:.2f} %)"
        if self.msd is not None:
            return f"MSD {decibels(self.msd):.1f} dB"
        if set(ERRORS) <= self.metrics.keys():
            error, baseline = (self.metrics[name].mean for name in ERRORS)
            return f"RMSE {error:.4g} (of the mean {baseline:.4g})"
        return "loss not recorded" if self.loss is None else f"loss {self.loss.mean:.4f}"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """The record that `as_dict` wrote; other keys are ignored.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: If the values are of no record.
        """
        known = {name: values[name] for name in cls.__annotations__ if name in values}
        known |= {name: _spread(values[name]) for name in STANDARD}
        for key in ("metrics", "own_test"):
            known[key] = {name: _spread(spread) for name, spread in values.get(key, {}).items()}
        known["per_client"] = {
            name: [_number(value) for value in column]
            for name, column in values.get("per_client", {}).items()
        }
        measured = ("round", "step", "consensus_distance", "bytes_sent", "wall_seconds")
        known |= {name: _number(values[name]) for name in measured}
        return cls(**known)

    def alerts(self, class_names: Sequence[str] = ()) -> list[str]:
        """Sentences that say why the results mislead; none if they do not.

        Records that were read from a file do not know what models predicted.
        """
        accuracy = None if self.accuracy is None else self.accuracy.mean
        seen = (accuracy, self.baseline, self.predictions, self.per_client)
        errors = [self.metrics[name].mean for name in ERRORS if name in self.metrics]
        further = error_alerts(*errors) if len(errors) == len(ERRORS) else []
        return accuracy_alerts(*seen, class_names) + further


STANDARD = ("accuracy", "loss")
PARTS = tuple(Spread.__annotations__)
# Keys that records have only if there is something to keep in them.
OPTIONAL = ("metrics", "own_test", "per_client")
SCALARS = [
    name for name in Record.__annotations__ if name not in (*STANDARD, *OPTIONAL, "predictions")
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
        if last.baseline is not None:
            accuracy += f" (majority baseline {last.baseline:.2f} %)"
        deviation = f", MSD {decibels(last.msd):.1f} dB" if last.msd is not None else ""
        loss = "loss not recorded" if last.loss is None else f"loss {last.loss.mean:.4g}"
        return f"History({len(self)} records to step {last.step}: {loss}{accuracy}{deviation})"

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]

    @property
    def columns(self) -> list[str]:
        """The names of all columns that a record has."""
        names = [f"{metric}.{part}" for metric in STANDARD for part in PARTS] + SCALARS
        names += (name for record in self.records for name in record.numbers)
        return list(dict.fromkeys(names))

    @property
    def metrics(self) -> list[str]:
        """The metrics beyond loss and accuracy; those on clients' own tests with "own_test."."""
        names = (
            name
            for record in self.records
            for name in (*record.metrics, *(f"own_test.{own}" for own in record.own_test))
        )
        return list(dict.fromkeys(names))

    def column(self, path: str) -> list[float]:
        """One metric over time; NaN where it was not measured.

        Args:
            path: Such as "accuracy.mean", "auc.average_model", "own_test.auc.min",
                "auc.clients.3" or "baseline"; `columns` has all names. A metric's name alone, such
                as "auc", is its mean.

        Raises:
            Misuse: If no record has it.
        """
        name = find_column(path, self.columns)
        return [float(nan_if_none(record.numbers.get(name))) for record in self.records]

    def to_pandas(self) -> pandas.DataFrame:
        """A table with a row per record and a column per number, such as "accuracy.mean"."""
        import pandas

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


def find_column(name: str, columns: Sequence[str]) -> str:
    """The column of this name; a metric's name alone, such as "auc", is its mean.

    Raises:
        Misuse: If there is none; the message has all names.
    """
    column = next((known for known in (name, f"{name}.mean") if known in columns), None)
    if column is None and name.partition(".")[0] == "loss" and "loss.mean" not in columns:
        raise Misuse(
            f"{name!r} is not recorded: without a test set it would be the exact loss of the "
            "training data, which the guarantee does not cover.",
            "Give the task a test set, or choose another metric.",
        )
    if column is None:
        shown = [known for known in columns if ".clients." not in known]
        problem = f"There is no column {name!r}."
        # Imported here: a history is read without what computes its numbers.
        from tacit.tasks.metrics.metric import METRICS

        if (metric := name.partition(".")[0]) in METRICS:
            problem += f" {metric} is recorded if `metrics` lists it."
        raise unknown_name(problem, name, shown)
    return column


def decibels(value: float | None) -> float:
    """10 log₁₀ of a power: −∞ for zero, NaN for None, NaN and negative numbers."""
    if value is None or not value >= 0:
        return math.nan
    return 10 * math.log10(value) if value > 0 else -math.inf


def _spread(values: dict[str, float | None] | None) -> Spread | None:
    if values is None:
        return None
    return Spread(**{part: _number(value) for part, value in values.items()})


def _number(value: Any) -> float:
    """A number of a file; NaN if there is none."""
    if value is not None and not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return nan_if_none(value)
