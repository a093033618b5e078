"""Parsing, scaling and random splits of tabular datasets."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.core.checks import check_choice, is_number
from tacit.core.errors import Misuse
from tacit.data.formats.raw import damaged

SCALES = ("standard", "minmax", "none")


def integer_table(text: bytes, columns: int, path: Path) -> NDArray[np.int64]:
    """The integers of comma-separated lines, [rows, columns].

    NumPy parses the whole text at once, which is a hundred times faster than line by line. The
    shape is checked on the separators.
    """
    text = text.replace(b"\r", b"").strip(b"\n") + b"\n"
    separators = np.frombuffer(text, np.uint8)
    separators = separators[(separators == ord(",")) | (separators == ord("\n"))]
    grid = separators.reshape(-1, columns) if len(separators) % columns == 0 else None
    if grid is None or (grid[:, :-1] != ord(",")).any() or (grid[:, -1] != ord("\n")).any():
        raise _ragged(text, columns, path)
    try:
        with warnings.catch_warnings():
            # NumPy 1 only warns about text that is not a number.
            warnings.simplefilter("error")
            values = np.fromstring(text.replace(b"\n", b","), dtype=np.int64, sep=",")
    except (ValueError, DeprecationWarning) as error:
        found = "something that is not a whole number"
        raise damaged(path, found, f"{columns} integers per line") from error
    return values.reshape(-1, columns)


def check_range(path: Path, title: str, values: NDArray[np.int64], low: int, high: int) -> None:
    if values.min() < low or values.max() > high:
        raise damaged(path, f"{title} from {values.min()} to {values.max()}", f"{low} to {high}")


def scale(
    train: NDArray[np.float64], test: NDArray[np.float64], how: object
) -> tuple[NDArray[np.float64], ...]:
    """Scale columns by statistics of the training rows; constant columns become zero."""
    check_choice("scale", how, SCALES)
    if how == "standard":
        shift, spread = train.mean(axis=0), train.std(axis=0)
    elif how == "minmax":
        shift, spread = train.min(axis=0), np.ptp(train, axis=0)
    else:
        return train, test
    spread = np.where(spread > 0, spread, 1.0)
    return (train - shift) / spread, (test - shift) / spread


def random_split(
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


def split_note(title: str, test_fraction: object, seed: int) -> str:
    """The note of a dataset that has no official split."""
    split = f"random split (seed {seed}, test fraction {test_fraction})"
    return f"{title}; {split}, as there is no official one"


def _ragged(text: bytes, columns: int, path: Path) -> Misuse:
    for number, line in enumerate(text.split(b"\n")[:-1], start=1):
        if line.count(b",") + 1 != columns:
            return damaged(path, f"{line.count(b',') + 1} columns in line {number}", f"{columns}")
    return damaged(path, "an empty file", f"lines of {columns} columns")
