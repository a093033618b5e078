"""Datasets by way of scikit-learn, where there is no mirror of ours or it failed."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core import storage
from tacit.data.formats.idx import SIDE, encode
from tacit.data.progress import progress

TRAINING_IMAGES = 60_000
POSITIVE, NEGATIVE = ("CCAT", "ECAT"), ("GCAT", "MCAT")


def idx_from_openml(openml_name: str, folder: Path) -> list[Path]:
    """Get MNIST or Fashion-MNIST from OpenML (version 1, the original order) and write its IDX files."""
    from sklearn.datasets import fetch_openml

    # liac-arff is slow, but it is the parser that does not need pandas.
    with progress(f"{openml_name} by scikit-learn", None):
        bunch = fetch_openml(
            openml_name, version=1, as_frame=False, parser="liac-arff", cache=False
        )
    images = np.asarray(bunch.data).astype(np.uint8).reshape(-1, SIDE, SIDE)
    labels = np.asarray(bunch.target).astype(np.uint8)
    arrays: dict[str, NDArray[np.uint8]] = {
        "train-images-idx3-ubyte.gz": images[:TRAINING_IMAGES],
        "train-labels-idx1-ubyte.gz": labels[:TRAINING_IMAGES],
        "t10k-images-idx3-ubyte.gz": images[TRAINING_IMAGES:],
        "t10k-labels-idx1-ubyte.gz": labels[TRAINING_IMAGES:],
    }
    return [
        _write(folder / name, gzip.compress(encode(array), mtime=0))
        for name, array in arrays.items()
    ]


def rcv1_from_scikit_learn(folder: Path) -> list[Path]:
    """Get RCV1-v2, make the binary task of it, and write it as plain arrays.

    Label 1 is CCAT or ECAT, label 0 GCAT or MCAT, and documents of both sides or of none are dropped, as
    LIBSVM does. scikit-learn caches by pickle, so its cache goes to a folder that is deleted afterwards.
    """
    from sklearn.datasets import fetch_rcv1

    scratch_folder = tempfile.TemporaryDirectory(prefix="scikit-learn-", dir=folder)
    with scratch_folder as scratch, progress("RCV1 by scikit-learn (about 650 MB)", None):
        return [
            _write_rows(folder / f"rcv1_{subset}.npz", fetch_rcv1(data_home=scratch, subset=subset))
            for subset in ("train", "test")
        ]


def _write_rows(path: Path, bunch: Any) -> Path:
    topics = bunch.target.tocsc()
    names = list(bunch.target_names)

    def has_any(codes: tuple[str, ...]) -> NDArray[np.bool_]:
        flags = topics[:, [names.index(code) for code in codes]].toarray()
        return np.asarray(flags.any(axis=1))

    positive, negative = has_any(POSITIVE), has_any(NEGATIVE)
    kept = positive != negative
    rows = bunch.data.tocsr()[np.flatnonzero(kept)]
    with storage.replacing(path) as part, part.open("wb") as out:
        np.savez_compressed(
            out,
            data=rows.data.astype(np.float32),
            indices=rows.indices.astype(np.int32),
            indptr=rows.indptr.astype(np.int64),
            y=positive[kept].astype(np.int8),
        )
    return path


def _write(path: Path, contents: bytes) -> Path:
    storage.write_bytes(path, contents)
    return path
