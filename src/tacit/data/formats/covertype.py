"""UCI Covertype: 10 quantitative and 44 one-hot columns, then the class 1..7."""

from __future__ import annotations

import numpy as np

from tacit.data.formats.raw import RawDataset, RawSplit, read_bytes
from tacit.data.formats.tabular import (
    check_range,
    integer_table,
    random_split,
    scale as scaled,
    split_note,
)
from tacit.data.source import LocatedFiles

COLUMNS = 55
QUANTITATIVE = 10
CLASSES = 7
LODGEPOLE_PINE = 2


def read(
    files: LocatedFiles,
    *,
    seed: int,
    scale: str = "standard",
    test_fraction: float = 0.2,
    binary: bool = False,
) -> RawDataset:
    """Read UCI Covertype.

    Args:
        files: The located file.
        seed: Keys the random split.
        scale: How to scale the quantitative columns: see `tabular.scale`.
        test_fraction: Share of samples in the test set.
        binary: Class 2 as 1 and the rest as 0, instead of all seven classes as 0 to 6.
    """
    path = files.paths["table"]
    table = integer_table(read_bytes(path), COLUMNS, path)
    classes, flags = table[:, -1], table[:, QUANTITATIVE:-1]
    check_range(path, "classes", classes, 1, CLASSES)
    check_range(path, "columns 11 to 54", flags, 0, 1)
    labels = (classes == LODGEPOLE_PINE).astype(np.int64) if binary else classes - 1
    train, test = random_split(len(table), test_fraction, seed)
    quantities = table[:, :QUANTITATIVE].astype(np.float64)
    numbers = scaled(quantities[train], quantities[test], scale)
    splits = []
    for rows, scaled_numbers in zip((train, test), numbers, strict=True):
        x = np.empty((len(rows), COLUMNS - 1), dtype=np.float32)
        x[:, :QUANTITATIVE] = scaled_numbers
        x[:, QUANTITATIVE:] = flags[rows]
        splits.append(RawSplit(x, labels[rows]))
    title = f"Covertype, {'class 2 against the rest' if binary else '7 classes'}"
    return RawDataset(splits[0], splits[1], split_note(title, test_fraction, seed))
