"""Where own data come from: files per client, one table, or objects in memory."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.errors import Misuse, unknown_name
from tacit.data.own.arrays import Pair, read_arrays
from tacit.data.own.files import TABLE_SUFFIXES, is_database, read_database, read_table
from tacit.data.own.problems import check
from tacit.data.own.reading import Reading
from tacit.data.own.schema import ordered
from tacit.data.own.table import Table

PLACEHOLDER = "{client}"
Arrays = tuple[Pair, Pair | None]  # to train on, and to test on


class OneTable(dict[str, Any]):
    """The only part of a table that is not divided among clients."""


def client_sources(
    source: Any, client: str | None, clients: Sequence[str] | None, reading: Reading
) -> tuple[str, dict[str, Any]]:
    """What the source is called, and the table or arrays of each client."""
    if isinstance(source, str | os.PathLike) and PLACEHOLDER in os.fspath(source):
        pattern = os.fspath(source)
        if client is not None:
            problem = f"client = {client!r} does not go with {pattern!r}."
            raise Misuse(problem, "Files say whose rows they hold: remove it.")
        files = client_files(pattern)
        chosen = _chosen(files, clients)
        return pattern, {name: one_source(files[name], name, reading) for name in chosen}
    by_client = isinstance(source, Mapping) and client is None and not _is_columns(source)
    if by_client:
        names = {str(name): part for name, part in source.items()}
        chosen = _chosen(names, clients)
        return "own data", {
            name: one_source(names[name], f"the data of {name}", reading) for name in chosen
        }
    whole = one_source(source, "own data", reading)
    origin = whole.origin if isinstance(whole, Table) else str(source)
    if client is None:
        return origin, OneTable({"": whole})
    if not isinstance(whole, Table):
        raise Misuse(f"{origin} holds arrays, and client = {client!r}.", "Give a table.")
    rows = rows_by_client(whole, client)
    return origin, {name: whole.rows(rows[name]) for name in _chosen(rows, clients)}


def rows_by_client(table: Table, client: str) -> dict[str, NDArray[np.intp]]:
    """The rows of each client, by name; a column names the client of each row."""
    owners, which = table.texts(client, "client")
    if None in owners:
        missing, remedy = which == owners.index(None), "Say whose row it is, or remove it."
        wrong = table.problems_where(missing, client, "the client is missing", remedy)
        check([*table.problems, *wrong])
    rows = {str(name): np.flatnonzero(which == at) for at, name in enumerate(owners)}
    return {name: rows[name] for name in ordered(set(rows))}


def client_files(pattern: str) -> dict[str, Path]:
    """The files of a pattern such as "sites/{client}.csv", by client."""
    path = Path(pattern).expanduser()
    if pattern.count(PLACEHOLDER) != 1:
        raise Misuse(f"{pattern!r} has {PLACEHOLDER} more than once.", "Write it once.")
    root = Path(*(part for part in path.parts[: _depth(path)]))
    below = glob.escape("/".join(path.parts[_depth(path) :])).replace(PLACEHOLDER, "*")
    before, after = (re.escape(part) for part in str(path).split(PLACEHOLDER))
    files = {}
    for file in sorted(root.glob(below)):
        match = re.fullmatch(f"{before}(.+){after}", str(file))
        if match is not None and file.is_file():
            files[match[1]] = file
    if not files:
        problem = f"There is no file {pattern}."
        raise Misuse(problem, f"Check the folder; {PLACEHOLDER} stands for a client's name.")
    return {name: files[name] for name in ordered(set(files))}


def _depth(path: Path) -> int:
    """How many parts of a path come before the client's name."""
    return next(at for at, part in enumerate(path.parts) if PLACEHOLDER in part)


def _chosen(parts: Mapping[str, Any], clients: Sequence[str] | None) -> list[str]:
    if clients is None:
        return list(parts)
    for name in clients:
        if name not in parts:
            raise unknown_name(f"clients names {name!r}, which has no data.", name, parts)
    if len(set(clients)) < len(clients):
        raise Misuse("clients names a client twice.", "Name each of them once.")
    return list(clients)


def _is_columns(source: Mapping[Any, Any]) -> bool:
    """Whether a dictionary is a table: all values are plain sequences of one length."""
    plain = (list, np.ndarray)
    return all(
        isinstance(column, plain)
        and np.ndim(np.asarray(column, dtype=object)) == 1
        and not any(isinstance(item, Mapping | Tensor | np.ndarray) for item in column[:1])
        for column in source.values()
    )


def one_source(source: Any, origin: str, reading: Reading) -> Table | Arrays:
    """A table, or arrays to train on and to test on."""
    if is_database(source):
        return read_database(source, reading)
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        if path.suffix in TABLE_SUFFIXES:
            return read_table(path, reading)
        return read_arrays(path, "own data")
    if (table := as_table(source, origin, reading)) is not None:
        return table
    return as_arrays(source, origin)


def as_arrays(made: Any, origin: str) -> Arrays:
    """Arrays to train on and to test on, from (x, y) or ((x, y), (x_test, y_test))."""
    pair = list(made) if isinstance(made, tuple | list) else []
    if len(pair) == 2 and not any(isinstance(part, tuple | list) for part in pair):
        return (pair[0], pair[1]), None
    if len(pair) == 2 and all(isinstance(part, tuple | list) and len(part) == 2 for part in pair):
        return (pair[0][0], pair[0][1]), (pair[1][0], pair[1][1])
    raise Misuse(
        f"{origin}: a {type(made).__name__} that is not data.",
        "Give a table, or (x, y) or ((x, y), (x_test, y_test)) of tensors or arrays.",
    )


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
