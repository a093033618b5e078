"""What the columns of a table mean: numbers, or categories that become one-hot inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.checks import check_number
from tacit.core.errors import Misuse, unknown_name
from tacit.data.own.problems import Problem
from tacit.data.own.table import Table

MOST_CATEGORIES = 50  # of a column that is not declared: more look like names or dates
SCHEMA_REMEDY = 'Give "number", a list of categories, or { mean = …, std = … }.'


@dataclass(frozen=True)
class Column:
    """A column of inputs.

    Attributes:
        name: Its name in the tables.
        categories: Its values, one input each; empty for a number.
        mean: A public centre, where the clients agreed on one.
        std: A public scale.
    """

    name: str
    categories: tuple[str, ...] = ()
    mean: float | None = None
    std: float | None = None

    @property
    def width(self) -> int:
        """How many inputs it becomes."""
        return len(self.categories) or 1

    @property
    def needs_statistics(self) -> bool:
        """Whether its mean and deviation come from the clients' rows."""
        return not self.categories and self.mean is None

    def encode(self, table: Table, problems: list[Problem]) -> NDArray[np.float64]:
        """The inputs [n, width]; a missing number is NaN, a missing category all zeros."""
        if not self.categories:
            return table.numbers(self.name, problems)[:, None]
        codes = table.coded(self.name, self.categories, "its categories", problems)
        one_hot: NDArray[np.float64] = (codes[:, None] == np.arange(self.width)).astype(np.float64)
        return one_hot


def parse_schema(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """Columns as declared: "number", a list of categories, or public constants."""
    return tuple(_parse(name, kind) for name, kind in schema.items())


def parse_target(label: str, target: Any) -> Column | None:
    """The label as a number to predict; None if it is a class."""
    if target is None or target == "classes":
        return None
    if target != "number" and not (isinstance(target, Mapping) and set(target) == {"mean", "std"}):
        raise Misuse(
            f"target = {target!r} is not possible.",
            'Give "number" for a regression, { mean = …, std = … } with public constants, or '
            '"classes".',
        )
    return _parse(label, target, "target")


def _parse(name: str, kind: Any, key: str = "") -> Column:
    key = key or f"schema.{name}"
    if kind == "number":
        return Column(name)
    if isinstance(kind, Mapping) and set(kind) == {"mean", "std"}:
        check_number(f"{key}.mean", kind["mean"])
        check_number(f"{key}.std", kind["std"], above=0)
        return Column(name, mean=float(kind["mean"]), std=float(kind["std"]))
    if isinstance(kind, list | tuple) and kind:
        categories = tuple(map(_category, kind))
        if len(set(categories)) < len(categories):
            raise Misuse(f"{key} lists a category twice.", "List each of them once.")
        return Column(name, categories)
    raise Misuse(f"{key} = {kind!r} is not possible.", SCHEMA_REMEDY)


def _category(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def infer_columns(tables: Sequence[Table], without: Sequence[str]) -> tuple[Column, ...]:
    """The columns of all tables but those in `without`, with all categories that occur.

    Raises:
        Misuse: Tables have different columns, or a column has too many categories.
    """
    names = [name for name in tables[0].columns if name not in without]
    for table in tables[1:]:
        if extra := [name for name in table.columns if name not in (*names, *without)]:
            _require_everywhere(extra[0], table, tables[0])
        for name in names:
            _require_everywhere(name, tables[0], table)
    if not names:
        raise Misuse(f"{tables[0].origin} has no inputs.", "Give columns beside the label.")
    return tuple(_infer(name, tables) for name in names)


def _require_everywhere(name: str, table: Table, other: Table) -> None:
    """Raise Misuse if another table lacks a column of this one; suggest a similar name there."""
    if name not in other.frame:
        raise unknown_name(
            f"{table.origin} has a column {name!r}, which {other.origin} lacks. List the columns "
            "to use in [data.schema], or leave this one out with `ignore`.",
            name,
            other.columns,
        )


def _infer(name: str, tables: Sequence[Table]) -> Column:
    if all(table.is_numeric(name) for table in tables):
        return Column(name)
    categories: set[str] = set()
    numbers = values = 0
    for table in tables:
        texts, which = table.texts(name)
        for text, count in zip(texts, np.bincount(which).tolist(), strict=True):
            if text is not None:
                categories.add(text)
                values += count
                numbers += count * table.is_number(text)
    if 2 * numbers > values:
        # Mostly numbers, or with another decimal mark: reading names the others as problems.
        return Column(name)
    if len(categories) > MOST_CATEGORIES:
        others = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
        raise Misuse(
            f"Column {name!r} of {tables[0].origin}{others} has {len(categories)} different "
            "values, which are not numbers.",
            f'Ignore it (data.ignore = ["{name}"], or --ignore {name} of `tacit data schema`), or '
            "list its categories in [data.schema].",
        )
    return Column(name, tuple(ordered(categories)))


def ordered(texts: set[str]) -> list[str]:
    """Texts by number if all are numbers, else alphabetically."""
    try:
        return sorted(texts, key=float)
    except ValueError:
        return sorted(texts)
