"""mnist-mini: 5,000 digits that ship with the package, so that a first run needs no download."""

from __future__ import annotations

from importlib import resources

import numpy as np

from tacit.data.formats.raw import RawDataset, RawSplit

NOTE = "MNIST, the first 400 training and 100 test digits of each class"


def read() -> RawDataset:
    file = resources.files("tacit.data").joinpath("files", "mnist_mini.npz")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        train, test = (
            RawSplit(stored[f"{split}_x"][:, None], stored[f"{split}_y"].astype(np.int64))
            for split in ("train", "test")
        )
    return RawDataset(train, test, NOTE)
