"""How tables become inputs and classes: the same at a node and in a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.checks import check_number
from tacit.core.errors import Misuse, unknown_name
from tacit.data.dataset import Target
from tacit.data.hold_out import held_out
from tacit.data.own.problems import Problem, TableProblems, check
from tacit.data.own.reading import Recoding
from tacit.data.own.schema import Column, infer_columns, ordered
from tacit.data.own.statistics import LARGEST_VALUE, ColumnSums
from tacit.data.own.table import Table

Pair = tuple[Tensor, Tensor]
MOST_CLASSES = 100  # of a label that is not declared: more look like measurements


@dataclass(frozen=True)
class TableSpec:
    """What to read from a client's table.

    Attributes:
        label: The column with the class, or with the number to predict.
        classes: The names of the classes, in order; empty until they are collected.
        columns: The columns of the inputs, in order; empty until they are inferred.
        ignore: Columns to leave out where `columns` are inferred.
        standardize: Whether numbers are shifted and scaled by their mean and deviation over all
            clients' training rows.
        test: The share of each client's rows to hold out for testing; None: no rows.
        seed: Seed of the rows that are held out.
        target: The label as a number to predict; None if it is a class.
    """

    label: str
    classes: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    ignore: tuple[str, ...] = ()
    standardize: bool = True
    test: float | None = None
    seed: int = 0
    target: Column | None = None

    def __post_init__(self) -> None:
        if self.target is not None and self.classes:
            problem = f"The label {self.label!r} is a number to predict, but classes are set."
            raise Misuse(problem, "Remove `classes`, or `target`.")
        if self.test is not None:
            check_number("test", self.test, above=0, below=1, example=0.2)
        if len(set(self.classes)) < len(self.classes):
            raise Misuse(f"classes = {list(self.classes)} names a class twice.", "Name each once.")
        if self.label in (column.name for column in self.columns):
            remedy = "Remove it from the inputs; `target` says whether it is a number."
            raise Misuse(f"schema.{self.label} is the label.", remedy)

    @property
    def width(self) -> int:
        """The number of inputs."""
        return sum(column.width for column in self.columns)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The name of each input: a column, or "column=category"."""
        return tuple(
            f"{column.name}={category}" if column.categories else column.name
            for column in self.columns
            for category in column.categories or ("",)
        )

    @property
    def summed(self) -> NDArray[np.intp]:
        """Which inputs need sums over all clients."""
        return np.flatnonzero(
            [
                self.standardize and column.needs_statistics
                for column in self.columns
                for _ in range(column.width)
            ]
        )

    @property
    def target_is_summed(self) -> bool:
        """Whether the target's mean and deviation come from sums over all clients."""
        return self.standardize and self.target is not None and self.target.needs_statistics

    def completed(
        self, tables: Sequence[Table], without: Sequence[str] = (), *, fewest_classes: int = 2
    ) -> TableSpec:
        """This with columns and classes that are not declared taken from the tables."""
        try:
            return self._completed(tables, without, fewest_classes)
        except Misuse:
            # Rows that could not be read may be why.
            check(problem for table in tables for problem in table.problems)
            raise

    def _completed(
        self, tables: Sequence[Table], without: Sequence[str], fewest_classes: int
    ) -> TableSpec:
        spec = self
        if self.target is not None:
            problems: list[Problem] = []
            numbers = np.concatenate([self._encode_number(table, problems) for table in tables])
            if not problems and (low := numbers.min()) == numbers.max():
                problem = f"The label {self.label!r} is always {low:g}."
                raise Misuse(problem, "Name a column with numbers that differ.")
        elif not spec.classes:
            names = {
                text
                for table in tables
                for text in table.texts(self.label, "label")[0]
                if text is not None
            }
            if len(names) > MOST_CLASSES:
                raise Misuse(
                    f"The label {self.label!r} has {len(names)} different values.",
                    "Name a column with classes, or list them in `classes`; for numbers to "
                    'predict, set target = "number".',
                )
            if len(names) < fewest_classes:
                only = f"is always {next(iter(names))!r}" if names else "is always missing"
                remedy = "Two classes or more are needed: list them in `classes`."
                raise Misuse(f"The label {self.label!r} {only}.", remedy)
            spec = replace(spec, classes=tuple(ordered(names)))
        if not spec.columns:
            every = dict.fromkeys(name for table in tables for name in table.columns)
            for name in self.ignore:
                if name not in every:
                    raise unknown_name(f"No table has a column {name!r} to ignore.", name, every)
            columns = infer_columns(tables, [self.label, *self.ignore, *without])
            spec = replace(spec, columns=columns)
        return spec

    def rows(self, table: Table, client: str, test: Table | None = None) -> ClientRows:
        """A client's rows, divided into those to train on and those to test on.

        Args:
            table: The client's table.
            client: The client's name, which decides what is held out.
            test: A table to test on, in place of rows that are held out.

        Raises:
            Misuse: A column is missing or a value does not fit; the message names the line.
        """
        x, y = self._encode(table)
        if test is not None:
            return ClientRows(self, x, y, *self._encode(test))
        if self.test is None:
            return ClientRows(self, x, y)
        if len(y) < 2:
            raise Misuse(f"{table.origin} has {len(y)} row.", "Give two or more, or no test share.")
        out = held_out(y, self.test, self.seed, client)
        return ClientRows(self, x[~out], y[~out], x[out], y[out])

    def check(self, table: Table) -> None:
        """Raise Misuse with all that is wrong with a table."""
        self._encode(table)

    def _encode(self, table: Table) -> tuple[NDArray[np.float64], NDArray[Any]]:
        problems, encoded = list(table.problems), []
        encoders = [partial(self._encode_column, column) for column in self.columns]
        label = self._encode_class if self.target is None else self._encode_number
        for encode in (*encoders, label):
            try:
                encoded.append(encode(table, problems))
            except TableProblems as problem:
                problems += problem.problems
        check(problems)
        *blocks, y = encoded
        return np.concatenate(blocks, axis=1), y

    def _encode_column(
        self, column: Column, table: Table, problems: list[Problem]
    ) -> NDArray[np.float64]:
        block = column.encode(table, problems)
        if column.needs_statistics and self.standardize:
            problems += _too_large(block[:, 0], table, column.name)
        elif column.needs_statistics:
            remedy = "Fill it in, or set standardize = true, which uses the mean of all clients."
            missing = np.isnan(table.parsed(column.name))
            problems += table.problems_where(missing, column.name, "the value is missing", remedy)
        return block

    def _encode_number(self, table: Table, problems: list[Problem]) -> NDArray[np.float64]:
        table.require(self.label, "label")
        y = table.numbers(self.label, problems, "remove `target` if the label is a class")
        problems += self._missing_labels(table, np.isnan(table.parsed(self.label)))
        problems += _too_large(y, table, self.label)
        return y

    def _encode_class(self, table: Table, problems: list[Problem]) -> NDArray[np.int64]:
        table.require(self.label, "label")
        y = table.coded(self.label, self.classes, "the classes", problems)
        problems += self._missing_labels(table, y == -1)
        return y

    def _missing_labels(self, table: Table, missing: NDArray[np.bool_]) -> list[Problem]:
        remedy = "Remove the row, or fill it in."
        return table.problems_where(missing, self.label, "the label is missing", remedy)


def _too_large(values: NDArray[np.float64], table: Table, name: str) -> list[Problem]:
    """A problem if values are too large to add up exactly."""
    largest = np.nanmax(np.abs(values), initial=0.0)
    what = f"{largest:.3g} is beyond {LARGEST_VALUE:.2g}"
    remedy = "Write it in larger units, or agree on its mean and std in [data.schema]."
    return table.problems_where(np.abs(values) > LARGEST_VALUE, name, what, remedy)


@dataclass(frozen=True, eq=False)
class ClientRows:
    """One client's rows as numbers; missing ones are NaN until they are scaled.

    Labels y are the int64 numbers of classes, or float64 numbers to predict.
    """

    spec: TableSpec
    x: NDArray[np.float64]
    y: NDArray[Any]
    x_test: NDArray[np.float64] | None = None
    y_test: NDArray[Any] | None = None

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All arrays, for a digest."""
        every = (self.x, self.y, self.x_test, self.y_test)
        return [array for array in every if array is not None]

    def sums(self) -> ColumnSums:
        """The sums of the columns that need statistics, over the rows to train on.

        Those of the target are the last, if it needs some.
        """
        columns = self.x[:, self.spec.summed]
        if self.spec.target_is_summed:
            columns = np.concatenate([columns, self.y[:, None]], axis=1)
        return ColumnSums.of(columns)

    def scaled(self, total: ColumnSums | None) -> tuple[Pair, Pair | None]:
        """Inputs and labels to train on, and to test on; missing numbers become the mean.

        Numbers to predict stay in their own unit.

        Args:
            total: The sums of all clients; None if no column needs them.
        """
        scaling = Scaling.of(self.spec, total)
        train = scaling.apply(self.x), _labels(self.y)
        if self.x_test is None or self.y_test is None:
            return train, None
        return train, (scaling.apply(self.x_test), _labels(self.y_test))


@dataclass(frozen=True, eq=False)
class Scaling:
    """What is subtracted from each input and from the target, and what they are divided by."""

    centre: NDArray[np.float64] = field(repr=False)
    scale: NDArray[np.float64] = field(repr=False)
    target: Target | None = None

    @classmethod
    def of(cls, spec: TableSpec, total: ColumnSums | None) -> Scaling:
        """Public constants where there are some, else the moments of all clients' rows."""
        centre, scale, at = np.zeros(spec.width), np.ones(spec.width), 0
        for column in spec.columns:
            if column.mean is not None and column.std is not None:
                centre[at], scale[at] = column.mean, column.std
            at += column.width
        target = None if spec.target is None else public_target(spec.target)
        if count := len(spec.summed) + spec.target_is_summed:
            assert total is not None
            assert total.columns == count
            means, deviations = total.moments()
            inputs = len(spec.summed)
            centre[spec.summed], scale[spec.summed] = means[:inputs], deviations[:inputs]
            if spec.target_is_summed:
                target = Target(spec.label, float(means[-1]), float(deviations[-1]))
        return cls(centre, scale, target)

    def describe(self, spec: TableSpec, recode: Recoding) -> dict[str, Any]:
        """Each input in plain values: a number as (value - mean) / std, a category as 0 or 1.

        `recode` has by column the values that stand for others.
        """
        moments = zip(self.centre.tolist(), self.scale.tolist(), strict=True)
        features: list[dict[str, Any]] = []
        for column in spec.columns:
            for category in column.categories:
                next(moments)
                features.append({"column": column.name, "category": category})
            if not column.categories:
                mean, std = next(moments)
                features.append({"column": column.name, "mean": mean, "std": std})
        plain: dict[str, Any] = {"features": features}
        if self.target is not None:
            plain["target"] = self.target.as_dict()
        if recode:
            plain["recode"] = {column: dict(values) for column, values in recode.items()}
        return plain

    def apply(self, x: NDArray[np.float64]) -> Tensor:
        """The inputs as float32."""
        scaled = (x - self.centre) / self.scale
        return torch.from_numpy(np.nan_to_num(scaled, nan=0.0).astype(np.float32))


def public_target(column: Column) -> Target:
    """A target with the constants that clients agreed on; without any it is not standardised."""
    if column.mean is None or column.std is None:
        return Target(column.name)
    return Target(column.name, column.mean, column.std)


def _labels(y: NDArray[Any]) -> Tensor:
    """Labels as torch has them: int64 classes, or float32 numbers."""
    return torch.from_numpy(y.astype(np.float32) if y.dtype.kind == "f" else y)
