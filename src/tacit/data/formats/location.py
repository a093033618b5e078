"""Location-30: one text file, `bangkok`, alone or in the authors' archive."""

from __future__ import annotations

import numpy as np

from tacit.data.formats.raw import RawDataset, RawSplit, damaged, read_bytes, read_members
from tacit.data.formats.tabular import check_range, integer_table, random_split, split_note
from tacit.data.source import LocatedFiles

FEATURES = 446
CLASSES = 30
MEMBER = "bangkok"
# A crafted archive could unpack to much more than the 4.5 MB of the text.
LARGEST = 64 * 2**20


def read(files: LocatedFiles, *, seed: int, test_fraction: float = 0.2) -> RawDataset:
    """Read records of a class in quotation marks and 446 zeros and ones."""
    path = files.paths["table"]
    if path.name == MEMBER:
        text = read_bytes(path)
    else:
        members = read_members(path, (MEMBER,), LARGEST)
        if MEMBER not in members:
            raise damaged(path, f"the archive has no file {MEMBER}", f"one text file {MEMBER}")
        text = members[MEMBER]
    table = integer_table(text.replace(b'"', b""), 1 + FEATURES, path)
    classes, flags = table[:, 0], table[:, 1:]
    check_range(path, "classes", classes, 1, CLASSES)
    check_range(path, "features", flags, 0, 1)
    train, test = (
        RawSplit(flags[rows].astype(np.float32), classes[rows] - 1)
        for rows in random_split(len(table), test_fraction, seed)
    )
    return RawDataset(train, test, split_note("Location-30", test_fraction, seed))
