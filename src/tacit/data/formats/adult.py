"""UCI Adult: from the original text files to 6 numeric and 102 one-hot features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.data.formats.raw import RawDataset, RawSplit, damaged, read_bytes
from tacit.data.formats.tabular import scale as scaled
from tacit.data.source import LocatedFiles

COLUMNS = 15
NUMERIC = (0, 2, 4, 10, 11, 12)
CATEGORICAL = (1, 3, 5, 6, 7, 8, 9, 13)
INCOMES = ("<=50K", ">50K")

Rows = list[list[str]]


def read(files: LocatedFiles, *, scale: str = "standard") -> RawDataset:
    """Read both files.

    Categories come from the training file; `?` is one of them. Categories that only the test file
    has become zeros.
    """
    train_path, test_path = files.paths["train"], files.paths["test"]
    train, test = _rows(train_path), _rows(test_path)
    numbers = scaled(_numeric(train, train_path), _numeric(test, test_path), scale)
    blocks = [_one_hot(train, test, column) for column in CATEGORICAL]
    train_x, test_x = (
        np.concatenate(columns, axis=1).astype(np.float32)
        for columns in zip(numbers, *blocks, strict=True)
    )
    return RawDataset(
        RawSplit(train_x, _incomes(train, train_path)), RawSplit(test_x, _incomes(test, test_path))
    )


def _rows(path: Path) -> Rows:
    rows: Rows = []
    text = read_bytes(path).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), start=1):
        # adult.test starts with a comment.
        if not line.strip() or line.startswith("|"):
            continue
        row = [value.strip() for value in line.split(",")]
        if len(row) != COLUMNS:
            raise damaged(path, f"{len(row)} columns in line {number}", f"{COLUMNS}")
        rows.append(row)
    if not rows:
        raise damaged(path, "no records", f"lines of {COLUMNS} columns")
    return rows


def _numeric(rows: Rows, path: Path) -> NDArray[np.float64]:
    try:
        return np.array([[float(row[column]) for column in NUMERIC] for row in rows])
    except ValueError as error:
        columns = ", ".join(str(column + 1) for column in NUMERIC)
        raise damaged(path, f"a bad number ({error})", f"numbers in columns {columns}") from error


def _one_hot(train: Rows, test: Rows, column: int) -> tuple[NDArray[np.bool_], ...]:
    categories = np.array(sorted({row[column] for row in train}))
    return tuple(
        np.array([row[column] for row in rows])[:, None] == categories for rows in (train, test)
    )


def _incomes(rows: Rows, path: Path) -> NDArray[np.int64]:
    # adult.test ends each label with a full stop.
    labels = [row[-1].removesuffix(".") for row in rows]
    unknown = sorted(set(labels) - set(INCOMES))
    if unknown:
        raise damaged(path, f"income {unknown[0]!r}", f"{INCOMES[0]} or {INCOMES[1]}")
    return np.array([INCOMES.index(label) for label in labels], dtype=np.int64)
