"""Files of tables: CSV and Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.errors import Misuse, NotReady, first_line
from tacit.data.own.table import Table, check_names

DELIMITERS = ",;\t|"
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
# Rows that become columns at once: few enough to stay in the cache of a processor.
CHUNK = 1024
INSTALL_PYARROW = "Install it: pip install 'tacit-learn[data]', or write the table as CSV."


def read_table(path: Path) -> Table:
    """Read a table from a .csv, .tsv or .parquet file.

    Raises:
        Misuse: The file cannot be read; the message names file, line and column.
    """
    try:
        table = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    except FileNotFoundError:
        remedy = "Check the name, and that its disk is mounted."
        raise NotReady(f"There is no file {path}.", remedy) from None
    except OSError as problem:
        kind = Misuse if isinstance(problem, PermissionError | IsADirectoryError) else NotReady
        remedy = "Check its disk and its permissions."
        raise kind(f"{path} cannot be read: {problem.strerror or problem}.", remedy) from None
    if not len(table):
        raise Misuse(f"{path} has no rows.", "Give at least one row below the column names.")
    return table


def _read_csv(path: Path) -> Table:
    lines: list[int] = []
    try:
        # A byte-order mark, which spreadsheets write, is not part of the first name.
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(DELIMITERS, key=first.count)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = [name.strip() for name in next(reader, [])]
            if not names:
                remedy = "Give a first line with the names of the columns."
                raise Misuse(f"{path} is empty.", remedy)
            check_names(names, str(path))
            columns: list[list[str]] = [[] for _ in names]

            def rows() -> Iterator[list[str]]:
                for row in reader:
                    if len(row) == len(names):
                        lines.append(reader.line_num)
                        yield row
                    elif row:
                        raise Misuse(
                            f"{path}, line {reader.line_num}: {len(row)} values, but there are "
                            f"{len(names)} columns.",
                            "Correct the line; put quotes around values that contain "
                            f"{delimiter!r}.",
                        )

            remaining = rows()
            while chunk := list(islice(remaining, CHUNK)):
                for column, values in zip(columns, zip(*chunk, strict=True), strict=True):
                    column.extend(values)
    except UnicodeDecodeError as problem:
        remedy = "Save it as UTF-8."
        raise Misuse(f"{path} is not text in UTF-8: {problem.reason}.", remedy) from None
    except csv.Error as problem:
        remedy = "Correct the quotes around that line."
        raise Misuse(f"{path}, line {reader.line_num}: {problem}.", remedy) from None
    return Table(dict(zip(names, columns, strict=True)), str(path), lines)


def _read_parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise Misuse(f"{path} needs pyarrow, which is missing.", INSTALL_PYARROW) from None
    try:
        table = parquet.read_table(path)
    except ArrowException as problem:
        remedy = "Write it again, e.g. with pandas.DataFrame.to_parquet."
        raise Misuse(f"{path} cannot be read: {first_line(problem)}.", remedy) from None
    check_names(table.column_names, str(path))
    columns = {
        name: plain_column(table.column(name).to_numpy(), name, str(path))
        for name in table.column_names
    }
    return Table(columns, str(path))


def plain_column(values: Any, name: str, origin: str) -> np.ndarray[Any, Any]:
    """A column of numbers, truth values or texts; raises Misuse for anything else."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "biufUO":
        kind = "lists" if array.ndim != 1 else str(array.dtype)
        raise Misuse(
            f"{origin}: column {name!r} holds {kind}.",
            "Convert it to numbers or texts, or leave it out.",
        )
    if array.dtype.kind == "O":
        plain = (str, bool, int, float, np.generic, type(None))
        odd = next((one for one in array if not isinstance(one, plain)), None)
        # pandas has missing values of its own.
        if odd is not None and type(odd).__name__ not in ("NAType", "NaTType", "Decimal"):
            raise Misuse(
                f"{origin}: column {name!r} holds a {type(odd).__name__}.",
                "Convert it to numbers or texts, or leave it out.",
            )
        if odd is not None:
            missing = ("NAType", "NaTType")
            array = np.array(
                [None if type(one).__name__ in missing else one for one in array], dtype=object
            )
    return array
