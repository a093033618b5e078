"""UCI Covertype: 10 quantitative and 44 one-hot columns, then the class 1..7."""

from __future__ import annotations

import numpy as np

from tacit.data.formats.compressed import read_bytes
from tacit.data.formats.raw import RawDataset, RawSplit, damaged
from tacit.data.formats.tabular import integer_table, random_split, split_note
from tacit.data.formats.tabular import scale as scaled
from tacit.data.source import LocatedFiles

COLUMNS = 55
QUANTITATIVE = 10
CLASSES = 7
LODGEPOLE_PINE = 2


def read(
    files: LocatedFiles, *, seed: int, scale: str = "standard", test_fraction: float = 0.2
) -> RawDataset:
    """Read all seven classes as 0 to 6."""
    path = files.paths["table"]
    table = integer_table(read_bytes(path), COLUMNS, path)
    classes, flags = table[:, -1], table[:, QUANTITATIVE:-1]
    if classes.min() < 1 or classes.max() > CLASSES:
        raise damaged(path, f"classes from {classes.min()} to {classes.max()}", f"1 to {CLASSES}")
    if flags.min() < 0 or flags.max() > 1:
        raise damaged(path, f"{flags.min()} to {flags.max()} in columns 11 to 54", "0 or 1")
    train, test = random_split(len(table), test_fraction, seed)
    quantities = table[:, :QUANTITATIVE].astype(np.float64)
    numbers = scaled(quantities[train], quantities[test], scale)
    splits = []
    for rows, scaled_numbers in zip((train, test), numbers, strict=True):
        x = np.empty((len(rows), COLUMNS - 1), dtype=np.float32)
        x[:, :QUANTITATIVE] = scaled_numbers
        x[:, QUANTITATIVE:] = flags[rows]
        splits.append(RawSplit(x, classes[rows] - 1))
    return RawDataset(splits[0], splits[1], split_note("Covertype, 7 classes", test_fraction, seed))


def read_binary(
    files: LocatedFiles, *, seed: int, scale: str = "standard", test_fraction: float = 0.2
) -> RawDataset:
    """Read the usual binary task: label 1 is class 2 (lodgepole pine), label 0 the rest."""
    raw = read(files, seed=seed, scale=scale, test_fraction=test_fraction)
    train, test = (
        RawSplit(split.x, (split.y == LODGEPOLE_PINE - 1).astype(np.int64))
        for split in (raw.train, raw.test)
    )
    note = split_note("Covertype, class 2 against the rest", test_fraction, seed)
    return RawDataset(train, test, note)
