"""Tables in memory: pandas data frames, Hugging Face datasets, columns and records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.core.errors import Misuse
from tacit.data.own.reading import Reading
from tacit.data.own.table import Table


def as_table(value: Any, origin: str, reading: Reading | None = None) -> Table | None:
    """A table of an object in memory; None if it is none.

    Args:
        value: A pandas.DataFrame, a datasets.Dataset, a dictionary with a sequence for each column,
            or a list with a dictionary for each row.
        origin: What errors call it.
        reading: How its values are read.

    Raises:
        Misuse: Columns have different lengths, or rows different keys.
    """
    import pandas

    if isinstance(value, pandas.DataFrame):
        # The index of a frame in memory is its user's own business.
        frame = value.reset_index(drop=True)
    elif hasattr(value, "column_names") and hasattr(value, "features"):
        frame = _frame_of_dataset(value)
    elif isinstance(value, Mapping):
        columns = {
            name: np.asarray(column) if hasattr(column, "dtype") else column
            for name, column in value.items()
        }
        try:
            frame = pandas.DataFrame(columns)
        except ValueError as problem:
            remedy = "Give columns of one length, with at least one row."
            raise Misuse(f"{origin} has columns that do not fit: {problem}.", remedy) from None
    elif isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        for number, row in enumerate(value, start=1):
            if set(row) != set(value[0]):
                different = f"{origin}: row {number} has other keys than row 1."
                raise Misuse(different, "Give every row the same keys; None is missing.")
        frame = pandas.DataFrame(value)
    else:
        return None
    return Table.of(frame, origin, reading or Reading())


def _frame_of_dataset(dataset: Any) -> Any:
    """A Hugging Face dataset as a data frame; classes by their names."""
    frame = dataset.with_format(None).to_pandas()
    for name, feature in dataset.features.items():
        names = getattr(feature, "names", None)
        if names is not None:
            at = frame[name].fillna(-1).astype(int)
            frame[name] = [names[number] if number >= 0 else None for number in at]
    return frame
