"""What a reader hands over: arrays as they lie in the files, before limits and tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import Misuse


@dataclass(frozen=True, eq=False)
class RawSplit:
    """Samples as uint8 images, float32 rows or a scipy CSR matrix (hence `Any`), and class numbers."""

    x: Any
    y: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Raw:
    """Both splits, and what must be said about them."""

    train: RawSplit
    test: RawSplit
    note: str


def damaged(path: Path | str, found: str, expected: str) -> Misuse:
    """Return the error for a file that is not what its name says."""
    return Misuse(
        f"{path}: {found}; expected {expected}.",
        "The file is damaged or is another file: delete it and fetch it again (`tacit data fetch`).",
    )
