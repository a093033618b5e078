"""How tables become inputs and classes: the same at a node and in a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.checks import check_number
from tacit.core.errors import Misuse, unknown_name
from tacit.data.own.hold_out import held_out
from tacit.data.own.schema import Column, infer_columns, ordered
from tacit.data.own.statistics import ColumnSums, check_range
from tacit.data.own.table import Table

Pair = tuple[Tensor, Tensor]
MOST_CLASSES = 100  # of a label that is not declared: more look like measurements


@dataclass(frozen=True)
class TableSpec:
    """What to read from a client's table.

    Attributes:
        label: The column with the class.
        classes: The names of the classes, in order; empty until they are collected.
        columns: The columns of the inputs, in order; empty until they are inferred.
        ignore: Columns to leave out where `columns` are inferred.
        standardize: Whether numbers are shifted and scaled by their mean and deviation over all
            clients' training rows.
        test: The share of each client's rows to hold out for testing; None: no rows.
        seed: Seed of the rows that are held out.
    """

    label: str
    classes: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    ignore: tuple[str, ...] = ()
    standardize: bool = True
    test: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.test is not None:
            check_number("test", self.test, above=0, below=1, example=0.2)
        if len(set(self.classes)) < len(self.classes):
            raise Misuse(f"classes = {list(self.classes)} names a class twice.", "Name each once.")
        if self.label in (column.name for column in self.columns):
            raise Misuse(f"schema.{self.label} is the label.", "Remove it from the inputs.")

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

    def completed(self, tables: Sequence[Table], without: Sequence[str] = ()) -> TableSpec:
        """This with columns and classes that are not declared taken from the tables."""
        spec = self
        if not spec.classes:
            found = {
                text
                for table in tables
                for text in table.distinct_texts(self.label, "label")[0]
                if text is not None
            }
            if len(found) > MOST_CLASSES:
                raise Misuse(
                    f"The label {self.label!r} has {len(found)} different values.",
                    "Name a column with classes, or list them in `classes`.",
                )
            if len(found) < 2:
                only = f"is always {next(iter(found))!r}" if found else "is always missing"
                remedy = "Two classes or more are needed: list them in `classes`."
                raise Misuse(f"The label {self.label!r} {only}.", remedy)
            spec = replace(spec, classes=tuple(ordered(found)))
        if not spec.columns:
            for name in self.ignore:
                tables[0].column(name, "ignore")
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
            Misuse: A column is missing or a value does not fit; the message names the place.
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

    def _encode(self, table: Table) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        x = np.concatenate([column.encode(table) for column in self.columns], axis=1)
        names, summed = self.input_names, self.summed
        check_range(x[:, summed], [names[at] for at in summed], table.origin)
        unscaled = [
            not self.standardize and column.needs_statistics
            for column in self.columns
            for _ in range(column.width)
        ]
        if len(missing := np.argwhere(np.isnan(x) & unscaled)):
            row, at = (int(one) for one in missing[0])
            raise Misuse(
                f"{table.place(row)}, column {names[at]!r}: the value is missing.",
                "Fill it in, or set standardize = true, which uses the mean of all clients.",
            )
        return x, self._encode_label(table)

    def _encode_label(self, table: Table) -> NDArray[np.int64]:
        index = {name: at for at, name in enumerate(self.classes)}
        texts, which = table.distinct_texts(self.label, "label")
        for text in texts:
            if text in index:
                continue
            place = f"{table.place(table.row_of(self.label, text))}, column {self.label!r}"
            if text is None:
                problem = f"{place}: the label is missing."
                raise Misuse(problem, "Remove the row, or fill it in.")
            raise unknown_name(f"{place}: {text!r} is not one of the classes.", text, self.classes)
        return np.array([index[str(text)] for text in texts], dtype=np.int64)[which]


@dataclass(frozen=True, eq=False)
class ClientRows:
    """One client's rows as numbers; missing ones are NaN until they are scaled."""

    spec: TableSpec
    x: NDArray[np.float64]
    y: NDArray[np.int64]
    x_test: NDArray[np.float64] | None = None
    y_test: NDArray[np.int64] | None = None

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All arrays, for a digest."""
        every = (self.x, self.y, self.x_test, self.y_test)
        return [array for array in every if array is not None]

    def sums(self) -> ColumnSums:
        """The sums of the columns that need statistics, over the rows to train on."""
        return ColumnSums.of(self.x[:, self.spec.summed])

    def scaled(self, total: ColumnSums | None) -> tuple[Pair, Pair | None]:
        """Inputs and classes to train on, and to test on; missing numbers become the mean.

        Args:
            total: The sums of all clients; None if no column needs them.
        """
        scaling = Scaling.of(self.spec, total)
        train = scaling.apply(self.x), torch.from_numpy(self.y)
        if self.x_test is None or self.y_test is None:
            return train, None
        return train, (scaling.apply(self.x_test), torch.from_numpy(self.y_test))


@dataclass(frozen=True, eq=False)
class Scaling:
    """What is subtracted from each input, and what it is divided by."""

    centre: NDArray[np.float64] = field(repr=False)
    scale: NDArray[np.float64] = field(repr=False)

    @classmethod
    def of(cls, spec: TableSpec, total: ColumnSums | None) -> Scaling:
        """Public constants where there are some, else the moments of all clients' rows."""
        centre, scale, at = np.zeros(spec.width), np.ones(spec.width), 0
        for column in spec.columns:
            if column.mean is not None and column.std is not None:
                centre[at], scale[at] = column.mean, column.std
            at += column.width
        if len(spec.summed):
            assert total is not None
            centre[spec.summed], scale[spec.summed] = total.moments()
        return cls(centre, scale)

    def describe(self, spec: TableSpec) -> dict[str, Any]:
        """Each input in plain values: a number as (value - mean) / std, a category as 0 or 1."""
        moments = zip(self.centre.tolist(), self.scale.tolist(), strict=True)
        found: list[dict[str, Any]] = []
        for column in spec.columns:
            for category in column.categories:
                next(moments)
                found.append({"column": column.name, "category": category})
            if not column.categories:
                mean, std = next(moments)
                found.append({"column": column.name, "mean": mean, "std": std})
        return {"features": found}

    def apply(self, x: NDArray[np.float64]) -> Tensor:
        """The inputs as float32."""
        scaled = (x - self.centre) / self.scale
        return torch.from_numpy(np.nan_to_num(scaled, nan=0.0).astype(np.float32))
