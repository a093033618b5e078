"""Datasets as read from files, before they are limited and converted to tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import Misuse


@dataclass(frozen=True, eq=False)
class RawSplit:
    """Samples (uint8 images, float32 rows or a SciPy CSR matrix) and their class numbers."""

    x: Any
    y: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RawDataset:
    """Both splits; the note says what is special about them."""

    train: RawSplit
    test: RawSplit
    note: str = ""


def damaged(path: Path | str, found: str, expected: str) -> Misuse:
    """The error for a file whose contents are not what its name promises."""
    return Misuse(
        f"{path}: {found}; expected {expected}.",
        "The file is damaged or is another file: delete it and fetch it again "
        "(`tacit data fetch`).",
    )
