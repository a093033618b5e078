"""Tables in memory: pandas data frames, Hugging Face datasets, columns and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.core.errors import Misuse
from tacit.data.own.files import plain_column
from tacit.data.own.table import Table, check_names


def as_table(value: Any, origin: str) -> Table | None:
    """A table of an object in memory; None if it is none.

    Args:
        value: A pandas.DataFrame, a datasets.Dataset, a dictionary with a sequence for each column,
            or a list with a dictionary for each row.
        origin: What errors call it.

    Raises:
        Misuse: Columns have different lengths, or hold neither numbers nor texts.
    """
    columns: Mapping[str, Any]
    if hasattr(value, "iloc") and hasattr(value, "columns"):
        names = [str(name) for name in value.columns]
        check_names(names, origin)
        columns = {name: value[own].to_numpy() for name, own in zip(names, value, strict=True)}
    elif hasattr(value, "column_names") and hasattr(value, "features"):
        columns = _columns_of_dataset(value)
    elif isinstance(value, Mapping):
        columns = {str(name): column for name, column in value.items()}
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        names = [str(name) for name in value[0]]
        for number, row in enumerate(value, start=1):
            if set(row) != set(value[0]):
                problem = f"{origin}: row {number} has other keys than row 1."
                raise Misuse(problem, "Give every row the same keys; None is missing.")
        columns = {name: [row[name] for row in value] for name in names}
    else:
        return None
    plain = {name: plain_column(_values(column), name, origin) for name, column in columns.items()}
    lengths = {name: len(column) for name, column in plain.items()}
    if len(set(lengths.values())) != 1 or not next(iter(lengths.values())):
        raise Misuse(
            f"{origin} has columns of lengths {lengths}.",
            "Give columns of one length, with at least one row.",
        )
    return Table(plain, origin)


def _columns_of_dataset(dataset: Any) -> dict[str, Any]:
    """The columns of a Hugging Face dataset; classes by their names."""
    columns: dict[str, Any] = dataset.with_format(None)[:]
    for name, feature in dataset.features.items():
        class_names = getattr(feature, "names", None)
        if class_names is not None:
            columns[name] = [
                None if at is None or at < 0 else class_names[at] for at in columns[name]
            ]
    return columns


def _values(column: Any) -> Any:
    """A column as an array; texts and missing values keep their types."""
    if isinstance(column, Sequence) and any(isinstance(one, str) or one is None for one in column):
        return np.array(list(column), dtype=object)
    return column
