"""Tables of numbers as text: UCI Adult, UCI Covertype and Location-30."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.checks import check_choice, is_number
from tacit.core.errors import Misuse, first_line
from tacit.data.dataset import LocatedFiles
from tacit.data.formats.raw import RawDataset, RawSplit, damaged, read_bytes, read_members

# Adult: 6 numeric and 8 categorical columns (102 categories), then the income.
ADULT_COLUMNS = 15
NUMERIC = (0, 2, 4, 10, 11, 12)
CATEGORICAL = (1, 3, 5, 6, 7, 8, 9, 13)
INCOMES = ("<=50K", ">50K")
# Covertype: 10 quantitative and 44 one-hot columns, then the class 1..7.
COVERTYPE_COLUMNS = 55
QUANTITATIVE = 10
LODGEPOLE_PINE = 2
# Location-30: the class 1..30, then 446 zeros and ones; one file, alone or in the authors' archive.
LOCATION_FEATURES = 446
LOCATION_MEMBER = "bangkok"
# A crafted archive could unpack to much more than the 4.5 MB of the text.
LARGEST_MEMBER = 64 * 2**20


def read_adult(files: LocatedFiles, *, scale: str = "standard") -> RawDataset:
    """Read UCI Adult as 6 numeric and 102 one-hot features.

    Categories come from the training file; `?` is one of them. Categories that only the test file
    has become zeros.
    """
    train_path, test_path = files.paths["train"], files.paths["test"]
    train, test = _read_adult(train_path), _read_adult(test_path)
    numbers = _scaled(_numeric(train, train_path), _numeric(test, test_path), scale)
    blocks = [_one_hot(train, test, column) for column in CATEGORICAL]
    train_x, test_x = (
        np.concatenate(columns, axis=1).astype(np.float32)
        for columns in zip(numbers, *blocks, strict=True)
    )
    return RawDataset(
        RawSplit(train_x, _incomes(train, train_path)), RawSplit(test_x, _incomes(test, test_path))
    )


def read_covertype(
    files: LocatedFiles,
    *,
    seed: int,
    scale: str = "standard",
    test_fraction: float = 0.2,
    binary: bool = False,
) -> RawDataset:
    """Read UCI Covertype.

    Classes are 0 to 6; if `binary`, class 2 is 1 and the rest are 0. The seed keys the split.
    """
    path = files.paths["table"]
    table = _read_table(read_bytes(path), COVERTYPE_COLUMNS, path, dtype=np.int64)
    classes, flags = table[:, -1], table[:, QUANTITATIVE:-1]
    _check_range(path, "classes", classes, 1, 7)
    _check_range(path, "columns 11 to 54", flags, 0, 1)
    labels = (classes == LODGEPOLE_PINE).astype(np.int64) if binary else classes - 1
    train, test = _random_split(len(table), test_fraction, seed)
    quantities = table[:, :QUANTITATIVE].astype(np.float64)
    numbers = _scaled(quantities[train], quantities[test], scale)
    splits = []
    for rows, scaled_numbers in zip((train, test), numbers, strict=True):
        x = np.empty((len(rows), COVERTYPE_COLUMNS - 1), dtype=np.float32)
        x[:, :QUANTITATIVE] = scaled_numbers
        x[:, QUANTITATIVE:] = flags[rows]
        splits.append(RawSplit(x, labels[rows]))
    title = f"Covertype, {'class 2 against the rest' if binary else '7 classes'}"
    return RawDataset(splits[0], splits[1], _split_note(title, test_fraction, seed))


def read_location(files: LocatedFiles, *, seed: int, test_fraction: float = 0.2) -> RawDataset:
    """Read Location-30: records of a class in quotation marks and 446 zeros and ones."""
    path = files.paths["table"]
    if path.name == LOCATION_MEMBER:
        text = read_bytes(path)
    else:
        members = read_members(path, (LOCATION_MEMBER,), LARGEST_MEMBER)
        if LOCATION_MEMBER not in members:
            found = f"the archive has no file {LOCATION_MEMBER}"
            raise damaged(path, found, f"one text file {LOCATION_MEMBER}")
        text = members[LOCATION_MEMBER]
    table = _read_table(text, 1 + LOCATION_FEATURES, path, dtype=np.int64)
    classes, flags = table[:, 0], table[:, 1:]
    _check_range(path, "classes", classes, 1, 30)
    _check_range(path, "features", flags, 0, 1)
    train, test = (
        RawSplit(flags[rows].astype(np.float32), classes[rows] - 1)
        for rows in _random_split(len(table), test_fraction, seed)
    )
    return RawDataset(train, test, _split_note("Location-30", test_fraction, seed))


def _read_table(text: bytes, columns: int, path: Path, **options: Any) -> NDArray[Any]:
    """The values of comma-separated lines, [rows, columns]."""
    import pandas

    expected = f"lines of {columns} values"
    try:
        # Values that lines lack become missing ones, which are then an error.
        frame = pandas.read_csv(io.BytesIO(text), header=None, na_values=[""], **options)
    except ValueError as error:
        raise damaged(path, first_line(error), expected) from error
    if len(short := np.flatnonzero(frame.isna().any(axis=1))):
        raise damaged(path, f"values are missing in row {short[0] + 1}", expected)
    if frame.shape[1] != columns:
        raise damaged(path, f"{frame.shape[1]} values in a line", expected)
    return np.asarray(frame.to_numpy())


def _read_adult(path: Path) -> NDArray[Any]:
    """The values as texts; adult.test begins with a comment, and `?` is a category."""
    options = {"dtype": str, "comment": "|", "skipinitialspace": True, "keep_default_na": False}
    return _read_table(read_bytes(path), ADULT_COLUMNS, path, **options)


def _numeric(rows: NDArray[Any], path: Path) -> NDArray[np.float64]:
    try:
        return rows[:, NUMERIC].astype(np.float64)
    except ValueError as error:
        columns = ", ".join(str(column + 1) for column in NUMERIC)
        raise damaged(path, f"a bad number ({error})", f"numbers in columns {columns}") from error


def _one_hot(train: NDArray[Any], test: NDArray[Any], column: int) -> tuple[NDArray[Any], ...]:
    categories = np.unique(train[:, column])
    return tuple(rows[:, column, None] == categories for rows in (train, test))


def _incomes(rows: NDArray[Any], path: Path) -> NDArray[np.int64]:
    # adult.test ends each label with a full stop.
    labels = [str(label).strip().removesuffix(".") for label in rows[:, -1]]
    unknown = sorted(set(labels) - set(INCOMES))
    if unknown:
        raise damaged(path, f"income {unknown[0]!r}", f"{INCOMES[0]} or {INCOMES[1]}")
    return np.array([INCOMES.index(label) for label in labels], dtype=np.int64)


def _check_range(path: Path, title: str, values: NDArray[np.int64], low: int, high: int) -> None:
    if values.min() < low or values.max() > high:
        raise damaged(path, f"{title} from {values.min()} to {values.max()}", f"{low} to {high}")


def _scaled(
    train: NDArray[np.float64], test: NDArray[np.float64], how: object
) -> tuple[NDArray[np.float64], ...]:
    """Scale columns by statistics of the training rows; constant columns become zero."""
    check_choice("scale", how, ("standard", "minmax", "none"))
    if how == "standard":
        shift, spread = train.mean(axis=0), train.std(axis=0)
    elif how == "minmax":
        shift, spread = train.min(axis=0), np.ptp(train, axis=0)
    else:
        return train, test
    spread = np.where(spread > 0, spread, 1.0)
    return (train - shift) / spread, (test - shift) / spread


def _random_split(
    n: int, test_fraction: object, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random training rows and test rows; they depend on n, the fraction and the seed only."""
    if not is_number(test_fraction) or not 0 < round(n * test_fraction) < n:
        raise Misuse(
            f"test_fraction is {test_fraction!r}, with {n:,} samples.",
            "Give a number between 0 and 1, such as 0.2, that leaves samples to train and test on.",
        )
    order = np.random.default_rng(seed).permutation(n)
    tested = round(n * test_fraction)
    return order[tested:], order[:tested]


def _split_note(title: str, test_fraction: object, seed: int) -> str:
    """The note of a dataset that has no official split."""
    split = f"random split (seed {seed}, test fraction {test_fraction})"
    return f"{title}; {split}, as there is no official one"
